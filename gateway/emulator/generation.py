"""The generating routes: from a parsed request to sequences in the engine, and from their tokens to the answer.

The order of the checks is vLLM's, because it decides which error a request with two faults gets, and which errors
come inside a stream's 200: the item that exceeds the encoder cache and the second look at the queue limits.
"""

import asyncio
import random
import re
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from gateway.emulator.answers import ChatForm, Choice, CompletionForm, Form, Usage, Words
from gateway.emulator.driver import Delivery
from gateway.emulator.engine import Emission, Sequence
from gateway.emulator.errors import ApiError, bad_request, engine_dead, item_over_encoder_cache, text_too_long
from gateway.emulator.exchange import Exchange
from gateway.emulator.prompt import Prompt, check_text_length, expand, image_refs, render_chat
from gateway.emulator.schema import (
    BatchRequest,
    ChatRequest,
    CompletionRequest,
    GenerationRequest,
    check_sampling,
    parse_request,
)
from gateway.emulator.server_state import ServerState
from gateway.emulator.tokens import VOCABULARY_SIZE, Tokens, encode

_LENGTH_SPREAD = 0.6
# What is reported beside the answer has no part in what it says.
_STREAM_OPTIONS = re.compile(rb',?\s*"stream_options"\s*:\s*(?:null|\{[^{}]*\})')


@dataclass(frozen=True, slots=True)
class Plan:
    """What a request is going to make: its sequences, in choice order, and how the answer is written."""

    sequences: list[Sequence]
    form: Form
    words: Words
    stream: bool
    include_usage: bool
    usage_in_every_event: bool
    details_enabled: bool
    return_token_ids: bool

    def usage(self, completion_tokens: int | None = None) -> Usage:
        """Counts so far, or `completion_tokens` where the engine is already ahead of the stream."""
        prompts = list({id(sequence.prompt): sequence for sequence in self.sequences}.values())
        done = sum(sequence.generated for sequence in self.sequences)
        return Usage(
            sum(len(sequence.prompt.tokens) for sequence in prompts),
            done if completion_tokens is None else completion_tokens,
            self._details(prompts) if self.details_enabled else None,
        )

    def _details(self, prompts: list[Sequence]) -> dict[str, Any]:
        images = sum(sequence.prompt.image_tokens for sequence in prompts)
        videos = sum(sequence.prompt.video_tokens for sequence in prompts)
        media = {kind: tokens for kind, tokens in (("image", images), ("video", videos)) if tokens}
        return {
            "cached_tokens": sum(sequence.cached_tokens for sequence in prompts),
            "created_cache_tokens": sum(sequence.cache_tokens_created for sequence in prompts),
            "multimodal_tokens": media or None,
        }


async def chat_completions(state: ServerState, exchange: Exchange, data: Any, body: bytes) -> None:
    """POST /v1/chat/completions."""
    await answer_chat(state, exchange, parse_request(ChatRequest, data), body, ChatForm)


async def answer_chat(
    state: ServerState, exchange: Exchange, request: ChatRequest, body: bytes, form: Callable[..., Form]
) -> None:
    """One conversation, whatever shape it came in and is answered in. Raises ApiError."""
    state.check_model(request.model)
    state.check_admission(request.n or 1)
    prompt = replace(await chat_prompt(state, request), salt=request.cache_salt)
    await _answer(state, exchange, _plan(state, exchange, request, [prompt], _requested(request), body, form))


async def batch_completions(state: ServerState, exchange: Exchange, data: Any, body: bytes) -> None:
    """POST /v1/chat/completions/batch: each conversation is a sequence of its own. Raises ApiError."""
    request = parse_request(BatchRequest, data)
    if request.n not in {None, 1}:
        raise bad_request("Batch chat completions do not support `n > 1`. Please set `n` to 1.", "n", value=request.n)
    state.check_model(request.model)
    prompts = []
    for conversation in request.messages:
        one = request.model_dump(exclude={"messages"}) | {"messages": conversation}
        prompt = await chat_prompt(state, parse_request(ChatRequest, one))
        prompts.append(replace(prompt, salt=request.cache_salt))
    plan = _plan(state, exchange, request, prompts, _requested(request), body, ChatForm)
    await _answer(state, exchange, replace(plan, stream=False, details_enabled=False))


def _requested(request: ChatRequest) -> int | None:
    return request.max_tokens if request.max_completion_tokens is None else request.max_completion_tokens


async def completions(state: ServerState, exchange: Exchange, data: Any, body: bytes) -> None:
    """POST /v1/completions."""
    request = parse_request(CompletionRequest, data)
    state.check_model(request.model)
    state.check_admission(request.n or 1)
    check_requested(state, "max_tokens", request.max_tokens)
    prompts = [replace(text_prompt(state, prompt), salt=request.cache_salt) for prompt in _prompts_of(request)]
    await _answer(state, exchange, _plan(state, exchange, request, prompts, request.max_tokens, body, CompletionForm))


