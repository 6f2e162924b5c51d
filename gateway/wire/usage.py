"""The `usage` that vLLM reports with an answer: what the request really cost."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

# No prompt and no answer is longer: what says so teaches nothing.
_Tokens = Annotated[int, msgspec.Meta(ge=0, le=2**31)]


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one answer. `image_tokens` are those of the prompt that stand in the place of images, without what the
    template writes around them; None where the server does not tell them apart (`--enable-prompt-tokens-details`).
    `cached_tokens` of the prompt were in its prefix cache, None likewise.
    """

    prompt_tokens: int
    completion_tokens: int
    image_tokens: int | None = None
    cached_tokens: int | None = None


class _Details(msgspec.Struct, gc=False):
    multimodal_tokens: Any = None
    cached_tokens: Any = None


_Counts = dict[str, _Tokens]


class WireUsage(msgspec.Struct, gc=False):
    """`usage` as it stands in the JSON; embeddings leave `completion_tokens` out."""

    prompt_tokens: _Tokens
    completion_tokens: _Tokens | None = None
    prompt_tokens_details: Any = None

    def as_usage(self) -> Usage:
        details = self.prompt_tokens_details
        if details is None:
            return Usage(self.prompt_tokens, self.completion_tokens or 0)
        return Usage(self.prompt_tokens, self.completion_tokens or 0, _image_tokens(details), _cached_tokens(details))


def _image_tokens(details: Any) -> int | None:
    """Of `multimodal_tokens`, by kind of media. What is spelled otherwise tells nothing, and spoils nothing."""
    try:
        counts = msgspec.convert(msgspec.convert(details, _Details).multimodal_tokens, _Counts | None)
    except msgspec.ValidationError:
        return None
    return counts.get("image") if counts else None


def _cached_tokens(details: Any) -> int | None:
    try:
        return msgspec.convert(msgspec.convert(details, _Details).cached_tokens, _Tokens | None)
    except msgspec.ValidationError:
        return None


class AnthropicUsage(msgspec.Struct, gc=False):
    """As it stands in an answer of /v1/messages: what came out of a cache is told apart from the rest of the prompt."""

    input_tokens: _Tokens
    output_tokens: _Tokens | None = None
    cache_read_input_tokens: _Tokens | None = None
    cache_creation_input_tokens: _Tokens | None = None

    def as_usage(self) -> Usage:
        told_apart = (self.cache_read_input_tokens or 0) + (self.cache_creation_input_tokens or 0)
        return Usage(
            self.input_tokens + told_apart, self.output_tokens or 0, cached_tokens=self.cache_read_input_tokens
        )


class ResponsesUsage(msgspec.Struct, gc=False):
    """As it stands in an answer of /v1/responses."""

    input_tokens: _Tokens
    output_tokens: _Tokens
    input_tokens_details: Any = None

    def as_usage(self) -> Usage:
        return Usage(self.input_tokens, self.output_tokens, cached_tokens=_cached_tokens(self.input_tokens_details))


_Shape = type[WireUsage | AnthropicUsage | ResponsesUsage]


class _Answer(msgspec.Struct, gc=False):
    usage: WireUsage | None = None


class _AnthropicAnswer(msgspec.Struct, gc=False):
    usage: AnthropicUsage | None = None


_KEY = b'"usage":'
_json_decoder = json.JSONDecoder()


def _reader(
    decoder: msgspec.json.Decoder[_Answer] | msgspec.json.Decoder[_AnthropicAnswer],
    shape: _Shape,
) -> Callable[[bytes], Usage | None]:
    """Reads usage out of the last bytes of a whole answer; None where they hold none.

    Most answers are short, so their tail is all of them and can be parsed as it is. Of longer ones the key is
    searched, which is exact: inside a JSON string every quote is escaped, so it cannot be part of an answer's text.
    """

    def read(body_tail: bytes) -> Usage | None:
        try:
            usage = decoder.decode(body_tail).usage
        except (msgspec.DecodeError, RecursionError):
            return usage_in(body_tail, shape)
        return usage.as_usage() if usage else None

    return read


def usage_in(body_tail: bytes, shape: _Shape) -> Usage | None:
    """The last that stands there, whatever it stands in."""
    start = body_tail.rfind(_KEY)
    if start < 0:
        return None
    text = body_tail[start + len(_KEY) :].decode(errors="replace").lstrip()
    try:
        value, _ = _json_decoder.raw_decode(text)
        return msgspec.convert(value, shape).as_usage()
    except (ValueError, RecursionError):
        return None


usage_of = _reader(msgspec.json.Decoder(_Answer), WireUsage)
anthropic_usage_of = _reader(msgspec.json.Decoder(_AnthropicAnswer), AnthropicUsage)
"""Of /v1/messages."""
