"""Where a body is parsed, and what is refused before that."""

import json
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest

from gateway.domain import fields
from gateway.domain.errors import GatewayError
from gateway.domain.fields import FieldRule, Treatment
from gateway.domain.priority import Priority
from gateway.domain.request import VisionRequest
from gateway.pipeline import reading
from gateway.pipeline.exchange import Exchange
from gateway.pipeline.reading import read_request
from gateway.wire.dialects.table import DIALECTS
from gateway.wire.routes import classify

PATHS = (
    *("/v1/chat/completions", "/v1/chat/completions/batch", "/v1/messages"),
    *("/v1/completions", "/v1/embeddings", "/detokenize"),
)

RULES = SimpleNamespace(policies=SimpleNamespace(fields=fields.RULES))


def arrived(path, body):
    return Exchange("id", "POST", path, b"", (), 0.0, route=classify("POST", path), body=body)


@pytest.mark.parametrize("path", PATHS)
async def test_every_route_looks_before_it_parses(path):
    with pytest.raises(GatewayError, match="200000 opening brackets"):
        await read_request(RULES, arrived(path, b"[" * 200_000))


@pytest.mark.parametrize(
    ("messages", "is_beside"),
    [(1, False), (3_000, True)],
    ids=["a large picture", "many pieces"],
)
async def test_what_parses_slowly_is_parsed_beside_the_loop(monkeypatch, messages, is_beside):
    threads = []

    def parse(body):
        threads.append(threading.current_thread())
        return VisionRequest(str(len(json.loads(body)["messages"])))

    exchange = arrived(
        "/v1/chat/completions", json.dumps({"messages": ["x" * 30, 1, 1] * messages, "x": "A" * 300_000}).encode()
    )
    monkeypatch.setitem(reading.DIALECTS, exchange.route.kind, replace(DIALECTS[exchange.route.kind], parse=parse))
    assert await read_request(RULES, exchange) == exchange.request == VisionRequest(str(3 * messages))
    assert (threads[0] is not threading.main_thread()) is is_beside


@pytest.mark.parametrize(
    ("header", "body", "expected"),
    [
        (None, {}, Priority.DEFAULT),
        (None, {"priority": 4}, Priority.BATCH),
        (None, {"priority": -4}, Priority.INTERACTIVE),
        (Priority.BATCH, {"priority": -4}, Priority.BATCH),
    ],
)
async def test_the_body_says_how_urgent_it_is_where_no_header_does(header, body, expected):
    exchange = arrived("/v1/completions", json.dumps({"prompt": "a"} | body).encode())
    exchange.asked_priority, exchange.priority = header, exchange.tenant.priority_of(header)
    await read_request(RULES, exchange)
    assert exchange.priority is expected


async def test_fields_are_brought_down_before_anything_is_priced():
    exchange = arrived("/v1/completions", json.dumps({"prompt": "a", "n": 9, "best_of": 9}).encode())
    rules = SimpleNamespace(policies=SimpleNamespace(fields=fields.RULES | {"n": FieldRule(Treatment.CLAMP, 4)}))
    request = await read_request(rules, exchange)
    assert request.n == exchange.request.n == 4
    assert {clamp.name: clamp.number for clamp in exchange.clamps} == {"n": 4, "best_of": 1}


async def test_a_field_that_is_refused_ends_it():
    with pytest.raises(GatewayError, match="`prompt_logprobs` makes the engine compute"):
        await read_request(RULES, arrived("/v1/completions", b'{"prompt": "a", "prompt_logprobs": 0}'))