async def chat_prompt(state: ServerState, request: ChatRequest) -> Prompt:
    """Template, text length, pictures, placeholders. Raises ApiError."""
    check_requested(state, "max_completion_tokens", request.max_completion_tokens)
    if request.max_completion_tokens is None:
        check_requested(state, "max_tokens", request.max_tokens)
    return await prompt_of(state, request.messages, add_generation_prompt=request.add_generation_prompt)


async def prompt_of(
    state: ServerState, messages: list[dict[str, Any]], *, add_generation_prompt: bool = True
) -> Prompt:
    """Of a conversation, whichever route it came by. Raises ApiError."""
    config = state.config
    rendered = render_chat(
        messages,
        add_generation_prompt=add_generation_prompt,
        image_limit=config.image_limit,
        video_limit=config.video_limit,
    )
    refs = image_refs(rendered)
    decoded = await state.preprocessor.decode(refs)
    check_text_length(rendered, config.max_model_len)
    return expand(rendered, await state.preprocessor.process(refs, decoded), config.vision)


def check_requested(state: ServerState, name: str, tokens: int | None) -> None:
    limit = state.config.max_model_len
    if tokens is not None and tokens > limit:
        raise bad_request(
            f"{name}={tokens} cannot be greater than max_model_len={limit}. Please request fewer output tokens.",
            name,
            value=tokens,
        )


def _prompts_of(request: CompletionRequest) -> list[str | list[int]]:
    prompt = request.prompt
    if not prompt:
        raise bad_request("Either prompt or prompt_embeds must be provided and non-empty.", "prompt")
    if isinstance(prompt, str):
        return [prompt]
    return [prompt] if isinstance(prompt[0], int) else list(prompt)


def text_prompt(state: ServerState, prompt: str | list[int]) -> Prompt:
    """Of a text or of ids. Raises ApiError."""
    limit = state.config.max_model_len
    if not prompt:
        raise bad_request("The decoder prompt cannot be empty")
    if isinstance(prompt, str):
        tokens = encode(prompt)
        if len(tokens) > limit:
            text_too_long(limit, limit + 1, at_least=True)
        return Prompt(tokens)
    if len(prompt) > limit:
        text_too_long(limit, len(prompt), at_least=len(prompt) == limit + 1)
    if any(not 0 <= token < VOCABULARY_SIZE for token in prompt):
        raise bad_request(f"Token id {max(prompt)} is out of vocabulary")
    return Prompt(_as_tokens(prompt))


def _as_tokens(ids: list[int]) -> Tokens:
    tokens = encode("")
    tokens.extend(ids)
    return tokens


def _plan(
    state: ServerState,
    exchange: Exchange,
    request: ChatRequest | CompletionRequest,
    prompts: list[Prompt],
    requested: int | None,
    body: bytes,
    form: Callable[..., Form],
) -> Plan:
    """The last checks before the answer's head may leave, then the sequences."""
    limits = [output_limit(state, prompt, requested) for prompt in prompts]
    check_sampling(request)
    check_at_least_one(min(limits))
    forced = forced_length(exchange, request)
    seed = zlib.crc32(_STREAM_OPTIONS.sub(b"", body) if b"stream_options" in body else body)
    sequences = [
        new_sequence(state, request, prompt, limit, requested, forced, seed + choice)
        for prompt, limit in zip(prompts, limits, strict=True)
        for choice in range(request.n or 1)
    ]
    options = request.stream_options
    force = state.config.enable_force_include_usage
    include_usage = force or bool(options and options.include_usage)
    request_id = exchange.header(b"x-request-id") or random_id()
    return Plan(
        sequences=sequences,
        form=form(request_id, int(time.time()), state.config.model, fingerprint_at_end=not include_usage),
        words=Words(seed),
        stream=bool(request.stream),
        include_usage=include_usage,
        usage_in_every_event=force or (include_usage and bool(options and options.continuous_usage_stats)),
        details_enabled=state.config.enable_prompt_tokens_details,
        return_token_ids=bool(request.return_token_ids),
    )


def random_id() -> str:
    """Sixteen hex digits. Not from the operating system: a system call a request would be felt in load tests."""
    return f"{random.getrandbits(64):016x}"


def output_limit(state: ServerState, prompt: Prompt, requested: int | None) -> int:
    """Tokens that the request may make: what it asks for, cut to what the context leaves."""
    limit, prompt_tokens = state.config.max_model_len, len(prompt.tokens)
    if prompt_tokens > limit:
        raise bad_request(f"Input length ({prompt_tokens}) exceeds model's maximum context length ({limit}).")
    remainder = limit - prompt_tokens
    return remainder if requested is None else min(remainder, requested)


