"""The routes of a pooling server that take texts or conversations: /v1/embeddings, /v2/embed, /pooling and /classify.

Every prompt is one sequence without an answer. Follows `entrypoints/pooling/` of 0.32 for an embedding model whose
files say nothing of tasks; that one server answers all of these routes is the emulator's own doing.
"""

import math
import struct
import time
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import pybase64

from gateway.emulator.engine import Sequence as EngineSequence
from gateway.emulator.errors import bad_request, item_over_encoder_cache
from gateway.emulator.exchange import Exchange
from gateway.emulator.generation import random_id, text_prompt
from gateway.emulator.pooling_schema import CohereEmbedRequest, PoolingRequest
from gateway.emulator.prompt import Prompt, Rendered, check_text_length, expand, image_refs, render_chat
from gateway.emulator.schema import parse_request
from gateway.emulator.server_state import ServerState
from gateway.emulator.tokens import Tokens, encode

DIMENSIONS = 64
_CLASSES = 2


async def embeddings(state: ServerState, exchange: Exchange, data: Any, _body: bytes) -> None:
    """POST /v1/embeddings: `messages`, or `input` with texts, ids, messages, or a list of conversations."""
    request = _read(state, data, takes_input_messages=True)
    prompts = await _prompts(state, request)
    await run_prompts(state, prompts)
    items = [
        {"index": place, "object": "embedding", "embedding": _written(prompt, request.encoding_format)}
        for place, prompt in enumerate(prompts)
    ]
    await exchange.respond_json(200, listed(state, "embd", items, prompts))


async def pooling(state: ServerState, exchange: Exchange, data: Any, _body: bytes) -> None:
    """POST /pooling."""
    if isinstance(data, dict) and "data" in data:
        raise bad_request(
            "No IOProcessor plugin installed. Please refer to the documentation and to the "
            "'prithvi_geospatial_mae_io_processor' offline inference example for more details.",
            "task",
        )
    request = _read(state, data)
    prompts = await _prompts(state, request)
    await run_prompts(state, prompts)
    items = [
        {"index": place, "object": "pooling", "data": _written(prompt, request.encoding_format)}
        for place, prompt in enumerate(prompts)
    ]
    await exchange.respond_json(200, listed(state, "pooling", items, prompts))


async def classify(state: ServerState, exchange: Exchange, data: Any, _body: bytes) -> None:
    """POST /classify."""
    prompts = await _prompts(state, _read(state, data))
    await run_prompts(state, prompts)
    items = [_class_of(place, prompt) for place, prompt in enumerate(prompts)]
    await exchange.respond_json(200, listed(state, "classify", items, prompts))


async def embed(state: ServerState, exchange: Exchange, data: Any, _body: bytes) -> None:
    """POST /v2/embed, in Cohere's shapes: one of `texts`, `images` and `inputs`."""
    request = parse_request(CohereEmbedRequest, data)
    given = [each for each in (request.texts, request.images, request.inputs) if each is not None]
    if len(given) != 1 or not given[0]:
        raise bad_request("Exactly one of texts, images, or inputs must be provided, and it must be non-empty")
    if request.input_type is not None:
        raise bad_request(
            f"Unsupported input_type {request.input_type!r}. This model does not define any input_type task "
            "instructions."
        )
    state.check_model(request.model)
    prompts = await _cohere_prompts(state, request)
    await run_prompts(state, prompts)
    tokens = sum(len(prompt.tokens) for prompt in prompts)
    has_images = any(prompt.images for prompt in prompts)
    answer = {
        "id": f"embd-{random_id()}",
        "embeddings": {"float": [vector(prompt) for prompt in prompts]},
        **({} if request.texts is None else {"texts": request.texts}),
        "meta": {
            "api_version": {"version": "2"},
            "billed_units": {"input_tokens": 0 if has_images else tokens, "image_tokens": tokens if has_images else 0},
        },
        "response_type": "embeddings_by_type",
    }
    await exchange.respond_json(200, answer)


async def run_prompts(state: ServerState, prompts: Sequence[Prompt]) -> None:
    """Until the engine has computed them all. Raises ApiError."""
    cache_tokens = state.config.encoder_budget_tokens
    for image in (image for prompt in prompts for image in prompt.images):
        if image.length > cache_tokens:
            raise item_over_encoder_cache(image.length, cache_tokens)
    sequences = [EngineSequence(prompt, 1, is_pooled=True) for prompt in prompts]
    state.check_admission(len(sequences))
    delivery = state.driver.submit(sequences)
    try:
        await delivery.end()
    finally:
        state.driver.abandon(sequences)


async def with_pictures(state: ServerState, rendered: Rendered) -> Prompt:
    """The prompt with its pictures decoded, processed and in place. Raises ApiError."""
    refs = image_refs(rendered)
    decoded = await state.preprocessor.decode(refs)
    check_text_length(rendered, state.config.max_model_len)
    prompt = expand(rendered, await state.preprocessor.process(refs, decoded), state.config.vision)
    limit = state.config.max_model_len
    if len(prompt.tokens) > limit:
        raise bad_request(f"Input length ({len(prompt.tokens)}) exceeds model's maximum context length ({limit}).")
    return prompt


