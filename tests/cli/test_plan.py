"""`vlm-gateway plan`, as it is called."""

import importlib
import json
import re
from html.parser import HTMLParser

import pytest
from typer.testing import CliRunner

from gateway.cli import app
from gateway.cli.plan.goal import GoalError, read_goal, read_size
from gateway.cli.plan.page import plan_page
from gateway.domain.geometry import Size
from gateway.domain.memory.fit import Goal
from gateway.domain.memory.plan import Flags, ModelSpec, Version
from gateway.domain.memory.planning import make_plan
from gateway.policies import models_of, upstreams_of
from gateway.settings_sources import load
from tests.domain.memory.test_config_spec import GEMMA3, QWEN25
from tests.models.test_spec_sources import model_folder
from tests.support.hub_server import hub_server
from tests.support.memory import QWEN_3B, QWEN_7B, card, spec

ON_L4 = ("--model", QWEN_3B, "--gpu", "L4", "--max-model-len", "8192")
GOAL = "8 users, 2 images of 1280x1280, 4k context"


def run(*words):
    return CliRunner().invoke(app, ["plan", *words])


def found(*words):
    result = run(*words, "--json")
    assert result.exit_code in {0, 1}, result.output
    return json.loads(result.stdout)


def test_a_plan_in_tables():
    result = run(*ON_L4, "--max-num-seqs", "64", "--gpu-memory-utilization", "0.9")
    assert result.exit_code == 0
    for text in (
        "Qwen/Qwen2.5-VL-3B-Instruct on L4, vLLM 0.32.0",
        "Verdict: fits.",
        "1 video item(s), 65,536 patches; largest item in tokens: image 16,384, video 16,384",
        "64 sequences x 151,936 logits",
        "36,864 bytes a token",
        "Images that the KV pool holds",
        "Largest term beside the KV pool: weights, 7.15 GiB.",
        "--enforce-eager",
        "Not planned: engine V0, state pages of linear attention, pipeline parallel, drafts of speculative decoding.",
        "vllm serve Qwen/Qwen2.5-VL-3B-Instruct --gpu-memory-utilization 0.9",
    ):
        assert text in result.stdout


def test_the_bar_shares_out_the_card():
    result = run(*ON_L4)
    [bar] = re.findall(r"^[WBNPGKF.]{60,}$", result.stdout, re.MULTILINE)
    assert re.fullmatch(r"W+B+N+P+G+K+\.+", bar)
    assert "F" in run(*ON_L4, "--foreign", "1").stdout.split("\n")[3]


def test_json_tells_what_was_recalled_and_what_was_read(tmp_path):
    on_t4 = found("--model", QWEN_3B, "--gpu", "T4", "--max-model-len", "8192")
    assert on_t4["gpu"]["capability"] == {"cuda": 7.5, "source": "recalled"}
    assert on_t4["model"]["context"] == {"tokens": 128_000, "source": "recalled"}
    folder = model_folder(tmp_path / "gemma", GEMMA3)
    read = found("--model", str(folder), "--gpu", "H100", "--max-model-len", "8192")
    assert read["model"]["context"]["source"] == "config.json"


def test_a_plan_as_one_line_of_json():
    said = found(*ON_L4, "--image", "1024")
    assert said["gpu"] == {"name": "L4", "total_gib": 22.03, "foreign_gib": 0.0, "cards": 1} | {
        "capability": {"cuda": None, "source": "recalled"}
    }
    assert said["terms"]["loaded_gib"]["expected"] == pytest.approx(7.151, abs=0.001)
    assert said["kv"]["bytes_per_token"] == 36_864
    assert said["kv"]["tokens"]["low"] <= said["kv"]["tokens"]["expected"] <= said["kv"]["tokens"]["high"]
    [image] = said["images"]
    assert (image["size"], image["tokens"]) == ("1024x1024", 1371)
    assert said["verdict"]["outcome"] == "fits"
    assert said["advice"]["top_term"] == "weights"
    assert said["advice"]["top_term_flag"] == "--tensor-parallel-size 2"
    assert said["command"][:3] == ["vllm", "serve", QWEN_3B]
    assert said["ignored_flags"] == said["unplanned_flags"] == []


