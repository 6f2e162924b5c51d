"""Answers that vLLM stores for the Responses API: whose they are, where they are, and what goes on behind them."""

from gateway.domain.outcome import Ending
from gateway.domain.request import VisionRequest
from gateway.domain.stored_answers import StoredAnswer, refuse_by_policy
from gateway.pipeline.exchange import Exchange, Parts
from gateway.wire.response_stream import AnswerId

_FIRST_ERROR = 400


def look_behind(parts: Parts, exchange: Exchange, request: VisionRequest) -> None:
    """What goes on behind a stored answer goes to the server that has it. Raises GatewayError 400 or 404."""
    refuse_by_policy(parts.policies.storing, request.previous_id, is_background=request.is_background)
    if request.previous_id is not None:
        go_to_its_server(parts, exchange, request.previous_id, "previous_response_id")


def go_to_its_server(parts: Parts, exchange: Exchange, response_id: str, param: str) -> None:
    """Raises GatewayError 404 for an answer that is not the owner's."""
    name = parts.stored.find(response_id, exchange.owner, param).server
    exchange.goes_to(next(backend for backend in parts.backends if backend.name == name))


def expect_id(exchange: Exchange, status: int) -> None:
    """The head of an answer of this API came; in what follows stands its id."""
    request = exchange.request
    if status < _FIRST_ERROR and request is not None and request.is_stored:
        exchange.answer_id = AnswerId()


def note_id(parts: Parts, exchange: Exchange, answer_id: AnswerId, chunk: bytes) -> None:
    """Before the client has it: so nobody else can ask for it first."""
    answer_id.feed(chunk)
    if answer_id.is_over:
        exchange.answer_id = None
    if answer_id.found is not None:
        exchange.answer_name = answer_id.found
        parts.stored.keep(answer_id.found, StoredAnswer(exchange.owner, exchange.backend.name))


def goes_on(exchange: Exchange, ending: Ending) -> bool:
    """The engine makes the answer although nobody waits for it any more."""
    request, observer = exchange.request, exchange.observer
    if exchange.answer_name is None or request is None or not request.is_background:
        return False
    return ending is not Ending.DROPPED and (observer is None or not observer.is_done)
