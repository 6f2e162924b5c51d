"""The fields that domain/fields.py has rules for, and `cache_salt`, found in the one pass that reads the body.

They stay raw views. Of a body that has none of them nothing more is read.
"""

from collections.abc import Callable, Iterator
from operator import attrgetter

import msgspec

from gateway.domain.errors import Code, GatewayError
from gateway.domain.fields import EVERYTHING, FIELDS, Measure
from gateway.domain.request import FieldUse, OwnSalt
from gateway.wire import read
from gateway.wire.read import ABSENT, decode_body
from gateway.wire.spans import SpanFinder

_MOST_SALT_CHARACTERS = 1024
"""vLLM's own bound until 0.31; what is sent on is shorter."""


class Watched(msgspec.Struct, kw_only=True):
    """Of every route; a field that a route does not have is ignored there, as vLLM does."""

    mm_processor_kwargs: msgspec.Raw = ABSENT
    media_io_kwargs: msgspec.Raw = ABSENT
    chat_template: msgspec.Raw = ABSENT
    chat_template_kwargs: msgspec.Raw = ABSENT
    kv_transfer_params: msgspec.Raw = ABSENT
    ec_transfer_params: msgspec.Raw = ABSENT
    use_beam_search: msgspec.Raw = ABSENT
    prompt_logprobs: msgspec.Raw = ABSENT
    echo: msgspec.Raw = ABSENT
    top_logprobs: msgspec.Raw = ABSENT
    logprobs: msgspec.Raw = ABSENT
    n: msgspec.Raw = ABSENT
    best_of: msgspec.Raw = ABSENT
    priority: msgspec.Raw = ABSENT
    stream_interval: msgspec.Raw = ABSENT
    repetition_detection: msgspec.Raw = ABSENT
    stop: msgspec.Raw = ABSENT
    stop_sequences: msgspec.Raw = ABSENT
    stop_token_ids: msgspec.Raw = ABSENT
    allowed_token_ids: msgspec.Raw = ABSENT
    logit_bias: msgspec.Raw = ABSENT
    bad_words: msgspec.Raw = ABSENT
    structured_outputs: msgspec.Raw = ABSENT
    response_format: msgspec.Raw = ABSENT
    guided_json: msgspec.Raw = ABSENT
    guided_regex: msgspec.Raw = ABSENT
    guided_grammar: msgspec.Raw = ABSENT
    guided_choice: msgspec.Raw = ABSENT
    guided_whitespace_pattern: msgspec.Raw = ABSENT
    guided_decoding_backend: msgspec.Raw = ABSENT
    vllm_xargs: msgspec.Raw = ABSENT
    cache_salt: msgspec.Raw = ABSENT


_NAMES = Watched.__struct_fields__
_values_of: Callable[[Watched], tuple[msgspec.Raw, ...]] = attrgetter(*_NAMES)
_NOTHING = (ABSENT,) * len(_NAMES)
_MEASURES = {field.name: field.measure for field in FIELDS}
_INSIDE = {
    outer: [field.name.partition(".")[2] for field in FIELDS if field.name.startswith(f"{outer}.")]
    for outer in {field.name.partition(".")[0] for field in FIELDS if "." in field.name}
}
_NOT_FIELDS = frozenset({"echo", "cache_salt"})
_LEAST = {"logprobs": -1, "top_logprobs": -1, "n": 1, "best_of": 0, "stream_interval": 1, "priority": -(2**63)}
_HARMLESS = {"n": 1, "stream_interval": 1}
"""What no rule can be about: every request has so much."""
_members_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Found:
    """What one body has of them."""

    __slots__ = ("salt", "uses")

    def __init__(self, uses: tuple[FieldUse, ...] = (), salt: OwnSalt | None = None) -> None:
        self.uses = uses
        self.salt = salt


NOTHING = Found()


def find_watched(parsed: Watched, body: bytes | bytearray, *, is_chat: bool) -> Found:
    """Chats have no number as `logprobs`, and with `echo` always ask for those of the prompt.

    Raises GatewayError: invalid_json, invalid_request for a number that is none, or a salt that is no text.
    """
    values = _values_of(parsed)
    if values == _NOTHING:
        return NOTHING
    present = {name: raw for name, raw in zip(_NAMES, values, strict=True) if raw is not ABSENT}
    uses = [*_uses(present, body, is_chat=is_chat), *_echoed(present, is_chat=is_chat)]
    salt = present.get("cache_salt")
    return Found(tuple(uses), None if salt is None else _salt(salt, body))


def _uses(present: dict[str, msgspec.Raw], body: bytes | bytearray, *, is_chat: bool) -> Iterator[FieldUse]:
    for name, raw in present.items():
        if name in _NOT_FIELDS or (is_chat and name == "logprobs"):
            continue
        if name in _MEASURES:
            yield from _use(name, raw, body)
        if name in _INSIDE and _is(raw, b"{"):
            yield from _inside(name, raw, body)
        if name == "kv_transfer_params" and _is(raw, b"{"):
            read.refuse_hidden_prompt(decode_body(_members_decoder, raw))


def _echoed(present: dict[str, msgspec.Raw], *, is_chat: bool) -> Iterator[FieldUse]:
    if "echo" not in present or not read.value(present["echo"]):
        return
    has_own = _is_said(present.get("prompt_logprobs", ABSENT))
    if not has_own and (is_chat or _is_said(present.get("logprobs", ABSENT))):
        yield FieldUse("prompt_logprobs", 1, asked_by="echo")


def _inside(outer: str, raw: msgspec.Raw, body: bytes | bytearray) -> Iterator[FieldUse]:
    members = decode_body(_members_decoder, raw)
    for name in _INSIDE[outer]:
        if name in members:
            yield from _use(f"{outer}.{name}", members[name], body)


def _use(name: str, raw: msgspec.Raw, body: bytes | bytearray) -> Iterator[FieldUse]:
    """Where a number stands is looked up, for it may be brought down; that takes longer than all else here."""
    measure = _MEASURES[name]
    if not _is_said(raw):
        return
    if measure is Measure.BYTES:
        yield FieldUse(name, len(memoryview(raw)))
    elif measure is Measure.GIVEN:
        yield FieldUse(name, 1)
    elif measure is Measure.PRESENCE:
        if read.value(raw):
            yield FieldUse(name, 1)
    else:
        amount = _number(name, measure, raw)
        if amount > _HARMLESS.get(name, 0):
            yield FieldUse(name, amount, SpanFinder(body).span_of(raw))


def _number(name: str, measure: Measure, raw: msgspec.Raw) -> int:
    number = read.integer(read.value(raw), name, minimum=_LEAST.get(name, 0))
    assert number is not None, "null was looked for before"
    if measure is Measure.URGENCY:
        return max(0, -number)
    return EVERYTHING if number == -1 else number


def _salt(raw: msgspec.Raw, body: bytes | bytearray) -> OwnSalt:
    text = read.value(raw)
    if text is not None and not (isinstance(text, str) and 0 < len(text) <= _MOST_SALT_CHARACTERS):
        raise GatewayError(
            Code.INVALID_REQUEST,
            f"`cache_salt` must be a string of 1 to {_MOST_SALT_CHARACTERS} characters.",
            param="cache_salt",
        )
    return OwnSalt(text, SpanFinder(body).span_of(raw))


def _is_said(raw: msgspec.Raw) -> bool:
    return raw is not ABSENT and not _is(raw, b"null")


def _is(raw: msgspec.Raw, start: bytes) -> bool:
    return bytes(memoryview(raw)[: len(start)]) == start