def test_a_pasted_line_and_flags_that_are_not_needed():
    line = f"vllm serve {QWEN_7B} --port 8000 --enable-lora --swap-space 4 --gpu-memory-utilization 0.22"
    result = run("--command", line, "--gpu", "A100-80GB", "--vllm-version", "v0.23.0")
    assert (result.exit_code, "--swap-space: vLLM 0.23.0 has no such flag" in result.stderr) == (2, True)
    line = line.replace("--swap-space 4 ", "")
    result = run("--command", line, "--gpu", "A100-80GB", "--vllm-version", "v0.23.0")
    assert result.exit_code == 1
    assert "Verdict: does not fit in kv_cache_sizing." in result.stdout
    assert "- Not needed for a plan: --port." in result.stdout
    assert "- Not planned, though memory depends on it: --enable-lora." in result.stdout
    assert "--limit-mm-per-prompt '{\"video\": 0}'" in result.stdout


def test_the_version_is_that_of_a_pasted_image_unless_it_is_given():
    line = f"docker run vllm/vllm-openai:v0.9.2 --model {QWEN_3B} --max-model-len 8192"
    assert found("--command", line, "--gpu", "L4")["vllm_version"] == "0.9.2"
    assert found("--command", line, "--gpu", "L4", "--vllm-version", "0.11")["vllm_version"] == "0.11.0"


def test_what_is_too_close_exits_1():
    result = run("--model", QWEN_7B, "--gpu", "L4", "--max-model-len", "32768", "--limit-mm-per-prompt.video", "0")
    assert result.exit_code == 1
    assert "Verdict: too close." in result.stdout
    assert "may fail" in result.stdout


def test_the_model_may_stand_alone_as_in_vllm_serve():
    said = found(QWEN_3B, "--gpu", "L4", "--max-model-len", "8192")
    assert said["model"]["name"] == QWEN_3B


def test_a_card_by_its_memory():
    said = found("--model", QWEN_3B, "--gpu-memory", "30", "--max-model-len", "8192")
    assert said["gpu"]["name"] == "a card of 30 GiB"
    assert found(*ON_L4, "--gpu-memory", "30")["gpu"]["total_gib"] == 30


@pytest.mark.parametrize("option", ["--gpu-memory", "--foreign"])
@pytest.mark.parametrize("amount", ["inf", "nan", "81920", "-1"])
def test_memory_that_no_card_has_exits_2(option, amount):
    result = run(*ON_L4, option, amount)
    assert (result.exit_code, type(result.exception)) == (2, SystemExit)
    assert f"{option} {float(amount):g}: write GiB of one card, " in " ".join(result.output.split())


def test_a_card_of_several_sizes_is_noted_as_which_it_was_taken():
    words = ("--model", QWEN_3B, "--max-model-len", "8192", "--gpu", "A100")
    assert (
        "A100 is taken as A100-40GB with 39.38 GiB: name another size, or say it with --gpu-memory."
        in run(*words).stdout
    )
    assert "is taken as" not in run(*words, "--gpu-memory", "79").stdout


def test_a_model_without_images_has_no_table_of_them():
    result = run("--model", "Qwen3-8B", "--gpu", "H100", "--max-model-len", "8192")
    assert "Images that the KV pool holds" not in result.stdout
    assert "no tower runs" in result.stdout


def test_where_no_flag_helps_none_is_shown():
    words = "--gpu H100 --max-model-len 8192 -tp 32 -q fp8 --enforce-eager --gpu-memory-utilization 0.95"
    result = run(
        "--model", "Llama-3.1-8B-Instruct", *words.split(), "--max-num-seqs", "1", "--max-num-batched-tokens", "2048"
    )
    assert "What one flag would change" not in result.stdout
    assert re.search(r"Largest term beside the KV pool: non-torch, 2\.10 GiB\.$", result.stdout, re.MULTILINE)


