"""`vlm-gateway check`: settings with their sources, derived limits, what the upstream tells, and what is not known."""

import importlib
import json
import re
from datetime import UTC, datetime

import pytest
from typer.testing import CliRunner

from gateway.cli import app
from gateway.cli.check.findings import Asked, find, table_of
from gateway.cli.check.planned import PlannedPool, planned_pool
from gateway.cli.check.surroundings import Surroundings
from gateway.domain.cost import EngineLimits
from gateway.domain.kv_layout import KvCharge
from gateway.emulator.config import EmulatorConfig
from gateway.emulator.serve import running_emulator
from gateway.ledger.host_memory import GIB
from gateway.models.served import ModelTable
from gateway.policies import models_of, upstreams_of
from gateway.settings import Settings
from gateway.settings_sources import load
from gateway.upstream.state import UpstreamModel, UpstreamState
from gateway.wire.vllm_metrics import EngineReport
from tests.support.processes import free_port

COMMAND = importlib.import_module("gateway.cli.check")  # as an attribute of gateway.cli it is the function


@pytest.fixture(autouse=True)
def _memory(monkeypatch):
    monkeypatch.setattr(COMMAND, "memory_limit_bytes", lambda: GIB)


def run(*options, **environment):
    return CliRunner().invoke(app, ["check", *options], env=environment)


def found(*options, **environment):
    result = run(*options, "--json", **environment)
    return json.loads(result.stdout.splitlines()[-1]), result


@pytest.fixture(scope="module")
def upstream():
    config = EmulatorConfig.fast(model="Qwen/Qwen2.5-VL-7B-Instruct", max_model_len=4096, num_gpu_blocks=513)
    with running_emulator(config) as emulator:
        yield emulator.base_url


def test_every_setting_is_listed_with_its_value_and_its_source(tmp_path):
    file = tmp_path / "g.yaml"
    file.write_text("queue: {requests: 7}\nhistory: {marker: '[gone]'}")
    said, result = found(
        *("--config", str(file), "--set", "images.max_pixels=1000"),
        GATEWAY_SERVER__SEATS="5",
        GATEWAY_UPSTREAM__CONNECT_TIMEOUT_SECONDS="0.5",
    )
    settings = said["settings"]
    sections = Settings.model_fields.keys() - {"models"}
    assert {name.partition(".")[0] for name in settings} == sections | {"models"}
    assert settings["queue.requests"] == {"value": 7, "origin": f"file {file}"}
    assert settings["images.max_pixels"] == {"value": 1000, "origin": "flag"}
    assert settings["server.seats"] == {"value": 5, "origin": "environment"}
    assert settings["images.remote.policy"] == {"value": "inline", "origin": "default"}
    assert settings["output_reservation"] == {"value": "quantile", "origin": "default"}
    assert settings["budget.kv_blocks"] == {"value": None, "origin": "default"}
    assert "[gone]" in result.stdout
    assert "(automatic)" in result.stdout


def test_a_setting_that_holds_names_of_its_own_has_their_source(tmp_path):
    file = tmp_path / "g.yaml"
    file.write_text("hand_on: {headers: {x-user-id: tenant}}")
    said, _ = found("--config", str(file))
    assert said["settings"]["hand_on.headers"] == {"value": {"x-user-id": "tenant"}, "origin": f"file {file}"}
    assert found()[0]["settings"]["hand_on.headers"] == {"value": {}, "origin": "default"}


def test_a_field_has_the_rule_of_the_table_unless_a_setting_changes_it():
    said, result = found("--set", "fields.n.most=16")
    shown = {name.removeprefix("fields."): tuple(each.values()) for name, each in said["settings"].items()}
    assert (shown["n.policy"], shown["n.most"]) == (("refuse", "default"), (16, "flag"))
    assert (shown["best_of.policy"], shown["best_of.most"]) == (("clamp", "default"), (1, "default"))
    assert shown["prompt_logprobs.policy"] == ("refuse", "default")
    assert re.search(r"fields.n.policy +refuse", result.stdout)


def test_what_nobody_finds_out_is_off_where_it_is_left_out():
    result = run()
    for name in ("keys.file", "tenants_from.header", "server.tls.key_file", "upstream.tls.key_file"):
        assert re.search(rf"{name} +\(off\)", result.stdout), name
    for name in ("server.host", "upstream.tls.ca_file"):
        assert re.search(rf"{name} +\(automatic\)", result.stdout), name


