"""`/score` and `/rerank` in all their spellings: queries held against documents, each a text or a list of parts.

How a model scores is not known here (entrypoints/pooling/scoring/io_processor.py): one that embeds sees a single query
once, one that reads pairs sees it before each document. So each query and document is a sequence, what a query says
once is certain, and what it would say once more for each document is not.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec

from gateway.domain.errors import Code, GatewayError
from gateway.domain.request import MessageOutline, Path, VisionRequest
from gateway.wire import read
from gateway.wire.chat_messages import read_content
from gateway.wire.content import Part
from gateway.wire.dialects.pooling import PoolingFields, opening_of_pooled, pooled_request
from gateway.wire.dialects.record import Dialect
from gateway.wire.images import Images
from gateway.wire.prompts import Prompts, too_many_prompts


class _Parts(msgspec.Struct):
    content: list[Part | str]


_Entry = str | _Parts
_Entries = str | _Parts | list[_Entry]


class _ScoringFields(PoolingFields, kw_only=True):
    instruction: Any = None


class _Score(_ScoringFields, kw_only=True):
    queries: _Entries | None = None
    documents: _Entries | None = None
    items: _Entries | None = None
    data_1: _Entries | None = None
    data_2: _Entries | None = None
    text_1: _Entries | None = None
    text_2: _Entries | None = None


class _Rerank(_ScoringFields, kw_only=True):
    query: _Entry
    documents: _Entries


_score_decoder = msgspec.json.Decoder(_Score)
_rerank_decoder = msgspec.json.Decoder(_Rerank)

_PAIRS = (("queries", "documents"), ("queries", "items"), ("data_1", "data_2"), ("text_1", "text_2"))
_NAMES = tuple(dict.fromkeys(name for pair in _PAIRS for name in pair))


class _Side(NamedTuple):
    """What stands under one of the two names. A single entry is no list, and so has no index in its path."""

    name: str
    entries: Sequence[_Entry]
    is_list: bool

    @classmethod
    def of(cls, name: str, value: _Entries) -> "_Side":
        return cls(name, value, True) if isinstance(value, list) else cls(name, [value], False)  # noqa: FBT003


def parse_score(body: bytes | bytearray) -> VisionRequest:
    """Raises GatewayError invalid_json, invalid_request, or what is wrong with a part."""
    parsed = read.decode_body(_score_decoder, body)
    given = tuple(name for name in _NAMES if getattr(parsed, name) is not None)
    if given not in _PAIRS:
        pairs = ", or ".join(" and ".join(f"`{name}`" for name in pair) for pair in _PAIRS)
        raise GatewayError(
            Code.INVALID_REQUEST, f"Send {pairs}, and of these names no other.", param=given[-1] if given else "queries"
        )
    first, second = (_Side.of(name, getattr(parsed, name)) for name in given)
    if len(first.entries) > 1 and len(first.entries) != len(second.entries):
        raise GatewayError(
            Code.INVALID_REQUEST,
            f"There must be one of `{first.name}`, or as many as of `{second.name}`.",
            param=first.name,
        )
    return _request(body, parsed, first, second)


def parse_rerank(body: bytes | bytearray) -> VisionRequest:
    """Raises GatewayError likewise."""
    parsed = read.decode_body(_rerank_decoder, body)
    return _request(body, parsed, _Side.of("query", parsed.query), _Side.of("documents", parsed.documents))


def _request(body: bytes | bytearray, parsed: _ScoringFields, first: _Side, second: _Side) -> VisionRequest:
    parsed.refuse_odd_padding()
    for side in (first, second):
        if not side.entries:
            raise GatewayError(Code.INVALID_REQUEST, f"`{side.name}` is empty.", param=side.name)
    sequences = len(first.entries) + len(second.entries)
    if sequences > read.MOST_SEQUENCES:
        raise too_many_prompts(sequences, second.name, read.MOST_SEQUENCES)
    images = Images(body, second.name)
    queries = _outlines(first, images)
    copies = len(second.entries) if len(queries) == 1 else 1
    images.found[:] = [replace(image, copies=copies) for image in images.found]
    documents = _outlines(second, images)
    # What the query says once more for each document, and what a template writes before each pair.
    repeated = (copies - 1) * queries[0].text_bytes + len(documents) * _instruction_bytes(parsed)
    outlines = (*queries, *documents)
    with_images = [outline._replace(text_bytes=0) for outline in outlines if outline.images]
    return pooled_request(
        body,
        parsed,
        Prompts(sequences, text_bytes=repeated + sum(outline.text_bytes for outline in outlines)),
        with_images,
        (1,) * len(with_images),
        images,
        uncertain_bytes=repeated,
        name=second.name,
    )


def _instruction_bytes(parsed: _ScoringFields) -> int:
    return read.utf8_bytes(read.string(parsed.instruction, "instruction") or "")


def _outlines(side: _Side, images: Images) -> list[MessageOutline]:
    return [_outline(entry, side, index, images) for index, entry in enumerate(side.entries)]


def _outline(entry: _Entry, side: _Side, index: int, images: Images) -> MessageOutline:
    if isinstance(entry, str):
        return MessageOutline("user", read.utf8_bytes(entry))
    place: Path = (side.name, index) if side.is_list else (side.name,)
    path = f"{side.name}[{index}]" if side.is_list else side.name
    return MessageOutline("user", *read_content(entry.content, place, path, images))


SCORE = Dialect(parse=parse_score, has_answers=False, opening=opening_of_pooled)
RERANK = Dialect(parse=parse_rerank, has_answers=False, opening=opening_of_pooled, usage_is_early=True)