def test_a_folder(tmp_path):
    folder = model_folder(tmp_path / "gemma", GEMMA3)
    said = found("--model", str(folder), "--gpu", "H100", "--max-model-len", "8192")
    assert said["model"]["source"] == f"config.json in {folder}"
    assert said["kv"]["groups"] == 7


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--gpu", "L4"), "say which model: --model"),
        (("--model", QWEN_3B), "say which card: --gpu with one of A100-80GB"),
        (("--model", QWEN_3B, "--gpu", "L5"), "--gpu L5: not known by name. Known are A100-80GB"),
        (("--model", QWEN_3B, "--gpu", "Ascend 910B"), "only CUDA and ROCm cards are planned"),
        (("--model", "x/y", "--gpu", "L4"), "x/y is neither a folder"),
        ((*ON_L4, "--vllm-version", "new"), "--vllm-version new: write it as 0.11.0"),
        ((*ON_L4, "stray"), "stray: not understood; a flag of vLLM begins with two dashes"),
        ((*ON_L4, "--max-num-seq", "3"), "did you mean --max-num-seqs?"),
        ((*ON_L4, "--cards", "4"), "--cards is for --fit; a plan on several cards takes --tensor-parallel-size"),
        ((*ON_L4, "--zzzz"), "--zzzz is neither a flag of this command nor of vLLM, and resembles none"),
        (("--gpu", "L4", "--command", "vllm serve m --zzzz"), "--zzzz is not a flag of vLLM"),
        (("--modle", QWEN_3B, "--gpu", "L4"), "did you mean --model?"),
        (("--model", QWEN_3B, "--gpuu", "L4"), "did you mean --gpu?"),
        ((*ON_L4, "--comand=vllm"), "did you mean --command?"),
        ((*ON_L4, "--command", "vllm serve m"), "beside --command no other flags of vLLM are taken"),
        ((*ON_L4, "--image", "1x99999"), "its aspect ratio is 99999"),
        (("--model", "Llama-3.1-8B-Instruct", "--gpu", "H100", "--image", "512"), "no family is known that prices"),
        ((*ON_L4, "--image", "big"), "--image big: write a size in pixels, e.g. 1280x720"),
        ((*ON_L4, "--fit", "many users"), f'--fit "many users": write it as "{GOAL}"'),
        ((*ON_L4, "--fit", ""), f'--fit "": write it as "{GOAL}"'),
        ((*ON_L4, "-pp", "2"), "pipeline parallel is not planned"),
        ((*ON_L4, "--mm-processor-kwargs.max_pixels", "0"), "max_pixels must be a whole number above 0"),
        ((*ON_L4, "--gpu", "H100"), "several cards are planned side by side with --compare"),
        (("--compare", "3B", "--gpu", "L4", "--fit", GOAL), "--compare plans several models"),
        (("--cases", "nowhere.json"), "--cases nowhere.json:"),
    ],
)
def test_mistakes_say_what_to_write_and_exit_2(words, why):
    result = run(*words)
    assert result.exit_code == 2
    assert why in result.stderr


def test_a_goal_and_the_flags_that_it_needs():
    words = ("--model", QWEN_7B, "--gpu", "L4", "--vllm-version", "0.23", "--fit", GOAL)
    result = run(*words)
    assert result.exit_code == 0
    assert "Met at the lower limits: 8 users with 8,336 tokens each, 2 images of 1280x1280 among them." in result.stdout
    assert "an fp8 KV cache" in result.stdout
    assert "--kv-cache-dtype fp8" in result.stdout.splitlines()[-1]
    said = found(*words)
    assert said["is_met"]
    assert said["request_tokens"] == 8336
    assert [image["size"] for image in said["plan"]["images"]] == ["1280x1280"]


def test_one_user_with_one_image():
    result = run("--model", QWEN_3B, "--gpu", "L4", "--fit", "1 user, 1 image of 640x640, 1k context")
    assert ": 1 user with 1,568 tokens each, 1 image of 640x640 among them." in result.stdout


def test_a_goal_that_is_met_already_and_one_that_never_is():
    met = run("--model", "Qwen3-8B", "--gpu", "H100", "--fit", "8 users, 4096 context")
    assert "Needed for it: nothing changed." in met.stdout
    unmet = run("--model", "Qwen/Qwen2.5-VL-32B-Instruct", "--gpu", "L4", "--fit", GOAL)
    assert unmet.exit_code == 1
    assert "Not met, whatever is changed: 8 users with 8,336 tokens each" in unmet.stdout


@pytest.mark.parametrize(
    ("text", "goal"),
    [
        (GOAL, Goal(8, 4096, 2, Size(1280, 1280))),
        ("8 users, 2 images of 1280², 4k context", Goal(8, 4096, 2, Size(1280, 1280))),
        ("1 user and 1 image of 1920x1080 with context of 8192", Goal(1, 8192, 1, Size(1920, 1080))),
        ("16 users, 32K context", Goal(16, 32_768)),
        ("4 users each 0 images, 1.5k tokens of context", Goal(4, 1536)),
    ],
)
def test_how_a_goal_may_be_said(text, goal):
    assert read_goal(text) == goal


@pytest.mark.parametrize(
    "text",
    [
        "8 users", "4k context", "8 users, 4k context, 3 cats", "8 users, 2 images, 4k context", "8 users, . context",
        "8 users, 4..5k context", "0 users, 4k context", "1000000 users, 4k context", "8 users, 0 context",
        "8 users, 0.4 tokens of context",
    ],
)  # fmt: skip
def test_goals_that_lack_something(text):
    with pytest.raises(GoalError):
        read_goal(text)


def test_sizes():
    assert (read_size("640"), read_size("640x480")) == (Size(640, 640), Size(640, 480))
    for text in ("0", "640x0", "640x"):
        with pytest.raises(GoalError):
            read_size(text)


