"""Any traffic before an engine with seats, one prefill at a time and a pace of answers; nothing here takes time.

The engine starts who comes first when a seat is free. It shows a first token once its prompt and all before it went
through prefill, and the end so many tokens later. `World` plays the gate: it tells the forecast what passes.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count
from math import inf

from gateway.domain.admission import Admission
from gateway.domain.decision import Refusal, Verdict
from gateway.domain.forecast import Forecast
from gateway.domain.holdings import Holdings
from gateway.domain.quantities import TO_FIRST_TOKEN, Amounts, Capacity, Resource, begun_before
from gateway.domain.queue import QueuePolicy
from gateway.domain.ticket import Ticket


@dataclass(eq=False)
class Guest:
    """One request and what became of it; times are None until then."""

    ticket: Ticket
    output_tokens: int
    sent: float | None = None
    behind_tokens: int = 0
    first: float | None = None
    end: float | None = None
    refusal: Refusal | None = None
    refused_at: float | None = None
    again: "Guest | None" = None

    @property
    def is_in_time(self) -> bool:
        return self.first is not None and self.first <= self.ticket.first_token_by

    @property
    def was_worth_coming_back(self) -> bool:
        """What was promised to it was kept, its time running since it came first."""
        return (
            self.again is not None and self.again.first is not None and self.again.first <= self.ticket.first_token_by
        )


@dataclass
class Engine:
    """`cold_seconds`: before that no first token comes."""

    seats: int = 8
    prefill_per_second: float = 20_000.0
    seconds_per_token: float = 0.02
    cold_seconds: float = 0.0
    seat_free_at: list[float] = field(default_factory=list)
    prefill_free_at: float = 0.0

    def take(self, now: float, guest: Guest) -> tuple[float, float]:
        """When its first token and its end come."""
        seated = now if len(self.seat_free_at) < self.seats else max(now, heapq.heappop(self.seat_free_at))
        begun = max(seated, self.prefill_free_at, self.cold_seconds)
        first = self.prefill_free_at = begun + guest.ticket.prefill_tokens / self.prefill_per_second
        end = first + guest.output_tokens * self.seconds_per_token
        heapq.heappush(self.seat_free_at, end)
        return first, end


class DecodedAtOnce(Holdings):
    """Of an engine that takes no time to decode an image."""

    def grow(self, amounts: Amounts) -> None:
        super().grow(amounts._replace(prefill_tokens=sum(amounts[Resource.PREFILL_TOKENS :]), image_prefill_tokens=0))


class World:
    """`comes_back` says after how many times the seconds that it was told a refused guest does, None: not at all."""

    def __init__(
        self,
        engine: Engine,
        *,
        target_seconds: float = 1.0,
        sequences: int | None = 128,
        policy: QueuePolicy | None = None,
        comes_back: Callable[[], float | None] = lambda: None,
    ) -> None:
        self.now = 0.0
        self.comes_back = comes_back
        self.engine = engine
        self.forecast = Forecast(begin_seconds=target_seconds)
        self.holdings = DecodedAtOnce(Capacity(None, sequences))
        self.door = Admission(self.holdings, policy or QueuePolicy(), jitter=lambda: 0.5, forecast=self.forecast)
        self.guests: dict[Ticket, Guest] = {}
        self.events: list[tuple[float, int, str, Guest]] = []
        self.number = count()
        self.follow()

    def come(self, ticket: Ticket, output_tokens: int) -> Guest:
        """At the time of its arrival, to which the world moves on."""
        self.move_to(ticket.arrived)
        guest = self.ask(ticket, output_tokens)
        self.tick()
        return guest

    def ask(self, ticket: Ticket, output_tokens: int) -> Guest:
        guest = self.guests[ticket] = Guest(ticket, output_tokens)
        decision = self.door.offer(ticket, self.now)
        if decision is Verdict.ADMITTED:
            self.send(guest)
        elif isinstance(decision, Refusal):
            self.refuse(guest, decision)
        return guest

    def refuse(self, guest: Guest, refusal: Refusal) -> None:
        guest.refusal, guest.refused_at = refusal, self.now
        times = self.comes_back() if refusal.advice.is_promise and not guest.ticket.is_return else None
        if times is not None:
            heapq.heappush(self.events, (self.now + times * refusal.advice.seconds, next(self.number), "back", guest))

    def come_back(self, guest: Guest) -> None:
        """As a new request: only the gateway knows since when its time runs."""
        ticket, waited = guest.ticket, self.now - guest.ticket.arrived
        due = {"deadline": ticket.deadline + waited, "first_token_by": ticket.first_token_by + waited, "start_by": inf}
        guest.again = self.ask(replace(ticket, arrived=self.now, is_return=True, **due), guest.output_tokens)

    def move_to(self, end: float) -> None:
        while (due := self.next_due()) is not None and due <= end:
            self.now = max(self.now, due)
            while self.events and self.events[0][0] <= self.now:
                _, _, what, guest = heapq.heappop(self.events)
                {"first": self.first_token, "end": self.leave, "back": self.come_back}[what](guest)
            self.tick()
        self.now = max(self.now, end)

    def next_due(self) -> float | None:
        dues = [due for due in (self.events[0][0] if self.events else None, self.door.next_deadline) if due is not None]
        return min(dues, default=None)

    def send(self, guest: Guest) -> None:
        before = begun_before(is_image=guest.ticket.is_image)
        guest.sent, guest.behind_tokens = self.now, sum(map(self.holdings.held, before))
        first, end = self.engine.take(self.now, guest)
        heapq.heappush(self.events, (first, next(self.number), "first", guest))
        heapq.heappush(self.events, (end, next(self.number), "end", guest))

    def first_token(self, guest: Guest) -> None:
        guest.first = self.now
        self.forecast.first_token.observe(guest.behind_tokens, self.now - guest.sent)
        self.follow()
        self.door.give_back(Amounts(prefill_tokens=guest.ticket.prefill_tokens))

    def leave(self, guest: Guest) -> None:
        guest.end = self.now
        self.forecast.token.observe(guest.output_tokens, self.now - guest.first, self.holdings.held(Resource.SEQUENCES))
        self.door.give_back(Amounts(*guest.ticket.amounts[: Resource.PREFILL_TOKENS]))

    def follow(self) -> None:
        for resource in TO_FIRST_TOKEN:
            self.holdings.set_capacity(resource, self.forecast.first_token.window_tokens)

    def tick(self) -> None:
        for ticket, decision in self.door.tick(self.now):
            if decision is Verdict.ADMITTED:
                self.send(self.guests[ticket])
            else:
                self.refuse(self.guests[ticket], decision)
