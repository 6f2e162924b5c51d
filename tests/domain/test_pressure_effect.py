"""What the first rung is worth: photographs of 12 MP, three times as many as the engine can serve, with and without it.

A seeded simulation of ten minutes in front of one engine, whose images are decoded one after the other and whose
prompts are computed one after the other. All decisions are the domain's own. Run it for the figures:
`python -m tests.domain.test_pressure_effect`.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from math import inf
from random import Random

from gateway.domain.admission import Admission
from gateway.domain.cost import EngineLimits, estimate
from gateway.domain.decision import Refusal, Verdict
from gateway.domain.forecast import Forecast
from gateway.domain.geometry import Size
from gateway.domain.holdings import Holdings
from gateway.domain.image import ImageFormat, ImageInfo
from gateway.domain.pressure import Band, Ladder, Rung
from gateway.domain.quantities import Amounts, Bounds, Capacity, Resource
from gateway.domain.queue import QueuePolicy
from gateway.domain.request import ImageRef, MessageOutline, Span, VisionRequest
from gateway.domain.resize import Preset, ResizePolicy, plan_images
from gateway.domain.ticket import Ticket
from gateway.domain.vision.qwen_vl import QwenVL
from gateway.settings.pressure import ShrinkSettings

FAMILY = QwenVL("qwen2_5_vl", unit=28, min_pixels=3136, max_pixels=12845056)
LIMITS = EngineLimits(max_model_len=32_768, kv_blocks=4_000)
PIXELS_PER_SECOND, PROMPT_TOKENS_PER_SECOND, ANSWER_TOKENS_PER_SECOND = 20e6, 8_000, 40
PHOTO, TEXT_TOKENS, ANSWER_TOKENS = Size(4000, 3000), 200, 100
SECONDS, WAIT_SECONDS, LEVEL_SECONDS = 600.0, 30.0, 6.0
SHRINK = {Rung.SHRINK: Band(ShrinkSettings().enter, ShrinkSettings().leave)}

REF = ImageRef(0, (), "messages[0].content[0].image_url.url", Span(0, 0))
REQUEST = VisionRequest("m", messages=(MessageOutline("user", 0, (0,)),), images=(REF,))


@dataclass
class Seen:
    """How many of `offered` were served or refused, had their first token in time, were shrunk; how often the rung came
    and went.
    """

    offered: int = 0
    served: int = 0
    refused: int = 0
    in_time: int = 0
    shrunk: int = 0
    changes: int = 0


def ticket(now: float, first_token_seconds: float = inf, *, is_pressed: bool) -> Ticket:
    info = ImageInfo(ImageFormat.JPEG, PHOTO, PHOTO, 1, 1, 4_000_000, is_lossy=True)
    plans = plan_images([info], [REF], ResizePolicy(), FAMILY, {0: Preset.OCR} if is_pressed else {})
    cost = estimate(
        REQUEST,
        plans,
        [FAMILY.tokens(plan.target) for plan in plans],
        text=Bounds.exact(TEXT_TOKENS),
        output_tokens=ANSWER_TOKENS,
        limits=LIMITS,
    )
    return Ticket.of(cost, now, WAIT_SECONDS, first_token_by=now + first_token_seconds)


@dataclass
class Simulation:
    """`at` runs things in the order of their time; `…_free_at` is when a stage has done all that it was given."""

    bands: dict[Rung, Band]
    requests_per_second: float
    first_token_seconds: float = inf
    seen: Seen = field(default_factory=Seen)
    now: float = 0.0
    decoder_free_at: float = 0.0
    prefill_free_at: float = 0.0

    def __post_init__(self) -> None:
        holdings = Holdings(Capacity(LIMITS.admission_kv_blocks, 64, None, int(2 * PIXELS_PER_SECOND)))
        self.holdings, self.forecast = holdings, Forecast()
        self.admission = Admission(holdings, QueuePolicy(wait_seconds=WAIT_SECONDS), lambda: 0.5, self.forecast)
        self.ladder = Ladder(self.bands)
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.numbers, self.random = count(), Random(11)

    def at(self, when: float, what: Callable[[], None]) -> None:
        heapq.heappush(self.events, (when, next(self.numbers), what))

    def run(self) -> Seen:
        self.at(0.0, self.arrive)
        while self.events and self.events[0][0] < SECONDS:
            self.now, _, what = heapq.heappop(self.events)
            what()
            for admitted, decision in self.admission.tick(self.now):
                self.decide(admitted, decision)
        return self.seen

    def arrive(self) -> None:
        self.at(self.now + self.random.expovariate(self.requests_per_second), self.arrive)
        before, pressure = self.ladder.in_force, self.admission.pressure(self.now, on_images=True)
        in_force = self.ladder.observe(pressure.ratio, self.now, pressure.unmet)
        newcomer = ticket(self.now, self.first_token_seconds, is_pressed=Rung.SHRINK in in_force)
        self.seen.offered += 1
        self.seen.changes += in_force != before
        self.at(newcomer.deadline, lambda: None)
        self.decide(newcomer, self.admission.offer(newcomer, self.now))

    def decide(self, ticket: Ticket, decision: object) -> None:
        if decision is Verdict.ADMITTED:
            self.serve(ticket)
        elif isinstance(decision, Refusal):
            self.seen.refused += 1

    def serve(self, ticket: Ticket) -> None:
        taken, behind_tokens = ticket.amounts, self.holdings.held(Resource.IMAGE_PREFILL_TOKENS)
        decoded = max(self.now, self.decoder_free_at) + taken.preprocess_pixels / PIXELS_PER_SECOND
        first_token = max(decoded, self.prefill_free_at) + ticket.prefill_tokens / PROMPT_TOKENS_PER_SECOND
        self.decoder_free_at, self.prefill_free_at = decoded, first_token
        self.at(first_token, partial(self.first_token, ticket, behind_tokens, self.now))
        self.at(first_token + ANSWER_TOKENS / ANSWER_TOKENS_PER_SECOND, partial(self.end, ticket))
        self.seen.shrunk += taken.preprocess_pixels < PHOTO.pixels
        self.seen.in_time += first_token <= ticket.first_token_by

    def first_token(self, ticket: Ticket, behind_tokens: int, sent: float) -> None:
        """As the gate learns from it."""
        self.forecast.first_token.observe(behind_tokens, self.now - sent)
        self.holdings.set_capacity(Resource.IMAGE_PREFILL_TOKENS, self.window_tokens)
        self.admission.give_back(ticket.amounts._replace(kv_blocks=0, sequences=0))

    @property
    def window_tokens(self) -> int | None:
        """Without a level, nothing is too late to be sent."""
        return None if self.first_token_seconds == inf else self.forecast.first_token.window_tokens

    def end(self, ticket: Ticket) -> None:
        self.admission.give_back(Amounts(ticket.amounts.kv_blocks, ticket.amounts.sequences))
        self.seen.served += 1


def at_times_capacity(times: float, bands: dict[Rung, Band], first_token_seconds: float = inf) -> Seen:
    capacity = PROMPT_TOKENS_PER_SECOND / ticket(0.0, is_pressed=False).prefill_tokens
    return Simulation(bands, times * capacity, first_token_seconds).run()


def test_at_three_times_the_load_shrinking_serves_more_than_twice_as_many():
    off, on = at_times_capacity(3.0, {}), at_times_capacity(3.0, SHRINK)
    assert off.offered == on.offered
    assert (off.shrunk, off.changes) == (0, 0)
    assert on.served > 2.5 * off.served
    assert on.refused == 0 < off.refused


def test_where_those_are_refused_that_would_come_too_late_they_press_too():
    """The line stays short then, however many come."""
    off, on = (at_times_capacity(3.0, bands, LEVEL_SECONDS) for bands in ({}, SHRINK))
    assert min(off.in_time / off.served, on.in_time / on.served) > 0.99
    assert on.served > 2 * off.served


def test_what_the_engine_can_serve_is_not_made_smaller():
    seen = at_times_capacity(0.7, SHRINK)
    assert (seen.refused, seen.shrunk) == (0, 0)


if __name__ == "__main__":
    for level in (inf, LEVEL_SECONDS):
        for load in (0.7, 1.0, 1.5, 3.0, 5.0):
            off, on = (at_times_capacity(load, bands, level) for bands in ({}, SHRINK))
            more = f"{on.served / off.served:.2f} times as many served"
            print(f"first token in {level} s, {load} times the capacity: {more}\n  off {off}\n  on  {on}")