def test_models_side_by_side():
    result = run("--compare", "3B", "7B", "--gpu", "L4", "--max-model-len", "8192")
    assert result.exit_code == 0
    assert "none needs a larger encoder than another" in result.stdout
    assert "64 MiB for Qwen2.5-VL-3B-Instruct, 112 MiB for Qwen2.5-VL-7B-Instruct" in result.stdout


def test_models_and_cards_side_by_side_with_what_cannot_be_planned():
    words = ("--compare", QWEN_3B, "Qwen3-VL-8B-Instruct", "Llama-3.2-11B-Vision-Instruct",
             "--gpu", "L4", "--gpu", "H100", "--max-model-len", "8192")  # fmt: skip
    said = found(*words)
    assert len(said["plans"]) == 4
    assert said["refused"][0].startswith("Llama-3.2-11B-Vision-Instruct on L4: ")
    result = run(*words)
    assert "none needs a larger encoder" not in result.stdout
    assert "- Llama-3.2-11B-Vision-Instruct on H100: " in result.stdout


@pytest.mark.parametrize("sizes", [("32B", "72B"), ("1B",)])
def test_where_none_of_them_fits_it_exits_1(sizes):
    words = ("--compare", *sizes, "--gpu", "L4", "--max-model-len", "8192")
    if sizes == ("1B",):
        words = ("--compare", "Llama-3.2-11B-Vision-Instruct", "--gpu", "L4")
    assert run(*words).exit_code == run(*words, "--json").exit_code == 1
    assert run("--compare", "3B", "32B", "--gpu", "L4", "--max-model-len", "8192").exit_code == 0


def test_sizes_of_another_series():
    said = found("--compare", "2B", "8B", "--model", "Qwen/Qwen3-VL-8B-Instruct", "--gpu", "H100")
    assert [plan["model"]["name"] for plan in said["plans"]] == [
        "Qwen/Qwen3-VL-2B-Instruct",
        "Qwen/Qwen3-VL-8B-Instruct",
    ]


def test_settings_that_follow_load_and_mean_the_same_budget(tmp_path):
    file = tmp_path / "gateway.yaml"
    words = ("--model", QWEN_7B, "--gpu", "L4", "--fit", GOAL)
    result = run(*words, "--write", str(file), "--upstream", "http://vllm:8000")
    assert result.exit_code == 0
    assert f"Written: {file}" in result.stderr
    planned = found(*words)["plan"]
    settings = load(file_text=file.read_text(), file_name=str(file)).settings
    [upstream] = upstreams_of(settings)
    assert upstream.url == "http://vllm:8000/"
    assert upstream.kv_blocks == planned["kv"]["blocks"]["expected"] - 1
    assert upstream.sequences == int(planned["command"][planned["command"].index("--max-num-seqs") + 1])
    assert settings.budget.encoder_tokens == planned["encoder_profile"]["budget_tokens"]
    assert (settings.images.max_forwarded, settings.resize.max_tokens_per_image) == (2, 2116)
    [model] = models_of(settings)
    assert (model.name, model.family.max_pixels) == (QWEN_7B, 1288 * 1288)


def test_settings_of_a_model_without_images(tmp_path):
    file = tmp_path / "gateway.yaml"
    run("--model", "Qwen3-8B", "--gpu", "H100", "--max-model-len", "8192", "--write", str(file))
    settings = load(file_text=file.read_text(), file_name=str(file)).settings
    assert settings.budget.encoder_tokens is None
    assert settings.models[0].family is None
    assert settings.budget.sequences == 1024


def test_settings_that_are_there_are_not_replaced(tmp_path):
    file = tmp_path / "gateway.yaml"
    file.write_text("queue: {requests: 1}\n")
    result = run(*ON_L4, "--write", str(file))
    assert result.exit_code == 2
    assert "the file is there already, and settings are not replaced" in result.stderr
    assert file.read_text() == "queue: {requests: 1}\n"
    assert run(*ON_L4, "--html", str(tmp_path)).exit_code == 2


def test_settings_that_the_gateway_would_not_take_are_not_written(tmp_path):
    file = tmp_path / "gateway.yaml"
    result = run(*ON_L4, "--write", str(file), "--upstream", "nonsense")
    assert result.exit_code == 2
    assert "upstream.url" in result.stderr
    assert "must be an address such as http://127.0.0.1:8000" in " ".join(result.stderr.split())
    assert not file.exists()


