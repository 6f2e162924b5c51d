"""The id of an answer is noted before its client has it."""

import pytest

from gateway.domain.outcome import Ending
from gateway.domain.request import VisionRequest
from gateway.domain.stored_answers import StoredAnswers
from gateway.pipeline.exchange import Exchange
from gateway.pipeline.stored import expect_id, goes_on, note_id
from gateway.wire.response_stream import ResponsesObserver
from gateway.wire.routes import Kind, Route

HEAD = b'{"id":"resp_1","created_at":1,'


class Parts:
    def __init__(self):
        self.stored = StoredAnswers()


class Backend:
    name = "first"
    models = None


def answering(status=200, **fields):
    route = Route(Kind.RESPONSES, "/v1/responses")
    exchange = Exchange("id", "POST", "/v1/responses", b"", (), 0.0, route=route, owner="anna")
    exchange.goes_to(Backend())
    exchange.request = VisionRequest(None, **({"is_stored": True} | fields))
    expect_id(exchange, status)
    return exchange


def fed(exchange, *chunks):
    parts = Parts()
    for chunk in chunks:
        if exchange.answer_id is not None:
            note_id(parts, exchange, exchange.answer_id, chunk)
    return parts.stored


@pytest.mark.parametrize("cut", [1, 6, 12, len(HEAD)])
def test_its_owner_is_known_from_its_first_bytes(cut):
    exchange = answering()
    stored = fed(exchange, HEAD[:cut], HEAD[cut:])
    assert (stored.find("resp_1", "anna").server, exchange.answer_name, exchange.answer_id) == ("first", "resp_1", None)


def test_an_answer_without_an_id_is_nobodys():
    exchange = answering()
    assert (len(fed(exchange, b"x" * 4000)), exchange.answer_id) == (0, None)


@pytest.mark.parametrize("fields", [{"status": 400}, {"is_stored": False}])
def test_nothing_is_looked_for_where_nothing_is_stored(fields):
    assert answering(**fields).answer_id is None


class TestWhetherAnAnswerGoesOnWithoutItsClient:
    def test_only_in_the_background_and_once_it_has_a_name(self):
        exchange = answering(is_background=True)
        assert not goes_on(exchange, Ending.DONE)
        fed(exchange, HEAD)
        assert goes_on(exchange, Ending.DONE)
        assert goes_on(exchange, Ending.IGNORED)
        assert not goes_on(exchange, Ending.DROPPED)

    def test_not_in_the_foreground(self):
        exchange = answering()
        fed(exchange, HEAD)
        assert not goes_on(exchange, Ending.IGNORED)

    def test_not_once_its_stream_is_complete(self):
        exchange = answering(is_background=True)
        fed(exchange, HEAD)
        exchange.observer = ResponsesObserver()
        assert goes_on(exchange, Ending.IGNORED)
        exchange.observer.feed(b"event: response.completed\ndata: {}\n\n")
        assert not goes_on(exchange, Ending.DONE)