def listed(state: ServerState, prefix: str, items: list[dict[str, Any]], prompts: Iterable[Prompt]) -> dict[str, Any]:
    """The answer that most of these routes have."""
    tokens = sum(len(prompt.tokens) for prompt in prompts)
    return {
        "id": f"{prefix}-{random_id()}",
        "object": "list",
        "created": int(time.time()),
        "model": state.config.model,
        "data": items,
        "usage": {
            "prompt_tokens": tokens,
            "total_tokens": tokens,
            "completion_tokens": 0,
            "prompt_tokens_details": None,
            "completion_tokens_details": None,
        },
    }


def vector(prompt: Prompt) -> list[float]:
    """A direction of length 1 that follows from the prompt."""
    seed = zlib.crc32(prompt.tokens.tobytes() + b"".join(image.identity for image in prompt.images))
    angles = [math.sin(seed % 10_007 + 13 * place) for place in range(DIMENSIONS)]
    length = math.sqrt(sum(value * value for value in angles))
    return [value / length for value in angles]


def _read(state: ServerState, data: Any, *, takes_input_messages: bool = False) -> PoolingRequest:
    """Raises ApiError. `input` that holds messages goes where `messages` would."""
    if isinstance(data, dict):
        if takes_input_messages and "messages" not in data and _holds_messages(data.get("input")):
            data = {**data, "messages": data["input"]}
        if "messages" in data:
            data = {name: value for name, value in data.items() if name != "input"}
    request = parse_request(PoolingRequest, data)
    state.check_model(request.model)
    if request.messages is None and request.input is None:
        raise bad_request("Field required", "input")
    return request


def _holds_messages(value: object) -> bool:
    """All are messages, or all are conversations."""
    if not isinstance(value, list) or not value:
        return False
    return all(_is_message(each) for each in value) or all(
        isinstance(each, list) and each and all(_is_message(message) for message in each) for each in value
    )


def _is_message(value: object) -> bool:
    return isinstance(value, dict) and isinstance(value.get("role"), str)


async def _prompts(state: ServerState, request: PoolingRequest) -> list[Prompt]:
    if request.messages is None:
        return [text_prompt(state, each) for each in _texts(request.input)]
    is_batch = bool(request.messages) and isinstance(request.messages[0], list)
    conversations: Any = request.messages if is_batch else [request.messages]
    return [
        await _chat_prompt(state, each, adds_generation_prompt=request.add_generation_prompt) for each in conversations
    ]


def _texts(value: Any) -> list[str | list[int]]:
    if isinstance(value, str) or (value and isinstance(value[0], int)):
        return [value]
    if not value:
        raise bad_request("You must pass at least one prompt")
    return list(value)


async def _chat_prompt(
    state: ServerState, messages: list[dict[str, Any]], *, adds_generation_prompt: bool = False
) -> Prompt:
    rendered = render_chat(
        messages,
        add_generation_prompt=adds_generation_prompt,
        image_limit=state.config.image_limit,
        video_limit=state.config.video_limit,
    )
    return await with_pictures(state, rendered)


async def _cohere_prompts(state: ServerState, request: CohereEmbedRequest) -> list[Prompt]:
    if request.texts is not None:
        return [Prompt(_cut(state, request, encode(text))) for text in request.texts]
    contents: Any = [[{"type": "image_url", "image_url": {"url": url}}] for url in request.images or ()]
    contents = contents or [each.content for each in request.inputs or ()]
    return [await _chat_prompt(state, [{"role": "user", "content": content}]) for content in contents]


def _cut(state: ServerState, request: CohereEmbedRequest, tokens: Tokens) -> Tokens:
    """Texts are cut to what is asked, or to the context."""
    limit = state.config.max_model_len if request.max_tokens is None else request.max_tokens
    if request.truncate == "NONE":
        if len(tokens) > limit:
            raise bad_request(f"Input of {len(tokens)} tokens exceeds max_tokens={limit} with truncate=NONE.")
        return tokens
    return tokens[-limit:] if request.truncate == "START" else tokens[:limit]


def _written(prompt: Prompt, encoding: str) -> list[float] | str:
    values = vector(prompt)
    if encoding == "base64":
        return pybase64.b64encode(struct.pack(f"<{len(values)}f", *values)).decode()
    return values


def _class_of(place: int, prompt: Prompt) -> dict[str, Any]:
    first = (1 + vector(prompt)[0]) / 2
    probabilities = [first, 1 - first]
    label = f"LABEL_{probabilities.index(max(probabilities))}"
    return {"index": place, "label": label, "probs": probabilities, "num_classes": _CLASSES}