def test_levels_are_shown_as_each_class_has_them():
    nothing, result = found()
    assert nothing["levels"] == []
    assert nothing["settings"]["slo.total_seconds"] == {"value": None, "origin": "default"}
    assert re.search(r"slo.total_seconds +\(off\)", result.stdout)
    said, result = found("--set", "slo.first_token_seconds=4", "--set", "slo.classes.batch.total_seconds=600")
    assert [tuple(level.values()) for level in said["levels"]] == [
        ("default", "critical", 4.0, None),
        ("default", "interactive", 4.0, None),
        ("default", "default", 4.0, None),
        ("default", "batch", 4.0, 600.0),
    ]
    assert re.search(r"default +batch +4 +600", result.stdout)


def test_the_ladder_is_shown_as_it_will_be_climbed():
    nothing, result = found()
    assert nothing["ladder"] == []
    assert nothing["settings"]["pressure.shed"] == {"value": "off", "origin": "default"}
    assert "Under pressure" not in result.stdout
    flags = ("shed=on", "shrink.preset=thumbnail", "history=on", "max_tokens.tokens=99", "refuse.enter=9")
    said, result = found(*(word for flag in flags for word in ("--set", f"pressure.{flag}")))
    assert [(each["rung"], each["enter"], each["leave"]) for each in said["ladder"]] == [
        ("shrink", 2.0, 0.95),
        ("history", 2.0, 1.0),
        ("max_tokens", 2.5, 1.25),
        ("shed", 3.0, 2.0),
        ("refuse", 9.0, 3.0),
    ]
    assert "new images are brought under thumbnail (262,144 pixels)" in result.stdout
    assert said["settings"]["pressure.refuse.enter"] == {"value": 9.0, "origin": "flag"}


def test_a_secret_is_never_shown():
    said, result = found(GATEWAY_UPSTREAM__API_KEY="tell-nobody")
    assert said["settings"]["upstream.api_key"] == {"value": "**********", "origin": "environment"}
    assert "tell-nobody" not in result.output


def test_the_limits_that_follow_say_what_bound_them():
    said, result = found()
    assert said["memory"] == {
        "limit_bytes": GIB,
        "body_bytes": GIB // 4,
        "decode_bytes": GIB // 4,
        "cache_bytes": GIB // 20,
    }
    assert said["max_body_bytes"] == 32 << 20
    assert said["max_pixels"]["jpeg"] == {"pixels": 24_766_366, "bound_by": "budget.decode_bytes"}
    assert said["max_pixels"]["webp"] == {"pixels": 6_754_463, "bound_by": "budget.decode_bytes"}
    assert "progressive jpeg" in result.stdout


def test_in_shadow_mode_the_largest_body_is_what_can_be_held():
    assert "Shadow mode" not in found()[1].stdout
    said, result = found("--set", "mode=shadow")
    assert said["max_body_bytes"] == GIB // 8
    assert "Shadow mode: nothing is queued" in result.stdout


def test_what_the_upstream_tells(upstream):
    said, result = found("--upstream", upstream)
    assert result.exit_code == 0
    assert said["upstreams"] == [
        {
            "name": None,
            "url": f"{upstream}/",
            "is_up": True,
            "trouble": None,
            "version": "0.32.0",
            "kv_blocks": 512,
            "kv_block_tokens": 16,
            "prefix_caching": True,
            "models": [
                {
                    "name": "Qwen/Qwen2.5-VL-7B-Instruct",
                    "is_served": True,
                    "max_model_len": 4096,
                    "family": "qwen2_5_vl",
                    "family_source": "name",
                    "is_text_exact": False,
                    "max_image_tokens": 16_384,
                    "max_video_tokens": 384 * 16_384 + 3,
                    "kv_groups": 1,
                    "kv_groups_source": "server",
                    "is_kv_whole": False,
                    "price": "exact",
                    "numbers": said["upstreams"][0]["models"][0]["numbers"],
                    "troubles": [],
                }
            ],
            "calibration": {},
        }
    ]
    assert "KV pool: 512 blocks of 16 tokens = 8,192 tokens" in result.stdout
    assert "Prefix caching: on" in result.stdout


