"""Steps 2 to 9 of the request's story, in order. Plan before admission, execute after it.

A refused request costs a header probe of each image and no pixel. Everything that waits is here and in `admit`,
`transform` and `send`; every decision is a pure function of domain/.
"""

import asyncio
import contextlib
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import NamedTuple

import msgspec

from gateway.domain.cost import RequestCost, estimate, refuse_what_never_fits, text_bounds
from gateway.domain.errors import Code, GatewayError
from gateway.domain.image import ImagePlan
from gateway.domain.outcome import Reason
from gateway.domain.quantities import Bounds
from gateway.domain.queue import Ticket
from gateway.domain.request import ImageRef, VisionRequest
from gateway.domain.resize import ResizePolicy, plan_images, shrink_to_context
from gateway.domain.trim import ContextRoom, TrimPolicy, TrimReason, plan_trim
from gateway.imaging.probe import probe
from gateway.imaging.workers import Prepared
from gateway.models.conversation import UncountableError
from gateway.models.exact_text import ExactText, TextCount
from gateway.models.served import Engine, ServedModel
from gateway.pipeline.exchange import Exchange, Parts, Rules
from gateway.pipeline.rewriting import ImageSource, rewrite, slim_chat
from gateway.upstream.client import Answer, Segment
from gateway.upstream.errors import UpstreamDownError, UpstreamError, UpstreamTimeoutError
from gateway.wire.chat import parse_chat
from gateway.wire.completions import parse_completions
from gateway.wire.data_url import read_data_url
from gateway.wire.embeddings import parse_embeddings
from gateway.wire.generic import parse_generic
from gateway.wire.routes import Kind

_PARSERS = {
    Kind.CHAT: parse_chat,
    Kind.COMPLETIONS: parse_completions,
    Kind.EMBEDDINGS: parse_embeddings,
    Kind.GENERIC: parse_generic,
}
# Tokenizing this much text takes about as long as handing it to a thread.
_INLINE_TEXT_BYTES = 16 * 1024
_TRIM_BYTES_PER_TOKEN = 3.0
# When to ask again for a server that went away, and for one that loads its weights.
_DOWN_SECONDS = 5.0
_LOADING_SECONDS = 15.0


class Plan(NamedTuple):
    """What is to be done: `sources` beside `plans`, one for each image that stays; ordinals of those that go, and the
    rule that asked for the most.
    """

    sources: tuple[ImageSource, ...] = ()
    plans: tuple[ImagePlan, ...] = ()
    trimmed: tuple[int, ...] = ()
    trim_reason: TrimReason | None = None


async def serve(parts: Parts, exchange: Exchange) -> Answer:
    """From a received body to the head of the upstream's answer.

    Raises GatewayError for every refusal. Whatever happens, what was taken is on `exchange.lease`; the caller owns
    both and settles them.
    """
    request = parse(exchange)
    plan, cost = await price(parts, exchange, request)
    refuse_for_good(parts, exchange, cost)
    await admit(parts, exchange, cost)
    prepared = await transform(parts, exchange, plan)
    body = rewrite(exchange.body, request, plan.sources, prepared, plan.trimmed, parts.policies.trim.marker)
    return await send(parts, exchange, request, body)


def parse(exchange: Exchange) -> VisionRequest:
    """Step 2. Raises GatewayError 400."""
    exchange.request = _PARSERS[exchange.route.kind](exchange.body)
    return exchange.request


async def price(rules: Rules, exchange: Exchange, request: VisionRequest) -> tuple[Plan, RequestCost]:
    """Steps 3 to 5: what would be sent, and its whole cost, whether it fits or not. Raises GatewayError 400.

    Needs no engine, as does what goes before and `refuse_for_good`: so `vlm-gateway estimate` runs them too.
    """
    model = exchange.model = rules.models.served(request.model)
    text = await count_text(exchange, request, model)
    plan = plan_request(rules, exchange, request, model, text)
    if plan.trimmed:
        text = await count_text(exchange, request, model, plan.trimmed, rules.policies.trim.marker)
    exchange.plans, exchange.trimmed = plan.plans, plan.trimmed
    cost = exchange.cost = cost_of(rules, exchange, request, model, plan, text)
    return plan, cost


def refuse_for_good(rules: Rules, exchange: Exchange, cost: RequestCost) -> None:
    """The end of step 5. Raises GatewayError 400 for what this engine could not serve even when idle."""
    model = exchange.model
    if model is not None and not model.is_assumed:
        refuse_what_never_fits(cost, rules.models.limits(model), model.family)


