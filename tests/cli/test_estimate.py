"""`vlm-gateway estimate`: the gateway's own steps on one body, without a server."""

import json

import httpx
import pytest
from typer.testing import CliRunner

from gateway.cli import app
from gateway.cli.demo import model
from gateway.emulator.config import EmulatorConfig
from gateway.emulator.serve import running_emulator
from tests.support.pictures import data_url, encoded, picture
from tests.support.processes import running_gateway

NAMED = ("--set", "models=[{name: m, family: qwen2_5_vl}]")


def image(width, height, *, mode="RGB", file=None):
    url = data_url(file or encoded(picture(width, height, mode=mode)))
    return {"type": "image_url", "image_url": {"url": url}}


def turn(*parts, role="user"):
    return {"role": role, "content": [*parts, {"type": "text", "text": "What is this?"}]}


def chat(*messages, **fields):
    return {"model": "m", "messages": list(messages), "max_tokens": 100} | fields


def run(body, *options):
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return CliRunner().invoke(app, ["estimate", "-", *options], input=text)


def found(body, *options):
    result = run(body, *options, "--json")
    assert result.exit_code in {0, 1}, result.output
    return json.loads(result.stdout.splitlines()[-1]), result


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "model"
    path.mkdir()
    model.write(path)
    return path


def test_a_request_is_priced_with_the_models_own_folder(folder):
    said, result = found(
        chat(turn(image(560, 420))),
        *("--model-folder", str(folder), "--max-model-len", "4096", "--set", "budget.kv_blocks=100"),
    )
    assert result.exit_code == 0
    assert said["verdict"] == "admitted"
    assert said["model"] == {"name": "m", "family": "qwen2_5_vl", "family_source": "folder", "max_model_len": 4096}
    [one] = said["images"]
    assert (one["format"], one["size"], one["model_size"], one["action"]) == ("png", "560x420", "560x420", "kept")
    assert (one["tokens_before"], one["tokens"]) == (300, 300)
    assert said["tokens"]["visual"] == 302
    assert said["tokens"]["prompt"]["lower"] == said["tokens"]["prompt"]["upper"]
    blocks = said["amounts"]["kv_blocks"]
    assert said["memory"]["kv"] == {"bytes": blocks * 16 * 57_344, "share": blocks / 100}
    assert said["memory"]["encoder"] == {"bytes": 300 * 7_168, "share": None}
    assert said["memory"]["host"]["bytes"] > one["file_bytes"]
    assert "(exact)" in result.stdout
    assert f"{blocks / 100:.1%} of 100 blocks" in result.stdout


def test_the_prediction_is_what_a_running_gateway_and_its_engine_say(folder, tmp_path):
    body = chat(turn(image(900, 700)), stream=False)
    said, _ = found(body, "--model-folder", str(folder), "--max-model-len", "4096", "--set", "resize.preset=thumbnail")
    assert said["images"][0]["action"] == "resized"
    settings = {"models": [{"name": "m", "folder": str(folder)}], "resize": {"preset": "thumbnail"}}
    config = EmulatorConfig.fast(model="m", max_model_len=4096)
    with running_emulator(config) as emulator, running_gateway(emulator.base_url, tmp_path, settings) as gateway:
        answer = httpx.post(f"{gateway.url}/v1/chat/completions", json=body)
    assert said["tokens"]["prompt"]["expected"] == answer.json()["usage"]["prompt_tokens"]
    assert said["tokens"]["visual"] == int(answer.headers["x-gateway-visual-tokens"])


def test_what_nobody_told_is_said_and_not_invented():
    said, result = found(chat(turn(image(560, 420))), *NAMED)
    assert said["memory"]["kv"] is said["memory"]["encoder"] is said["kv_blocks_pool"] is None
    text = " ".join(result.stdout.split())
    assert "context unknown, not enforced: give --max-model-len" in text
    assert "of a pool not told: give --set budget.kv_blocks=N" in text
    assert "unknown: give --model-folder or --kv-bytes-per-token" in text
    assert "text tokens about" in text


def test_bytes_a_token_and_the_block_size_can_be_given():
    options = ("--kv-bytes-per-token", "1000", "--block-size", "128")
    said, _ = found(chat(turn(image(560, 420))), *NAMED, *options)
    assert said["memory"]["kv"]["bytes"] == said["amounts"]["kv_blocks"] * 128 * 1000


def test_every_image_says_what_becomes_of_it_and_why():
    body = chat(turn(image(900, 700)), turn(image(100, 100, mode="RGBA")), turn(image(100, 100)))
    said, _ = found(body, *NAMED, "--set", "resize.preset=thumbnail", "--set", "images.verify=header")
    assert [(one["action"], one["why"]) for one in said["images"]] == [
        ("resized", "preset"),
        ("normalised", "alpha"),
        ("kept", ""),
    ]
    assert said["images"][0]["tokens"] < said["images"][0]["tokens_before"]


def test_a_history_that_outgrows_the_context_is_trimmed():
    turns = [message for _ in range(6) for message in (turn(image(560, 420)), {"role": "assistant", "content": "ok"})]
    said, result = found(chat(*turns, turn(image(560, 420))), *NAMED, "--max-model-len", "1400")
    assert [one["action"] for one in said["images"]] == ["trimmed"] * 4 + ["kept"] * 3
    assert {one["why"] for one in said["images"][:4]} == {"context"}
    assert said["images"][0]["size"] is None
    assert result.exit_code == 0