def test_what_is_not_known_is_said_with_what_it_means(upstream):
    said, result = found("--upstream", upstream, "--set", "models=[{name: other}]")
    unknown = "\n".join(said["unknown"])
    assert "Encoder tokens: vLLM tells no number; not enforced until a 400 of its names it" in unknown
    assert "other: unknown layout of KV groups" in unknown
    assert "Qwen/Qwen2.5-VL-7B-Instruct: unknown layout" not in unknown
    assert "unknown layout" in result.stdout
    assert "other: its context length is not known; not enforced." in unknown
    assert "other: nothing says of which family it is; its images are priced by bounds" in unknown
    assert "KV blocks:" not in unknown
    assert "other (not listed by the upstream)" in result.stdout


@pytest.mark.parametrize(
    ("family", "limits", "told"),
    [
        ("qwen3_vl", EngineLimits(), (1, "family", False)),
        ("qwen3_5", EngineLimits(), (None, "unknown", False)),
        ("qwen3_5", EngineLimits(kv_groups=4), (4, "server", True)),
        ("qwen2_vl", EngineLimits(kv_groups=1, kv_charges=(KvCharge(1, 16),)), (1, "server", False)),
    ],
)
def test_kv_groups_are_known_from_the_server_or_the_family(monkeypatch, family, limits, told):
    monkeypatch.setattr(ModelTable, "limits", lambda *_: limits)
    loaded = load(flags={"models": f"[{{name: m, family: {family}}}]", "budget.kv_blocks": "100"})
    [upstream] = upstreams_of(loaded.settings)
    table = table_of(loaded.settings, upstream, models_of(loaded.settings), UpstreamState())
    findings = find(loaded, [Asked(UpstreamState(), table)], GIB, Surroundings(datetime.now(UTC)))
    (model,) = findings.upstreams[0].models
    assert (model.kv_groups, model.kv_groups_source, model.is_kv_whole) == told
    assert any("unknown layout" in sentence for sentence in findings.unknown) is (told[0] is None)
    assert any("each is charged for all tokens" in sentence for sentence in findings.unknown) is told[2]


def test_kv_groups_of_a_models_folder_are_checked_against_the_server(tmp_path):
    """Gemma 3 with windows of 1,024 tokens behind a server whose engine has as many groups."""
    text = {"model_type": "gemma3_text", "hidden_size": 2560, "num_hidden_layers": 12, "sliding_window": 1024}
    config = {"architectures": ["Gemma3ForConditionalGeneration"], "text_config": text}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "tokenizer_config.json").write_text("{}")
    emulated = EmulatorConfig.fast(model="gemma", sliding_window=1024, sliding_window_groups=5)
    with running_emulator(emulated) as emulator:
        said, result = found("--upstream", emulator.base_url, "--set", f"models=[{{name: gemma, folder: {tmp_path}}}]")
    (model,) = said["upstreams"][0]["models"]
    assert (model["kv_groups"], model["kv_groups_source"], model["is_kv_whole"]) == (6, "folder", False)
    assert "blocks of 16 tokens, shared by the KV groups of a model" in result.stdout


def test_what_the_operator_states_is_no_longer_unknown(upstream):
    own = ("budget.sequences=4", "budget.encoder_tokens=9000", "images.max_forwarded=8", "budget.kv_blocks=100")
    said, _ = found("--upstream", upstream, *(word for name in own for word in ("--set", name)))
    assert said["upstreams"][0]["kv_blocks"] == 100
    assert [sentence.partition(":")[0] for sentence in said["unknown"]] == [
        "Preprocessing",
        "Qwen/Qwen2.5-VL-7B-Instruct",
    ]


@pytest.mark.parametrize(
    ("planned", "sentence"),
    [
        (512, "Of the server's 512 KV blocks the budget leaves 0 unused (0.0%)."),
        (384, "Of the server's 512 KV blocks the budget leaves 128 unused (25.0%)."),
        (640, "The budget of 640 KV blocks is 25.0% more than the server has (512); the server's own number is used."),
    ],
)
def test_a_planned_budget_beside_what_the_server_has(upstream, planned, sentence):
    said, result = found("--upstream", upstream, "--set", f"budget.kv_blocks={planned}")
    assert said["upstreams"][0]["planned"] == {"planned": planned, "running": 512}
    assert sentence in result.stdout


def test_a_plan_needs_a_server_that_tells_its_pool():
    assert planned_pool(100, None) is None
    assert planned_pool(None, EngineReport(num_gpu_blocks=513, engines=1)) is None
    assert planned_pool(100, EngineReport()) is None
    assert planned_pool(100, EngineReport(num_gpu_blocks=513, engines=1)) == PlannedPool(100, 512)


