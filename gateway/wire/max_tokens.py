"""A lower bound on the answer's length, spliced into a body where vLLM looks for it."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from gateway.domain.request import Span
from gateway.wire.read import decode_body
from gateway.wire.spans import SpanFinder
from gateway.wire.splice import Splice


class AnswerCap(NamedTuple):
    """The most tokens of each answer from now on, and the splice that says so to vLLM."""

    tokens: int
    splice: Splice


Members = dict[str, msgspec.Raw]

_decoder = msgspec.json.Decoder(Members)
_number_decoder = msgspec.json.Decoder(int)


def cap_answer(
    body: bytes | bytearray,
    asked_tokens: int | None,
    most_tokens: int,
    keys: Sequence[str] = ("max_tokens",),
    least_of: Callable[[Members], int] | None = None,
) -> AnswerCap | None:
    """What brings the answer of `body` (a JSON object with members) under `most_tokens`; None where it is already.

    `asked_tokens` is the client's own bound, None where it has none. Of `keys` vLLM reads the first that is not null;
    where none is there the last is written. Never below `least_of` the body's members, or without that `min_tokens`:
    vLLM would refuse it. Raises GatewayError invalid_json.
    """
    if asked_tokens is not None and asked_tokens <= most_tokens:
        return None
    members = decode_body(_decoder, body)
    tokens = max(most_tokens, number_in(members, "min_tokens") if least_of is None else least_of(members))
    if asked_tokens is not None and asked_tokens <= tokens:
        return None
    return AnswerCap(tokens, _bound(body, members, keys, b"%d" % tokens))


def number_in(members: Members, key: str) -> int:
    """A whole number; 0 where there is none, or something else for vLLM to judge."""
    try:
        return _number_decoder.decode(members.get(key, b"0"))
    except msgspec.DecodeError:
        return 0


def _bound(body: bytes | bytearray, members: Members, keys: Sequence[str], number: bytes) -> Splice:
    """In the place that vLLM reads; a key that is not there is written before all others."""
    there = [members[key] for key in keys if key in members]
    if there:
        read = next((raw for raw in there if bytes(raw) != b"null"), there[-1])
        return Splice(SpanFinder(body).span_of(read), number)
    start = body.index(b"{") + 1
    return Splice(Span(start, start), msgspec.json.encode(keys[-1]) + b":" + number + b",")