async def count_text(
    exchange: Exchange, request: VisionRequest, model: ServedModel, trimmed: Sequence[int] = (), marker: str = ""
) -> Bounds:
    """Tokens of the prompt without its images: exact where the model's tokenizer is at hand."""
    if model.exact_text is not None and exchange.route.kind is Kind.CHAT:
        slim = slim_chat(exchange.body, request, trimmed, marker)
        is_short = request.text_bytes <= _INLINE_TEXT_BYTES
        with contextlib.suppress(UncountableError):
            counter = model.exact_text
            counted = _count(counter, slim) if is_short else await asyncio.to_thread(_count, counter, slim)
            # Of each image the tokenizer counted the markers and one placeholder; the family counts those whole.
            images = len(request.images) - len(trimmed)
            return Bounds.exact(counted.text_tokens - images * (1 + model.family.markers))
    text_bytes = request.text_bytes + len(trimmed) * len(marker.encode())
    return model.ratio.bounds(text_bytes, len(request.messages))


def _count(counter: ExactText, chat: bytes) -> TextCount:
    """Raises UncountableError."""
    try:
        body = msgspec.json.decode(chat)
    except msgspec.DecodeError as error:
        # Somewhere in a field that the gateway does not read: for vLLM to judge.
        raise UncountableError(str(error)) from error
    return counter.count(body)


def plan_request(rules: Rules, exchange: Exchange, request: VisionRequest, model: ServedModel, text: Bounds) -> Plan:
    """Which images go and how large the others are sent. Pure but for reading headers of the images that stay.

    What the count rule drops is not looked at: an old picture that is damaged must not end the conversation.
    Raises GatewayError with the image's path.
    """
    if not request.images:
        return Plan()
    _refuse_crowded_turn(rules.policies.max_images_per_turn, request)
    trim = _trim_policy(rules)
    resize = _resize_policy(rules, exchange.resize_preset)
    unpriced = [0] * len(request.images)
    trimmed = plan_trim(request.messages, unpriced, None, trim)
    dropped = set(trimmed.dropped)
    sources = [_look_at(rules, exchange.body, ref) for ref in request.images if ref.ordinal not in dropped]
    plans = plan_images([s.info for s in sources], [s.ref for s in sources], resize, model.family)
    room = _context_room(rules, request, model, text)
    if room is not None:
        prices = dict.fromkeys(range(len(request.images)), 0)
        prices |= {plan.ordinal: model.family.tokens(plan.target).prompt for plan in plans}
        trimmed = plan_trim(request.messages, list(prices.values()), room, trim)
        dropped |= set(trimmed.dropped)
        plans = tuple(plan for plan in plans if plan.ordinal not in dropped)
        plans = shrink_to_context(plans, room, resize, model.family)
    kept = tuple(source for source in sources if source.ref.ordinal not in dropped)
    return Plan(kept, plans, tuple(sorted(dropped)), trimmed.reason)


