"""`POST /tokenize` and the answers of the routes that count tokens, in vLLM's and Anthropic's shapes.

A count that is no more than an estimate says so in the header `x-gateway-tokens`, with its bounds.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from gateway.domain.errors import Code, GatewayError
from gateway.wire import read
from gateway.wire.read import ABSENT
from gateway.wire.spans import SpanFinder
from gateway.wire.splice import Splice

_NAME = b"x-gateway-tokens"


class _Body(msgspec.Struct):
    messages: msgspec.Raw = ABSENT
    prompt: str | None = None
    model: Any = None
    add_special_tokens: bool | None = None
    return_token_strs: Any = None
    documents: msgspec.Raw = ABSENT
    reasoning_effort: msgspec.Raw = ABSENT


_decoder = msgspec.json.Decoder(_Body)


class TokenizeBody(NamedTuple):
    """`prompt` is None for a conversation, which is read as a chat is, but for what `splices` take out: templates see
    that of a chat, and not of /tokenize.
    """

    model: str | None
    prompt: str | None
    adds_special_tokens: bool
    wants_strings: bool
    splices: tuple[Splice, ...] = ()


def parse_tokenize(body: bytes | bytearray) -> TokenizeBody:
    """Raises GatewayError invalid_json or invalid_request."""
    parsed = read.decode_body(_decoder, body)
    is_chat = bool(read.json_bytes(parsed.messages))
    if is_chat == (parsed.prompt is not None):
        raise GatewayError(Code.INVALID_REQUEST, "Send either `messages` or `prompt`.", param="prompt")
    return TokenizeBody(
        model=read.string(parsed.model, "model"),
        prompt=parsed.prompt,
        adds_special_tokens=parsed.add_special_tokens is not False,
        wants_strings=read.boolean(parsed.return_token_strs, "return_token_strs"),
        splices=_without(body, parsed.documents, parsed.reasoning_effort) if is_chat else (),
    )


def _without(body: bytes | bytearray, *values: msgspec.Raw) -> tuple[Splice, ...]:
    present = [value for value in values if memoryview(value)]
    if not present:
        return ()
    spans = SpanFinder(body)
    return tuple(Splice(spans.span_of(value), b"null") for value in present)


def tokenize_answer(
    count: int, max_model_len: int | None, tokens: Sequence[int] | None, token_strs: Sequence[str] | None
) -> bytes:
    """The shape of vLLM. `tokens` is null where they are not known, which vLLM's never are."""
    return msgspec.json.encode(
        {"count": count, "max_model_len": max_model_len, "tokens": tokens, "token_strs": token_strs}
    )


def count_tokens_answer(count: int) -> bytes:
    """Anthropic's shape."""
    return msgspec.json.encode({"input_tokens": count})


def count_header(lower: int, upper: int | None, *, is_exact: bool) -> tuple[bytes, bytes]:
    """`exact`, or `estimate; lower=57; upper=612`; `upper` None: there is none."""
    if is_exact:
        return _NAME, b"exact"
    return _NAME, b"estimate; lower=%d" % lower + (b"" if upper is None else b"; upper=%d" % upper)