def test_a_plan_that_does_not_fit_has_no_settings(tmp_path):
    file = tmp_path / "gateway.yaml"
    result = run("--model", QWEN_7B, "--gpu", "T4", "--max-model-len", "8192", "--write", str(file))
    assert (result.exit_code, file.exists()) == (1, False)
    assert f"--write {file}: not written, since the plan does not fit" in result.stderr


class Page(HTMLParser):
    """What a page refers to, and its text."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.references, self.words = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.references += [value for name, value in attributes if name in {"src", "href", "data", "action"}]

    def handle_data(self, data):
        self.words.append(data)


def test_a_page_that_needs_nothing_else(tmp_path):
    file = tmp_path / "plan.html"
    assert run(*ON_L4, "--html", str(file)).exit_code == 0
    text = file.read_text()
    page = Page(text)
    assert (page.references, "script" in page.tags, "url(" in text, "@import" in text) == ([], False, False, False)
    assert "Images that the KV pool holds" in page.words
    assert run(*ON_L4, "--html", str(file)).exit_code == 0  # a page is written anew
    assert run("--compare", "3B", "7B", "--gpu", "L4", "--max-model-len", "8192", "--html", str(file)).exit_code == 0
    assert Page(file.read_text()).tags.count("h1") == 2


def test_the_line_of_the_page_can_be_pasted():
    plan = make_plan(
        spec(QWEN_7B), card("L4"), Flags(max_model_len=8192, limit_mm_per_prompt={"video": 0}), Version(0, 23)
    )
    assert any("--limit-mm-per-prompt '{\"video\": 0}'" in words for words in Page(plan_page([plan], [[]])).words)


def test_names_are_text_in_the_page():
    nasty = ModelSpec("<script>alert(1)</script>", "files", spec("Qwen3-8B").text)
    plan = make_plan(nasty, card("L4"), Flags(max_model_len=8192, quantization="fp8"), Version(0, 23))
    page = Page(plan_page([plan], [[]]))
    assert "script" not in page.tags
    assert any("<script>alert(1)</script> on 1 x L4" in words for words in page.words)


class TestTheHub:
    """A hub of the test's own, which has one model."""

    MODEL = "org/model-VL"

    @pytest.fixture(autouse=True)
    def _hub(self, monkeypatch, tmp_path):
        monkeypatch.setattr(importlib.import_module("huggingface_hub.constants"), "HF_HUB_OFFLINE", False)
        monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
        with hub_server({self.MODEL: {"config.json": QWEN25}}) as server:
            monkeypatch.setenv("HF_ENDPOINT", server.url)
            yield

    def test_is_asked_where_that_is_wanted(self):
        wanted = ("--model", self.MODEL, "--gpu", "H100", "--max-model-len", "8192")
        told = run(*wanted)
        assert told.exit_code == 2
        assert "--hub fetches the files of one that is on the hub" in " ".join(told.output.split())
        assert run(*wanted, "--hub").exit_code == 0

    def test_says_what_to_do_where_it_has_not_got_it(self):
        told = run("--model", "org/none", "--gpu", "H100", "--hub")
        assert told.exit_code == 2
        assert "the hub: org/none is not there, or not for this token" in " ".join(told.output.split())


def test_a_comparison_names_flags_that_no_plan_looks_at():
    words = ("--compare", "3B", "7B", "--gpu", "L4", "--max-model-len", "8192", "--port", "80", "--enable-lora")
    said = run(*words).stdout
    assert "- Not needed for a plan: --port.\n" in said
    assert "- Not planned, though memory depends on it: --enable-lora.\n" in said
    compared = found(*words)
    assert (compared["ignored_flags"], compared["unplanned_flags"]) == (["--port"], ["--enable-lora"])


def test_a_goal_on_several_cards_tells_what_other_numbers_of_them_lose():
    words = ("--model", "Qwen/Qwen2.5-VL-32B-Instruct", "--gpu", "A100-40GB", "--cards", "4", "--fit", GOAL)
    said = run(*words).stdout
    assert "With --tensor-parallel-size 1: not met.\n" in said
    assert re.search(r"With --tensor-parallel-size 2: met too, needed: .*weights in fp8", said)
    assert "Fewer cards for each server leave the others for replicas of it" in said
    assert [each["cards"] for each in found(*words)["other_cards"]] == [1, 2]


def test_a_manifest_may_be_pasted():
    manifest = f'image: vllm/vllm-openai:v0.11.0\nargs: ["--model={QWEN_3B}", "--max-model-len", "8192"]'
    said = found("--gpu", "L4", "--command", manifest)
    assert (said["vllm_version"], said["model"]["name"]) == ("0.11.0", QWEN_3B)
