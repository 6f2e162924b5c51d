"""The declared headers are those that the code reads and writes."""

import re

import pytest

from gateway.domain.errors import Code, GatewayError
from gateway.domain.outcome import Fate
from gateway.upstream.headers import request_headers
from gateway.wire.declare import shadow_headers, success_headers
from gateway.wire.errors import error_headers
from gateway.wire.headers import HEADERS, HELD_BACK, Carrier
from tests.support.markdown import ROOT

# Programs of their own that only read headers, and a header of Anthropic's client that stands in a prompt.
_ASIDE = ("emulator", "demo")
_OF_PROMPTS = {"x-anthropic-billing-header"}
_OF_OTHERS = {"x-real-ip", "x-content-type-options"}  # what proxies write, and what browsers are told with the page
_COMPOSED = {"x-gateway-shadow-images", "x-gateway-shadow-pressure"}


def named(*carriers):
    return {each.name for each in HEADERS if each.carrier in carriers}


def test_every_header_that_the_code_spells_is_declared_and_no_other():
    sources = [path for path in (ROOT / "gateway").rglob("*.py") if not set(_ASIDE) & set(path.parts)]
    text = "".join(path.read_text() for path in sources if path.name != "headers.py" or path.parent.name != "wire")
    spelled = set(re.findall(r'"(x-[a-z-]+[a-z])"', text)) - _OF_PROMPTS - _OF_OTHERS
    held_back = {name for name in HELD_BACK if name.startswith("x-")}
    declared = {name for name in named(*Carrier) | held_back if name.startswith("x-")}
    assert spelled == declared - _COMPOSED


def test_what_answers_and_refusals_carry_is_declared_for_them():
    success = success_headers(
        prompt_tokens=1, visual_tokens=1, queue_seconds=0.0, trimmed=[0], rungs="x", served="m", media_tokens=1
    )
    assert {name.decode() for name, _ in success} <= named(Carrier.SUCCESS)
    refused = GatewayError(Code.RATE_LIMIT_EXCEEDED, "", retry_after_seconds=2.0, is_promise=True)
    told = {name.decode() for name, _ in error_headers(refused, b"", 0.0)} - {"content-type", "content-length"}
    assert told <= named(Carrier.REFUSAL)
    shadow = shadow_headers(Fate.ADMITTED, None, 0.0, trimmed=[0], rungs="x")
    assert {name.decode() for name, _ in shadow} == named(Carrier.SHADOW)


def test_what_vllm_gets_and_does_not_get_is_as_declared():
    sent = [(name.encode(), b"x-listed" if name == "connection" else b"1") for name in HELD_BACK]
    kept = request_headers([*sent, (b"x-listed", b"1"), (b"x-other", b"1")], request_id="gw-1", upstream_key="key")
    assert {name for name, _ in kept} == {"x-other"} | named(Carrier.TO_VLLM)


@pytest.mark.parametrize("header", HEADERS, ids=lambda header: f"{header.carrier}-{header.name}")
def test_each_is_explained(header):
    assert header.example
    assert header.help.endswith(".")
    assert header.name == header.name.lower()