def test_a_given_upstream_that_does_not_answer_exits_1():
    url = f"http://127.0.0.1:{free_port()}"
    result = run("--upstream", url)
    assert result.exit_code == 1
    assert f"The upstream {url}/ cannot be used: /health:" in result.stderr


def test_each_of_several_upstreams_is_shown(upstream):
    away = f"http://127.0.0.1:{free_port()}"
    said, result = found("--upstream", upstream, "--upstream", away)
    assert result.exit_code == 1
    assert f"The upstream {away}/ cannot be used: /health:" in result.stderr
    assert f"The upstream {upstream}" not in result.stderr
    up, down = said["upstreams"]
    assert (up["name"], up["is_up"], up["kv_blocks"]) == (upstream.removeprefix("http://"), True, 512)
    assert (down["name"], down["is_up"], down["kv_blocks"]) == (away.removeprefix("http://"), False, None)
    assert f"Upstream {up['name']} ({upstream}/): vLLM 0.32.0" in result.stdout
    unknown = "\n".join(said["unknown"])
    assert unknown.count("Preprocessing: 20 MP/s at the start") == 1
    assert f"{down['name']}: KV blocks: the engine has not told" in unknown
    assert f"{up['name']}: KV blocks" not in unknown


def test_without_an_upstream_the_settings_can_still_be_checked(monkeypatch):
    async def nobody(url, **_):
        return UpstreamState(trouble=f"nobody at {url}")

    monkeypatch.setattr(COMMAND, "discover", nobody)
    said, result = found()
    assert result.exit_code == 0
    assert not said["upstreams"][0]["is_up"]
    assert "http://127.0.0.1:8000/ (the default; give --upstream) does not answer: nobody at" in result.stdout
    assert "KV blocks: the engine has not told" in result.stdout
    assert "Models: none is configured and none was listed" in result.stdout


def test_an_upstream_that_tells_half_of_it_says_what_is_missing(monkeypatch):
    async def tells_little(_url, **_):
        return UpstreamState(is_up=True, models=(UpstreamModel("m", None),), trouble="/metrics answered 404")

    monkeypatch.setattr(COMMAND, "discover", tells_little)
    said, result = found("--upstream", "http://127.0.0.1:8000")
    assert result.exit_code == 0
    assert said["upstreams"][0]["prefix_caching"] is None
    assert "vLLM of unknown version" in result.stdout
    assert "Trouble: /metrics answered 404" in result.stdout


@pytest.mark.parametrize(
    ("options", "mistakes"),
    [
        (
            ["--set", "queue.lenght=1", "--set", "server.port=many"],
            ["queue.lenght (flag): there is no such setting", "server.port (flag)"],
        ),
        (["--set", "queue"], ["--set queue: write NAME=VALUE"]),
        (["--config", "/nowhere.yaml"], ["--config /nowhere.yaml"]),
        (
            ["--set", "images.max_pixels=50000000", "--set", "budget.decode_bytes=268435456"],
            [
                "The settings contradict each other",
                "images.max_pixels is 50000000, but budget.decode_bytes = 268435456",
            ],
        ),
        (
            ["--set", "models=[{name: a, family: bogus}, {name: b, folder: /nowhere}]"],
            ["model 'a': unknown model family 'bogus'", "model 'b': config.json: cannot be read"],
        ),
    ],
)
def test_all_mistakes_are_named_and_exit_2(options, mistakes):
    result = run(*options)
    assert result.exit_code == 2
    for mistake in mistakes:
        assert mistake in result.stderr


def test_a_running_server_is_compared_with_a_plan_where_a_card_is_named(upstream):
    said, result = found("--upstream", upstream, "--gpu", "L4", "--command", "vllm serve m --max-num-seqs 8")
    [compared] = said["compared"]
    assert compared["url"].rstrip("/") == upstream.rstrip("/")
    assert compared["plan"]["why_not"] is not None or compared["compared"]
    assert f"Plan for {compared['url']}" in result.stdout
    assert found("--upstream", upstream)[0]["compared"] == []


def test_a_server_that_does_not_answer_has_no_plan():
    said, result = found("--upstream", f"http://127.0.0.1:{free_port()}", "--gpu", "L4")
    assert result.exit_code == 1
    assert said["compared"][0]["plan"]["why_not"] is not None
