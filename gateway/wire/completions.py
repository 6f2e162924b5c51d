"""`POST /v1/completions`: text and token ids, no media.

A list of prompts is that many requests to the engine (vLLM entrypoints/openai/completion/protocol.py).
"""

from typing import Any

import msgspec

from gateway.domain.errors import Code, GatewayError
from gateway.domain.request import VisionRequest
from gateway.wire import read
from gateway.wire.prompts import Prompts, count_prompts
from gateway.wire.watched import Watched, find_watched

_DEFAULT_MAX_TOKENS = 16
_MOST_PROMPTS = 1024  # vLLM's own limit, VLLM_MAX_COMPLETION_PROMPTS


class _Body(Watched):
    prompt: str | list[str | int | list[int]] | None = None
    prompt_embeds: Any = None
    model: Any = None
    stream: Any = None
    stream_options: read.StreamOptions | msgspec.UnsetType | None = msgspec.UNSET
    max_tokens: Any = None
    truncate_prompt_tokens: Any = None


_decoder = msgspec.json.Decoder(_Body)


def parse_completions(body: bytes | bytearray) -> VisionRequest:
    """The request as admission sees it; ids are counted exactly, text in UTF-8 bytes.

    Raises GatewayError invalid_json or invalid_request. With `echo`, vLLM takes `max_tokens` 0 and makes one token.
    """
    parsed = read.decode_body(_decoder, body)
    if parsed.prompt_embeds:
        raise GatewayError(
            Code.INVALID_REQUEST, "Prompt embeddings are not yet supported. Send `prompt`.", param="prompt_embeds"
        )
    found = find_watched(parsed, body, is_chat=False)
    prompts = _prompts(parsed)
    max_tokens = read.integer(parsed.max_tokens, "max_tokens", minimum=0)
    return VisionRequest(
        model=read.string(parsed.model, "model"),
        stream=read.boolean(parsed.stream, "stream"),
        include_usage=read.include_usage(parsed.stream_options),
        has_stream_options=parsed.stream_options is not msgspec.UNSET,
        max_tokens=_DEFAULT_MAX_TOKENS if max_tokens is None else max(max_tokens, 1),
        n=read.answers(read.value(parsed.n), prompts.prompts),
        prompts=prompts.prompts,
        prompt_token_ids=prompts.token_ids,
        extra_text_bytes=prompts.text_bytes,
        truncate_prompt_tokens=read.truncation(parsed.truncate_prompt_tokens),
        priority=read.priority(read.value(parsed.priority)),
        fields=found.uses,
        salt=found.salt,
    )


def _prompts(parsed: _Body) -> Prompts:
    if parsed.prompt is None:
        raise GatewayError(Code.INVALID_REQUEST, "`prompt` is missing.", param="prompt")
    return count_prompts(parsed.prompt, "prompt", _MOST_PROMPTS)
