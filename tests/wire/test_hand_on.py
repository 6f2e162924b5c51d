"""What a router between the gateway and vLLM is told of a request."""

from dataclasses import replace
from math import inf

import pytest

from gateway.domain.cost import RequestCost
from gateway.domain.growth import OutputGrowth
from gateway.domain.priority import Priority
from gateway.domain.quantities import Amounts, Bounds
from gateway.wire.hand_on import Carried, HandOn, Known, own_headers

COST = RequestCost(
    prompt_tokens=Bounds(100, 120, 150),
    text_tokens=Bounds(20, 40, 70),
    visual_tokens=80,
    output_tokens=16,
    prompts=1,
    answers=3,
    amounts=Amounts(kv_blocks=12),
    growth=OutputGrowth(),
)
KNOWN = Known("team-a", Priority.INTERACTIVE, 1.25, COST, b"\x0a\xff")


def told(carried, known=KNOWN, **objectives):
    words = {Priority[name.upper()]: word for name, word in objectives.items()}
    return own_headers(HandOn({"x-told": carried}, words), known)["x-told"]


@pytest.mark.parametrize(
    ("carried", "text"),
    [
        (Carried.TENANT, "team-a"),
        (Carried.OBJECTIVE, "interactive"),
        (Carried.VLLM_PRIORITY, "-1"),
        (Carried.FIRST_TOKEN_MS, "1250"),
        (Carried.PROMPT_TOKENS, "120"),
        (Carried.VISUAL_TOKENS, "80"),
        (Carried.OUTPUT_TOKENS, "48"),
        (Carried.KV_BLOCKS, "12"),
        (Carried.FIRST_IMAGE, "0aff"),
    ],
)
def test_each_is_a_word_or_a_whole_number(carried, text):
    assert told(carried) == text


def test_all_can_be_told():
    assert None not in own_headers(HandOn({f"x-{each}": each for each in Carried}), KNOWN).values()


def test_what_is_not_known_is_a_name_without_a_text():
    unknown = replace(KNOWN, tenant="", priority=Priority.DEFAULT, first_token_seconds=inf, first_image=None)
    headers = own_headers(HandOn({f"x-{each}": each for each in Carried}), unknown)
    assert [name for name, text in headers.items() if text is None] == ["x-first_token_ms", "x-first_image"]
    assert (headers["x-tenant"], headers["x-objective"], headers["x-vllm_priority"]) == ("default", "default", "0")


def test_a_class_goes_by_the_word_that_was_set_for_it():
    assert told(Carried.OBJECTIVE, interactive="vlm-premium") == "vlm-premium"
    assert told(Carried.OBJECTIVE, batch="sheddable") == "interactive"


def test_vllm_serves_lower_numbers_first():
    numbers = [int(told(Carried.VLLM_PRIORITY, replace(KNOWN, priority=each))) for each in Priority]
    assert numbers == [-2, -1, 0, 1]


@pytest.mark.parametrize("name", ["Büro 1", "a\r\nx-evil: 1", "100%"])
def test_a_tenants_name_is_safe_in_a_header(name):
    text = told(Carried.TENANT, replace(KNOWN, tenant=name))
    assert text.isascii()
    assert text.isprintable()
    assert " " not in text


def test_who_is_late_already_has_a_moment_left():
    assert told(Carried.FIRST_TOKEN_MS, replace(KNOWN, first_token_seconds=-3.0)) == "1"