def check_at_least_one(tokens: int) -> None:
    if tokens < 1:
        raise bad_request(f"max_tokens must be at least 1, got {tokens}.", "max_tokens", value=tokens)


def forced_length(exchange: Exchange, request: GenerationRequest) -> int | None:
    """A load test's wish, by header or body field."""
    header = exchange.header(b"x-emulator-output-tokens")
    return int(header) if header.isdigit() else request.emulator_output_tokens


def new_sequence(
    state: ServerState,
    request: GenerationRequest,
    prompt: Prompt,
    limit: int,
    requested: int | None,
    forced: int | None,
    seed: int,
) -> Sequence:
    if forced is not None:
        wanted = max(1, forced)
    elif requested is not None or request.ignore_eos:
        wanted = limit
    else:
        wanted = max(request.min_tokens, _drawn_length(seed, state.config.mean_output_tokens))
    reason = "stop" if wanted < limit else "length"
    return Sequence(prompt, min(wanted, limit), reason, max_tokens=limit, n=request.n or 1)


def _drawn_length(seed: int, mean_tokens: int) -> int:
    """Lognormal around the mean; the same body draws the same length."""
    draw = random.Random(seed).lognormvariate(0.0, _LENGTH_SPREAD)  # noqa: S311 - a workload, not a secret
    return max(1, round(mean_tokens * draw))


async def _answer(state: ServerState, exchange: Exchange, plan: Plan) -> None:
    try:
        if plan.stream:
            await _stream(state, exchange, plan)
        else:
            await _respond(state, exchange, plan)
    finally:
        state.driver.abandon(plan.sequences)


async def _respond(state: ServerState, exchange: Exchange, plan: Plan) -> None:
    await submit(state, plan.sequences).end()
    choices = [_choice(plan, index, sequence) for index, sequence in enumerate(plan.sequences)]
    body = plan.form.body(choices, plan.usage())
    await exchange.respond(200, body, ((b"content-type", b"application/json"),))


def _choice(plan: Plan, index: int, sequence: Sequence) -> Choice:
    reason, tokens = sequence.finish_reason, sequence.generated
    places = range(tokens) if plan.return_token_ids else ()
    ids = [plan.words.token_id(index, place, reason if place == tokens - 1 else None) for place in places]
    return Choice(plan.words.text(index, tokens, reason), reason, ids or None)


async def _stream(state: ServerState, exchange: Exchange, plan: Plan) -> None:
    await exchange.start_events()
    try:
        await _stream_tokens(state, exchange, plan)
        if plan.include_usage:
            await exchange.event(plan.form.closing_usage(plan.usage()))
    except ApiError as problem:
        last = plan.form.ending(problem)
    else:
        last = plan.form.ending(None)
    for event in last:
        await exchange.event(event)
    await exchange.end_events()


async def _stream_tokens(state: ServerState, exchange: Exchange, plan: Plan) -> None:
    delivery = submit(state, plan.sequences)
    choice_of = {sequence: index for index, sequence in enumerate(plan.sequences)}
    sent = 0
    while emissions := await delivery.next():
        for emission in emissions:
            if not sent:
                await _open(exchange, plan)
            sent += 1
            event = _token_event(plan, choice_of, emission, sent)
            if event:
                await exchange.event(event)
            if sent == state.faults.stream_error_after_tokens:
                raise engine_dead()


async def _open(exchange: Exchange, plan: Plan) -> None:
    usage = plan.usage(0) if plan.usage_in_every_event else None
    for choice in range(len(plan.sequences)):
        event = plan.form.opening(choice, usage)
        if event:
            await exchange.event(event)


def _token_event(plan: Plan, choice_of: dict[Sequence, int], emission: Emission, sent: int) -> bytes:
    sequence, place, reason = emission
    choice = choice_of[sequence]
    usage = plan.usage(sent) if plan.usage_in_every_event else None
    return plan.form.token(choice, plan.words.as_json(choice, place, reason), reason, usage)


def submit(state: ServerState, sequences: list[Sequence]) -> Delivery:
    """Hand the request to the engine. Raises ApiError, which a stream's client finds inside its 200."""
    cache_tokens = state.config.encoder_budget_tokens
    for sequence in sequences:
        for image in sequence.prompt.images:
            if image.length > cache_tokens:
                raise item_over_encoder_cache(image.length, cache_tokens)
    state.check_admission(len(sequences))
    return state.driver.submit(sequences)


async def first_byte_delay(state: ServerState) -> None:
    if state.faults.first_byte_delay_seconds:
        await asyncio.sleep(state.faults.first_byte_delay_seconds)
