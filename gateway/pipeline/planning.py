"""Steps 3 and 4 of the story: headers of the images are looked at, and what becomes of each is decided.

The decisions are domain/trim.py's and domain/resize.py's; here they get what they need, in the right order.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from gateway.domain.errors import Code, GatewayError
from gateway.domain.image import ImagePlan
from gateway.domain.quantities import Bounds
from gateway.domain.request import ImageRef, MessageOutline, VisionRequest
from gateway.domain.resize import Preset, ResizePolicy, plan_images, shrink_to_context
from gateway.domain.text_tokens import text_bounds
from gateway.domain.trim import ContextRoom, TrimPlan, TrimPolicy, TrimReason, last_turn, plan_trim
from gateway.domain.vision.base import BoundedTokens, ImageTokens, UnservableImageError, VisionFamily
from gateway.models.served import ServedModel
from gateway.pipeline.beside import ONE_THREAD, in_thread
from gateway.pipeline.exchange import Exchange, Rules
from gateway.pipeline.ladder import recall_conversation, recall_images
from gateway.pipeline.naming import recall, refuse_other_sizes
from gateway.pipeline.remote import fetch_remote
from gateway.pipeline.rewriting import ImageSource
from gateway.wire.data_url import DataUrl, read_data_url, read_in_place, read_spelled

# vLLM's own limit where nobody set one (config/multimodal.py); also what keeps a body of tiny images from being worth
# minutes of looking.
_MOST_IMAGES = 999
_TRIM_BYTES_PER_TOKEN = 3.0
_INLINE_IMAGES = 16
_INLINE_URL_BYTES = 128 * 1024


class Plan(NamedTuple):
    """What is to be done.

    `sources` beside `plans`, one for each image that stays; ordinals of those that go, the rule that asked for the
    most, and the tokens that they would have cost, as far as they were looked at.
    """

    sources: tuple[ImageSource, ...] = ()
    plans: tuple[ImagePlan, ...] = ()
    trimmed: tuple[int, ...] = ()
    trim_reason: TrimReason | None = None
    trimmed_tokens: int = 0


NO_IMAGES = Plan()


async def plan_request(
    rules: Rules, exchange: Exchange, request: VisionRequest, model: ServedModel, text: Bounds
) -> Plan:
    """Which images go and how large the others are sent. There are some.

    What the count rule drops is not looked at: an old picture that is damaged must not end the conversation.
    Raises GatewayError with the image's path.
    """
    relieved = exchange.relieved
    if relieved is not None:
        await recall_conversation(relieved, exchange, request)
    trim = trim_policy(rules, exchange)
    by_count = drop_by_count(rules, request, trim)
    gone = frozenset(by_count.dropped)
    sources = await _look_at(rules, exchange, [ref for ref in request.images if ref.ordinal not in gone])
    if relieved is not None and not model.is_assumed:
        sources = await recall_images(relieved, exchange, request, sources)
    known = (rules, exchange, request, model, text, trim, by_count, sources)
    is_short = len(sources) <= _INLINE_IMAGES
    plan = plan_known(*known) if is_short else await in_thread(ONE_THREAD, plan_known, *known)
    refuse_other_sizes(plan.sources, plan.plans)
    return plan


def drop_by_count(rules: Rules, request: VisionRequest, trim: TrimPolicy) -> TrimPlan:
    """What goes for its number alone, unseen; of several conversations each by itself. Raises GatewayError
    too_many_images.
    """
    prices = [0] * len(request.images)
    plans = []
    for messages in request.conversations:
        _refuse_crowded_turn(rules.policies.max_images_per_turn, messages, trim.param)
        plans.append(plan_trim(messages, prices, None, trim))
    if len(plans) == 1:
        return plans[0]
    dropped = tuple(ordinal for plan in plans for ordinal in plan.dropped)
    return TrimPlan(dropped, next((plan.reason for plan in plans if plan.reason), None))


def plan_known(
    rules: Rules,
    exchange: Exchange,
    request: VisionRequest,
    model: ServedModel,
    text: Bounds,
    trim: TrimPolicy,
    by_count: TrimPlan,
    sources: Sequence[ImageSource],
) -> Plan:
    """The plan, once it is known how large the images are that their number lets stay.

    Raises GatewayError with the image's path.
    """
    if model.is_assumed:
        plans = tuple(_unchanged(source, model.family) for source in sources)
        return Plan(tuple(sources), plans, by_count.dropped, by_count.reason)
    room = _context_room(rules, exchange, request, model, text)
    resize = resize_policy(rules, exchange)
    pressed = exchange.relieved.presets if exchange.relieved else {}
    return _fitted(_Conversation(request, sources, by_count, room, trim, resize, pressed), model.family)


class _Conversation(NamedTuple):
    """Images that stay by their number, and the rules that they are planned by."""

    request: VisionRequest
    sources: Sequence[ImageSource]
    by_count: TrimPlan
    room: ContextRoom | None
    trim: TrimPolicy
    resize: ResizePolicy
    pressed: Mapping[int, Preset]


def _fitted(conversation: _Conversation, family: VisionFamily) -> Plan:
    """The plan with more of the old images left out where the context asks for it.

    What an image costs depends on how many stay (`max_tokens_per_request`), and how many stay on what they cost. Fewer
    images are never cheaper, so what has to go at the price of many has to go at that of few: it ends at the fewest.
    """
    request, sources, trimmed, room, trim, resize, pressed = conversation
    trimmed_tokens = 0
    while True:
        plans = plan_images([s.info for s in sources], [s.ref for s in sources], resize, family, pressed)
        if room is None:
            break
        prices = dict.fromkeys(range(len(request.images)), 0)
        prices |= {plan.ordinal: family.tokens(plan.target).prompt for plan in plans}
        more = plan_trim(request.messages, list(prices.values()), room, trim, least=len(trimmed.dropped))
        if more.dropped == trimmed.dropped:
            plans = shrink_to_context(plans, room, resize, family)
            break
        trimmed, gone = more, frozenset(more.dropped)
        trimmed_tokens += sum(prices[ordinal] for ordinal in gone)
        sources = [source for source in sources if source.ref.ordinal not in gone]
    return Plan(tuple(sources), plans, trimmed.dropped, trimmed.reason, trimmed_tokens)


async def _look_at(rules: Rules, exchange: Exchange, refs: Sequence[ImageRef]) -> Sequence[ImageSource]:
    """Headers only, once those that are given by address are here."""
    sources = []
    remote = await fetch_remote(rules, exchange, refs)
    for ref in refs:
        if ref.is_named_only:
            sources.append(recall(exchange, ref))
            continue
        url = remote.get(ref.ordinal) or await _read_url(exchange.body, ref)
        if url.copied_bytes:
            exchange.hold_beside(url.copied_bytes)
        info = await rules.looker.look(url.file, rules.policies.images, ref.param)
        is_forwarded = ref.is_remote and rules.policies.forwards_addresses
        sources.append(ImageSource(ref, url, info, is_forwarded=is_forwarded))
    return sources


async def _read_url(body: bytes | bytearray, ref: ImageRef) -> DataUrl:
    if ref.url.end - ref.url.start <= _INLINE_URL_BYTES:
        return read_data_url(body, ref)
    in_place = read_in_place(body, ref)
    return await in_thread(ONE_THREAD, read_spelled, body, ref) if in_place is None else in_place


def _unchanged(source: ImageSource, family: VisionFamily) -> ImagePlan:
    """For a model of unknown family: its price is a bound, and what the model can see is not known."""
    size = source.info.size
    plan = ImagePlan(source.ref.ordinal, source.info, size, 0, 0)
    tokens = image_cost(plan, family).placeholder
    return replace(plan, tokens=tokens, tokens_before=tokens)


def image_cost(plan: ImagePlan, family: VisionFamily) -> ImageTokens:
    """What the image costs as planned. One that the family refuses, though it may not be the model's, costs anything up
    to the most of that family.
    """
    try:
        return family.tokens(plan.target)
    except UnservableImageError:
        most, markers = family.max_image_tokens, family.markers
        unsure = most + markers - 1
        return BoundedTokens(most, markers, most, plan.target, uncertain=unsure, uncertain_encoder=most - 1)


def likely_image_cost(plan: ImagePlan, model: ServedModel) -> ImageTokens:
    """The same, where the server was started with a smaller maximum than the model's own."""
    tokens = image_cost(plan, model.family)
    cap = model.image_cap
    most, least = cap.within(tokens.prompt), cap.least_within(tokens.least_prompt)
    if (most, least) == (tokens.prompt, tokens.least_prompt):
        return tokens
    placeholder, encoder = max(1, most - tokens.markers), min(tokens.encoder, most)
    return BoundedTokens(
        placeholder,
        tokens.markers,
        encoder,
        tokens.model_size,
        tokens.is_capped,
        uncertain=placeholder + tokens.markers - least,
        uncertain_encoder=encoder - cap.least_within(tokens.least_encoder),
    )