def cost_of(
    rules: Rules, exchange: Exchange, request: VisionRequest, model: ServedModel, plan: Plan, text: Bounds
) -> RequestCost:
    """The whole cost, with what the model's answers are known to take."""
    limits = rules.models.limits(model)
    image_tokens = [model.family.tokens(image.target) for image in plan.plans]
    exchange.sent_images = tuple(
        source.sent_as(image.target) for source, image in zip(plan.sources, plan.plans, strict=True)
    )
    lately = rules.models.engine.images
    prompt_tokens = text.expected + sum(tokens.prompt for tokens in image_tokens) + request.prompt_token_ids
    return estimate(
        request,
        plan.plans,
        image_tokens,
        text=text,
        output_tokens=model.output.tokens(request, prompt_tokens // request.prompts, limits.max_model_len),
        limits=limits,
        body_bytes=exchange.body_bytes,
        served=[image.ordinal for image, sent in zip(plan.plans, exchange.sent_images, strict=True) if sent in lately],
    )


async def admit(parts: Parts, exchange: Exchange, cost: RequestCost) -> None:
    """Step 6: the lease, at once or after waiting. Raises GatewayError 429 or 503."""
    ticket = Ticket.of(cost, parts.clock(), parts.policies.queue_wait_seconds, is_return=exchange.is_return)
    exchange.lease = await parts.gate.admit(ticket)


async def transform(parts: Parts, exchange: Exchange, plan: Plan) -> dict[int, Prepared]:
    """Step 7: check the images and encode anew those that need it; the new ones by ordinal.

    Raises GatewayError for a damaged image.
    """
    if not plan.sources:
        return {}
    begun = parts.clock()
    results = await _all_of(
        [
            parts.images.prepare(source.url.file, image.info, image.target, source.ref.param)
            for source, image in zip(plan.sources, plan.plans, strict=True)
        ]
    )
    exchange.transform_seconds = parts.clock() - begun
    prepared = {
        source.ref.ordinal: result for source, result in zip(plan.sources, results, strict=True) if result is not None
    }
    exchange.encoded_anew = tuple(prepared)
    return prepared


async def send(parts: Parts, exchange: Exchange, request: VisionRequest, body: Sequence[Segment]) -> Answer:
    """Step 9: the body goes out, the head of the answer comes back. Raises GatewayError 502, 503 or 504."""
    lease = exchange.lease
    assert lease is not None, "admitted before it is sent"
    exchange.sent_at = parts.clock()
    lease.sent(is_streamed=request.stream)
    path = exchange.path if not exchange.query else f"{exchange.path}?{exchange.query.decode('latin-1')}"
    try:
        return await parts.upstream.send(
            exchange.method,
            path,
            exchange.headers,
            body,
            request_id=exchange.request_id,
            is_streaming=request.stream,
        )
    except UpstreamError as error:
        raise as_gateway_error(error, parts.models.engine) from error


def as_gateway_error(error: UpstreamError, engine: Engine) -> GatewayError:
    """What the client is told of a failure of the upstream."""
    if isinstance(error, UpstreamDownError):
        what = "is still loading or not there yet" if engine.is_loading else "cannot be reached"
        return GatewayError(
            Code.UPSTREAM_UNAVAILABLE,
            f"The model server {what}: {error}",
            reason=Reason.UPSTREAM_LOADING if engine.is_loading else Reason.UPSTREAM_DOWN,
            retry_after_seconds=_LOADING_SECONDS if engine.is_loading else _DOWN_SECONDS,
        )
    if isinstance(error, UpstreamTimeoutError):
        return GatewayError(Code.UPSTREAM_TIMEOUT, f"The model server was silent for too long: {error}")
    return GatewayError(Code.UPSTREAM_ERROR, f"The model server broke off: {error}")


def _look_at(rules: Rules, body: bytes | bytearray, ref: ImageRef) -> ImageSource:
    url = read_data_url(body, ref)
    return ImageSource(ref, url, probe(url.file, rules.policies.images, ref.param))


def _refuse_crowded_turn(most: int | None, request: VisionRequest) -> None:
    answers = [index for index, message in enumerate(request.messages) if message.role == "assistant"]
    turn = request.messages[answers[-1] + 1 :] if answers else request.messages
    images = sum(len(message.images) for message in turn)
    if most is not None and images > most:
        raise GatewayError(
            Code.TOO_MANY_IMAGES,
            f"The last turn has {images} images and the limit is {most} (images.max_per_turn). Send fewer at once.",
            param="messages",
        )


def _trim_policy(rules: Rules) -> TrimPolicy:
    return replace(rules.policies.trim, image_limit=rules.models.engine.image_limit.value)


def _resize_policy(rules: Rules, asked: str | None) -> ResizePolicy:
    policy = replace(rules.policies.resize, encoder_budget=rules.models.engine.encoder_tokens.value)
    return policy.for_request(asked)


def _context_room(rules: Rules, request: VisionRequest, model: ServedModel, text: Bounds) -> ContextRoom | None:
    limits = rules.models.limits(model)
    known = [limit for limit in (limits.max_model_len, limits.kv_pool_tokens) if limit is not None]
    if model.is_assumed or not known:
        return None
    # A learned ratio moves; what is trimmed must not move with it, or the kept prefix changes from turn to turn.
    is_exact = text.lower == text.upper
    fixed = text if is_exact else text_bounds(request.text_bytes, len(request.messages), _TRIM_BYTES_PER_TOKEN)
    return ContextRoom(min(known), fixed.expected, request.max_tokens, len(rules.policies.trim.marker.encode()))


async def _all_of(jobs: Sequence[Coroutine[None, None, Prepared | None]]) -> list[Prepared | None]:
    """All results, or the first failure; the others are cancelled then and awaited."""
    if len(jobs) == 1:
        return [await jobs[0]]
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(job) for job in jobs]
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]
