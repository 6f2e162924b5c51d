"""Changing a body by replacing spans of it: what is not replaced is neither copied nor spelled anew."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gateway.domain.request import Span


@dataclass(frozen=True, slots=True)
class Splice:
    """`replacement` takes the place of `span`; an empty span is an insertion before its offset."""

    span: Span
    replacement: bytes


def splice(body: bytes | bytearray, splices: Iterable[Splice]) -> list[bytes | bytearray | memoryview]:
    """The new body in pieces, in order; untouched parts are views of `body`. No splices: the body alone.

    An insertion and a replacement may start at one offset: the insertion comes first. AssertionError where two spans
    overlap, two insertions have one offset, or a span lies outside the body.
    """
    ordered = sorted(splices, key=lambda item: item.span)
    if not ordered:
        return [body] if body else []
    _check(ordered, len(body))
    view = memoryview(body)
    pieces: list[bytes | bytearray | memoryview] = []
    end = 0
    for item in ordered:
        pieces += [view[end : item.span.start], item.replacement]
        end = item.span.end
    pieces.append(view[end:])
    return [piece for piece in pieces if len(piece)]


def _check(ordered: Sequence[Splice], body_bytes: int) -> None:
    previous = None
    end = 0
    for item in ordered:
        assert item.span != previous, "two insertions at one offset have no order"
        assert end <= item.span.start <= item.span.end <= body_bytes, "splices overlap or leave the body"
        previous, end = item.span, item.span.end