def test_what_never_fits_the_context_gets_the_error_that_the_gateway_would_send():
    options = (*NAMED, "--max-model-len", "200", "--set", "resize.fit=refuse")
    said, result = found(chat(turn(image(560, 420))), *options)
    assert result.exit_code == 1
    assert (said["verdict"], said["error"]["code"]) == ("refused", "context_length_exceeded")
    assert said["error"]["reason"] == "never_fits_context"
    assert said["tokens"]["visual"] == 302
    assert (
        "Verdict: never fits. The client gets 400 (never_fits_context, context_length_exceeded at messages):"
        in result.stdout
    )
    assert "This model's maximum context length is 200 tokens." in result.stdout


def test_what_never_fits_the_pool_says_so():
    options = (*NAMED, "--set", "budget.kv_blocks=10", "--set", "resize.fit=refuse")
    said, _ = found(chat(turn(image(560, 420))), *options)
    assert (said["verdict"], said["error"]["reason"]) == ("refused", "never_fits_kv")


def test_what_takes_the_whole_pool_waits_until_it_is_alone():
    options = (*NAMED, "--set", "budget.kv_blocks=27", "--set", "resize.fit=refuse")
    said, result = found(chat(turn(image(560, 420))), *options)
    assert (said["verdict"], said["amounts"]["kv_blocks"]) == ("admitted", 27)
    assert "waits until nothing else runs" in result.stdout


def test_an_unknown_family_refuses_nothing():
    said, result = found(chat(turn(image(560, 420))), "--max-model-len", "10")
    assert (said["verdict"], said["model"]["family_source"]) == ("admitted", "assumed")
    assert "The family is not known" in result.stdout


def test_a_request_without_a_model_is_for_the_first_one(folder):
    body = chat(turn())
    del body["model"]
    assert found(body, "--model-folder", str(folder))[0]["model"]["name"] == "model"
    assert found(body, *NAMED)[0]["model"]["name"] == "m"
    assert found(body)[0]["model"]["name"] == "(the first model)"


def test_an_alias_is_priced_as_its_model():
    models = "models=[{name: m, family: qwen2_5_vl, aliases: [gpt-4o]}]"
    body = chat(turn(image(560, 420)))
    report, _ = found(body | {"model": "gpt-4o"}, "--set", models)
    assert (report["model"]["name"], report["model"]["family"]) == ("m", "qwen2_5_vl")


def test_a_folder_in_the_settings_tells_the_bytes_too(folder):
    said, _ = found(chat(turn()), "--set", f"models=[{{name: m, folder: {folder}}}]")
    assert said["memory"]["kv"]["bytes"] == said["amounts"]["kv_blocks"] * 16 * 57_344
    assert said["images"] == []


@pytest.mark.parametrize(
    ("body", "options", "code", "param"),
    [
        (b"{", (), "invalid_json", None),
        (chat(), (), "invalid_request", "messages"),
        (
            chat(turn(image(1, 1, file=b"%PDF-1.7"))),
            (),
            "unsupported_image_media_type",
            "messages[0].content[0].image_url.url",
        ),
        (chat(turn()), ("--endpoint", "/v1/audio/speech"), "not_found", None),
        (chat(turn()), ("--set", "server.max_body_bytes=10"), "request_too_large", None),
    ],
)
def test_bad_requests_get_their_error_and_exit_1(body, options, code, param):
    said, result = found(body, *options)
    assert result.exit_code == 1
    assert (said["verdict"], said["error"]["code"], said["error"]["param"]) == ("refused", code, param)
    assert "tokens" not in said
    assert "The client gets" in result.stdout
    assert code in result.stdout.splitlines()[0]


def test_prompts_without_pictures_are_priced_too():
    body = {"model": "m", "prompt": [[1, 2, 3], [4, 5, 6, 7]], "max_tokens": 8}
    said, _ = found(body, *NAMED, "--endpoint", "/v1/completions")
    assert said["tokens"]["prompt"] == {"lower": 7, "expected": 7, "upper": 7}
    assert (said["amounts"]["sequences"], said["tokens"]["output_reserved"]) == (2, 16)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["/nowhere.json"], "No such file"),
        (["-", "--model-folder", "/nowhere"], "config.json: cannot be read"),
        (["-", "--max-model-len", "0"], "--max-model-len"),
        (["-", "--set", "budget.kv_blocks=none"], "budget.kv_blocks (flag)"),
    ],
)
def test_a_wrong_command_line_exits_2(options, text):
    result = CliRunner().invoke(app, ["estimate", *options], input=json.dumps(chat(turn())))
    assert result.exit_code == 2
    assert text in result.stderr


def test_a_video_is_told_by_the_most_that_it_can_cost():
    film = {"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AAAA"}}
    let_in = ("--set", "videos={per_request: 1, tokens: 5000}")
    said, _ = found(chat(turn(film)), *NAMED, *let_in)
    assert (said["tokens"]["media"], said["tokens"]["visual"]) == (5000, 0)
    assert "tokens of videos and audio, at most" in run(chat(turn(film)), *NAMED, *let_in).output
    assert "tokens of videos" not in run(chat(turn()), *NAMED).output