def _refuse_crowded_turn(most: int | None, messages: Sequence[MessageOutline], param: str) -> None:
    images = sum(len(message.images) for message in last_turn(messages))
    if most is not None and images > most:
        raise GatewayError(
            Code.TOO_MANY_IMAGES,
            f"The last turn has {images} images and the limit is {most} (images.max_per_turn). Send fewer at once.",
            param=param,
        )


def trim_policy(rules: Rules, exchange: Exchange) -> TrimPolicy:
    """For this conversation, once it is known whether the stricter rule holds for it."""
    policy = replace(rules.policies.trim, image_limit=exchange.models.engine.image_limit.value or _MOST_IMAGES)
    relieved, request = exchange.relieved, exchange.request
    if request is not None and request.needs_engine and not request.wants_output:
        return policy.without_history(request.prompt_name)
    return policy.under_pressure(relieved.relief.policy.keep_images) if relieved and relieved.is_strict else policy


def resize_policy(rules: Rules, exchange: Exchange) -> ResizePolicy:
    """With what the request asks for. Raises GatewayError invalid_request for a word that is none."""
    policy = replace(rules.policies.resize, encoder_budget=exchange.models.engine.encoder_tokens.value)
    return policy.for_request(exchange.resize_preset)


def _context_room(
    rules: Rules, exchange: Exchange, request: VisionRequest, model: ServedModel, text: Bounds
) -> ContextRoom | None:
    limits = exchange.models.limits(model)
    known = [limit for limit in (limits.max_model_len, limits.kv_pool_tokens) if limit is not None]
    # How much text each of several conversations has is not known.
    if not known or request.truncate_prompt_tokens is not None or request.conversation_lengths:
        return None
    # A learned ratio moves; what is trimmed must not move with it, or the kept prefix changes from turn to turn.
    is_exact = text.lower == text.upper
    fixed = text if is_exact else text_bounds(request.text_bytes, len(request.messages), _TRIM_BYTES_PER_TOKEN)
    marker_tokens = math.ceil(len(rules.policies.trim.marker.encode()) / _TRIM_BYTES_PER_TOKEN)
    return ContextRoom(min(known), fixed.expected, request.max_tokens, marker_tokens)
