"""One request at admission: what it takes, how urgent it is, whose it is."""

from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from gateway.domain.cost import RequestCost
from gateway.domain.growth import OutputGrowth
from gateway.domain.output import OutputReservation
from gateway.domain.pace import REQUEST_TOKENS
from gateway.domain.priority import Priority
from gateway.domain.quantities import Amounts, Held, Resource
from gateway.domain.unfolding import Unfolding

OUTPUT_WEIGHT = 4
"""A token of an answer keeps an engine several times as long as one of a prompt; sellers take 4 to 8 times as much."""

NO_ROOM = Amounts()

SMALL_BODY_BYTES = 256 * 1024
"""Bodies up to this size have a quarter of every queue and byte budget to themselves."""


class Newcomer(NamedTuple):
    """What is known of a request at the door, before its body is read: the fields of its `Ticket` to be.

    Whether it `has_images` is not known there (None); a large body is taken to have some, a small one to have none.
    """

    body_bytes: int = 0
    is_return: bool = False
    priority: Priority = Priority.DEFAULT
    tenant: str = ""
    weight: float = 1.0
    first_token_by: float = inf
    answer_by: float = inf
    has_images: bool | None = None

    @property
    def is_image(self) -> bool:
        return self.body_bytes > SMALL_BODY_BYTES if self.has_images is None else self.has_images

    @property
    def prefill_tokens(self) -> int:
        """As little as any request takes: it was not read yet."""
        return REQUEST_TOKENS

    @property
    def likely_tokens(self) -> int:
        return 0


@dataclass(slots=True, eq=False)
class Ticket:
    """One request at admission. Compared by identity: it is the request.

    Times are seconds on the caller's clock. `is_return` says that the client comes back after a refusal; `growth`
    what its answer costs beyond its reservation, `prefill_kv_blocks` what it holds up to its first token only. A turn
    costs `cost_tokens` (prompt and weighted answers, at least 1) divided by the tenant's `weight` (above 0).

    `first_token_by` and `answer_by` are what its level of service, or its client, asks for; `likely_tokens` is how long
    an answer probably becomes, 0 where that is not known, and `lengths` tells it of one that has begun. After
    `start_by` it is of no use to let it in. `keeps_place`: it comes back as it was told, in time for what was asked of
    it. `is_bounded`: part of its tokens are no more than an upper bound, which says nothing of how fast the engine is.
    """

    amounts: Amounts
    arrived: float
    deadline: float
    body_bytes: int = 0
    cost_tokens: int = 1
    growth: OutputGrowth = field(default_factory=OutputGrowth)
    is_return: bool = False
    priority: Priority = Priority.DEFAULT
    tenant: str = ""
    weight: float = 1.0
    first_token_by: float = inf
    answer_by: float = inf
    likely_tokens: int = 0
    lengths: OutputReservation | None = None
    is_streamed: bool = True
    start_by: float = inf
    keeps_place: bool = False
    prefill_kv_blocks: int = 0
    is_bounded: bool = False

    @classmethod
    def of(
        cls,
        cost: RequestCost,
        arrived: float,
        wait_seconds: float,
        *,
        is_return: bool = False,
        priority: Priority = Priority.DEFAULT,
        tenant: str = "",
        weight: float = 1.0,
        first_token_by: float = inf,
        answer_by: float = inf,
        likely_tokens: int = 0,
        lengths: OutputReservation | None = None,
        is_streamed: bool = True,
    ) -> "Ticket":
        amounts = cost.amounts
        # Images that the engine knows are not encoded again, and what they are part of is probably in its prefix cache.
        text_tokens = max(0, cost.prompt_tokens.expected - cost.visual_tokens - cost.media_tokens)
        new_tokens = text_tokens + amounts.encoder_tokens
        return cls(
            amounts=amounts.with_prefill(new_tokens + REQUEST_TOKENS * amounts.sequences),
            arrived=arrived,
            deadline=arrived + wait_seconds,
            body_bytes=cost.body_bytes,
            # An empty prompt takes a place too: free turns would go on for ever.
            cost_tokens=max(1, cost.prompt_tokens.expected + OUTPUT_WEIGHT * cost.output_tokens * cost.answers),
            growth=cost.growth,
            prefill_kv_blocks=cost.prefill_kv_blocks,
            is_return=is_return,
            priority=priority,
            tenant=tenant,
            weight=weight,
            first_token_by=first_token_by,
            answer_by=answer_by,
            likely_tokens=likely_tokens,
            lengths=lengths,
            is_bounded=bool(cost.media),
            is_streamed=is_streamed,
        )

    @property
    def prefill_tokens(self) -> int:
        """What it takes to its first token, as pace.py counts."""
        return self.amounts.prefill_tokens + self.amounts.image_prefill_tokens

    def takes(self, resource: Resource) -> bool:
        """Any of it, now or, of what is to begin, once its images are decoded."""
        return self.amounts[resource] > 0 or (resource is Resource.PREFILL_TOKENS and self.is_image)

    def needs(self, held: Held, room: Amounts = NO_ROOM) -> Amounts:
        """What has to be free for it beside `room`; with images it waits for all that are to begin before it."""
        if not self.is_image:
            return self.amounts
        blocks, sequences, encoder_tokens, pixels, _, tokens = self.amounts
        tokens += room.prefill_tokens
        return Amounts(
            blocks + room.kv_blocks,
            sequences + room.sequences,
            encoder_tokens + room.encoder_tokens,
            pixels + room.preprocess_pixels,
            tokens + held(Resource.IMAGE_PREFILL_TOKENS),
            tokens + held(Resource.PREFILL_TOKENS),
        )

    def unfolding(self, blocks: int, generated_tokens: int = 0, grown_blocks: int = 0) -> Unfolding:
        """What its answers have yet to take, if it holds `blocks`. Of those that are not streamed nobody sees how far
        they are: they take all at once.
        """
        if not self.is_streamed:
            return Unfolding(blocks, blocks, may_outgrow=self.growth.may_outgrow)
        each_tokens = generated_tokens // self.growth.answers
        likely_tokens = self.lengths.reached_tokens(each_tokens) if self.lengths and generated_tokens else 0
        return self.growth.from_now(blocks, generated_tokens, likely_tokens, grown_blocks)

    @property
    def is_due(self) -> bool:
        """Something was asked of it that it can miss."""
        return self.first_token_by != inf or self.answer_by != inf

    @property
    def leaves_by(self) -> float:
        """When it leaves the line in vain."""
        return min(self.deadline, self.start_by)

    @property
    def is_image(self) -> bool:
        """It has images that the engine has yet to see."""
        return self.amounts.preprocess_pixels > 0
