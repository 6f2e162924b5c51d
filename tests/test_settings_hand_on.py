import re
from pathlib import Path

import pytest

from gateway.domain.priority import Priority
from gateway.policies import ByteBudgets, policies_of
from gateway.settings_sources import load
from gateway.wire.hand_on import NOTHING, Carried
from tests.support.settings_mistakes import mistakes

HAND_ON = "hand_on: {headers: {x-llm-d-inference-objective: objective}, objectives: {batch: vlm-batch}}"


def policy_of(text):
    settings = load(file_text=text, file_name="g.yaml").settings
    return policies_of(settings, ByteBudgets.of(settings.budget, 1 << 33)).hand_on


def test_a_header_says_what_it_carries():
    policy = policy_of(HAND_ON)
    assert policy.headers == {"x-llm-d-inference-objective": Carried.OBJECTIVE}
    assert policy.objectives == {each: each.label for each in Priority} | {Priority.BATCH: "vlm-batch"}


@pytest.mark.parametrize("text", ["", f"mode: shadow\n{HAND_ON}"])
def test_by_default_and_in_shadow_mode_nothing_is_handed_on(text):
    assert not policy_of(text).headers
    assert policy_of("mode: shadow") is NOTHING


def test_one_header_can_be_named_in_the_environment():
    loaded = load(environment={"GATEWAY_HAND_ON__HEADERS": "{x-user-id: tenant}"})
    assert loaded.settings.hand_on.headers == {"x-user-id": Carried.TENANT}


def test_the_page_about_routers_has_every_word_and_headers_that_can_be_set():
    page = (Path(__file__).parents[1] / "docs/routers.md").read_text()
    (example,) = re.findall(r"```yaml\n(hand_on:.*?)```", page, re.DOTALL)
    assert policy_of(example).headers["x-llm-d-inference-fairness-id"] is Carried.TENANT
    (words,) = re.findall(r"\| word \| what the header says \|\n(.*?)\n\n", page, re.DOTALL)
    assert set(re.findall(r"`(\w+)`", "\n".join(row.split("|")[1] for row in words.splitlines()))) == set(Carried)
    named = set(re.findall(r"`(x-[a-z0-9-]*[a-z0-9])`", page)) - {"x-request-id"}
    assert {"x-llm-d-inference-objective", "x-user-id", "x-vllm-priority"} <= named
    assert policy_of(f"hand_on: {{headers: {dict.fromkeys(named, 'tenant')}}}").headers.keys() == named


@pytest.mark.parametrize("name", ["authorization", "X-User-Id", "x-", "x-user_id", "x-a: b", "content-length"])
def test_a_name_that_is_no_header_of_a_router_is_refused(name):
    (line,) = mistakes(file_text=f"hand_on: {{headers: {{{name!r}: tenant}}}}", file_name="g.yaml")
    assert "must be a header's name in lower case that begins with x-" in line


@pytest.mark.parametrize("name", ["x-request-id", "x-api-key", "x-data-parallel-rank"])
def test_a_name_that_has_a_meaning_already_is_refused(name):
    (line,) = mistakes(file_text=f"hand_on: {{headers: {{{name}: tenant}}}}", file_name="g.yaml")
    assert "means something else to vLLM, or is the gateway's own" in line


def test_what_nothing_is_known_of_cannot_be_handed_on():
    (line,) = mistakes(file_text="hand_on: {headers: {x-cost: price}}", file_name="g.yaml")
    assert line.startswith("hand_on.headers.x-cost (file g.yaml): Input should be 'tenant', 'objective'")


def test_a_word_for_a_class_is_one_word():
    (line,) = mistakes(file_text="hand_on: {objectives: {batch: two words}}", file_name="g.yaml")
    assert line.startswith("hand_on.objectives.batch (file g.yaml)")
