"""Which images of a long conversation are left out, decided the same way at every turn.

vLLM keys its caches by the prefix of the prompt, so what is dropped moves in steps of a grid: the kept prefix stays
identical for that many turns. A plan is a function of the conversation and of fixed limits alone. How the marker text
takes an image's place is the affair of the rewriting in `wire/`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import accumulate

from gateway.domain.errors import Code, GatewayError
from gateway.domain.request import MessageOutline

OUTPUT_ROOM_TOKENS = 1024
"""Most that is kept free for the answer when a conversation is made to fit."""


class TrimMode(StrEnum):
    WHEN_NEEDED = "when_needed"
    ALWAYS = "always"
    OFF = "off"


class TrimReason(StrEnum):
    """The rule that asked for the most."""

    KEEP = "keep"
    IMAGE_LIMIT = "image_limit"
    CONTEXT = "context"
    PRESSURE = "pressure"


@dataclass(frozen=True, slots=True)
class TrimPolicy:
    """`keep` images (None: as many as `image_limit` allows); dropped counts are multiples of `grid`.

    `image_limit` is the most images a request may carry upstream (None: unlimited). `marker` takes the place of each
    dropped image. `keep_reason` is whose rule `keep` is, `param` the field that holds the images. Without history
    nothing is ever left out.
    """

    mode: TrimMode = TrimMode.WHEN_NEEDED
    keep: int | None = None
    grid: int = 4
    image_limit: int | None = None
    marker: str = "[image removed]"
    keep_reason: TrimReason = TrimReason.KEEP
    param: str = "messages"
    has_history: bool = True

    def without_history(self, param: str) -> "TrimPolicy":
        """For what nobody answers: with some of it left out it would be the vector of something else."""
        return replace(self, mode=TrimMode.OFF, param=param, has_history=False)

    def under_pressure(self, keep: int) -> "TrimPolicy":
        """The rule of a conversation that began under pressure: always, and `keep` images at most."""
        if self.mode is TrimMode.ALWAYS and self.keep is not None and self.keep <= keep:
            return self
        most = keep if self.keep is None else min(keep, self.keep)
        return replace(self, mode=TrimMode.ALWAYS, keep=most, keep_reason=TrimReason.PRESSURE)

    @property
    def most_kept(self) -> int | None:
        """Images that may stay; None where nothing bounds them."""
        return min((bound for bound in (self.keep, self.image_limit) if bound is not None), default=None)


@dataclass(frozen=True, slots=True)
class ContextRoom:
    """What the prompt has to fit into, in tokens.

    `limit_tokens` is the smaller of max_model_len and the KV pool, `text_tokens` all of the prompt but its images,
    `max_tokens` the client's bound on the answer, `marker_tokens` what one marker adds.
    """

    limit_tokens: int
    text_tokens: int
    max_tokens: int | None = None
    marker_tokens: int = 0

    @property
    def image_tokens(self) -> int:
        """Room for images beside the text and a short answer; negative where the text alone is too long."""
        return self.limit_tokens - self.text_tokens - min(self.max_tokens or OUTPUT_ROOM_TOKENS, OUTPUT_ROOM_TOKENS)


@dataclass(frozen=True, slots=True)
class TrimPlan:
    """`dropped` holds the ordinals of the images left out, oldest first; `reason` is None where none is."""

    dropped: tuple[int, ...] = ()
    reason: TrimReason | None = None


def plan_trim(
    messages: Sequence[MessageOutline],
    image_tokens: Sequence[int],
    context: ContextRoom | None,
    policy: TrimPolicy,
    *,
    least: int = 0,
) -> TrimPlan:
    """Which images to leave out so that the rest is within the limits of count and context.

    `image_tokens[ordinal]` is what that image costs in prompt tokens, markers included; `context` None where the
    limits are unknown. Only images before the last answer of the assistant can go, and at least the `least` oldest of
    these do: so many were left out when the others were priced. Raises GatewayError
    (too_many_images) where more images than the limit would stay; a context still exceeded is not judged here.
    """
    ordinals = [ordinal for message in messages for ordinal in message.images]
    plan = TrimPlan()
    if policy.mode is not TrimMode.OFF:
        droppable = _before_last_answer(messages)
        excess = 0 if context is None else sum(image_tokens[ordinal] for ordinal in ordinals) - context.image_tokens
        savings = [image_tokens[ordinal] - (context.marker_tokens if context else 0) for ordinal in droppable]
        by_count = _by_count(len(ordinals), policy)
        # Those that the count leaves out have their markers in the context too.
        least = max(least, by_count[0])
        by_context = (_steps_to_save(excess, savings, policy.grid, least), TrimReason.CONTEXT)
        count, reason = max(by_count, by_context, key=lambda rule: rule[0])
        dropped = tuple(droppable[:count])
        plan = TrimPlan(dropped, reason if dropped else None)
    _check_limit(len(ordinals), len(plan.dropped), policy)
    return plan


def last_turn(messages: Sequence[MessageOutline]) -> Sequence[MessageOutline]:
    """The last answer of the assistant and all after it; all messages where there is no answer yet.

    An assistant message that ends the request is the start of the coming answer, not one of its own.
    """
    roles = [message.role for message in messages]
    while roles and roles[-1] == "assistant":
        roles.pop()
    return messages[max((index for index, role in enumerate(roles) if role == "assistant"), default=0) :]


def new_images(conversations: Sequence[Sequence[MessageOutline]]) -> frozenset[int]:
    """Ordinals of the images after the last answer of the assistant in each, which no cache can know as part of its
    prompt.
    """
    new: set[int] = set()
    for messages in conversations:
        turn = last_turn(messages)
        said = turn[1:] if turn and turn[0].role == "assistant" else turn
        new.update(ordinal for message in said for ordinal in message.images)
    return frozenset(new)


def _before_last_answer(messages: Sequence[MessageOutline]) -> list[int]:
    earlier = messages[: len(messages) - len(last_turn(messages))]
    return [ordinal for message in earlier for ordinal in message.images]


def _by_count(images: int, policy: TrimPolicy) -> tuple[int, TrimReason]:
    is_over_limit = policy.image_limit is not None and images > policy.image_limit
    reason = TrimReason.IMAGE_LIMIT if is_over_limit else policy.keep_reason
    if policy.most_kept is None or not (is_over_limit or policy.mode is TrimMode.ALWAYS):
        return 0, reason
    steps = -(-max(0, images - policy.most_kept) // policy.grid)
    return steps * policy.grid, reason


def _steps_to_save(excess: int, savings: Sequence[int], grid: int, least: int) -> int:
    """Smallest multiple of `grid` from `least` on whose first so many `savings` cover `excess`; all where none does."""
    saved = [0, *accumulate(savings)]
    counts = range(-(-least // grid) * grid, len(savings) + grid, grid)
    return next((count for count in counts if saved[min(count, len(savings))] >= excess), len(savings))


def _check_limit(images: int, dropped: int, policy: TrimPolicy) -> None:
    if policy.image_limit is None or images - dropped <= policy.image_limit:
        return
    if not policy.has_history:
        raise GatewayError(
            Code.TOO_MANY_IMAGES,
            f"One prompt has {images} images and the limit is {policy.image_limit}. Send fewer in one.",
            param=policy.param,
        )
    if policy.mode is TrimMode.OFF:
        raise GatewayError(
            Code.TOO_MANY_IMAGES,
            f"The request has {images} images and the limit is {policy.image_limit}. Send fewer images; "
            f"older ones are left out by themselves where history.mode is '{TrimMode.WHEN_NEEDED}'.",
            param=policy.param,
        )
    after = f" after {dropped} older ones were left out" if dropped else ""
    raise GatewayError(
        Code.TOO_MANY_IMAGES,
        f"The request has {images - dropped} images{after} and the limit is {policy.image_limit}. "
        "Images after the last assistant message are never left out: send fewer in one turn.",
        param=policy.param,
    )
