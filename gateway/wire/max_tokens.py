"""A lower bound on the answer's length, spliced into a body where vLLM looks for it."""

from typing import Any, NamedTuple

import msgspec

from gateway.domain.request import Span
from gateway.wire.read import ABSENT, decode_body
from gateway.wire.spans import SpanFinder
from gateway.wire.splice import Splice


class AnswerCap(NamedTuple):
    """The most tokens of each answer from now on, and the splice that says so to vLLM."""

    tokens: int
    splice: Splice


class _Body(msgspec.Struct):
    max_tokens: msgspec.Raw = ABSENT
    max_completion_tokens: msgspec.Raw = ABSENT
    min_tokens: Any = None


_decoder = msgspec.json.Decoder(_Body)


def cap_answer(
    body: bytes | bytearray, asked_tokens: int | None, most_tokens: int, *, is_chat: bool
) -> AnswerCap | None:
    """What brings the answer of `body` (a JSON object with members) under `most_tokens`; None where it is already.

    `asked_tokens` is the client's own bound, None where it has none. Never below `min_tokens`, which vLLM would refuse.
    Only chats have `max_completion_tokens`, which wins there unless it is null. Raises GatewayError invalid_json.
    """
    if asked_tokens is not None and asked_tokens <= most_tokens:
        return None
    fields = decode_body(_decoder, body)
    tokens = max(most_tokens, fields.min_tokens) if isinstance(fields.min_tokens, int) else most_tokens
    if asked_tokens is not None and asked_tokens <= tokens:
        return None
    return AnswerCap(tokens, _bound(body, fields, b"%d" % tokens, is_chat=is_chat))


def _bound(body: bytes | bytearray, fields: _Body, number: bytes, *, is_chat: bool) -> Splice:
    """In the place that vLLM reads; a key that is not there is written before all others."""
    newer = fields.max_completion_tokens if is_chat else ABSENT
    is_newer_read = newer is not ABSENT and bytes(newer) != b"null"
    read = newer if is_newer_read or fields.max_tokens is ABSENT else fields.max_tokens
    if read is not ABSENT:
        return Splice(SpanFinder(body).span_of(read), number)
    start = body.index(b"{") + 1
    return Splice(Span(start, start), b'"max_tokens":' + number + b",")
