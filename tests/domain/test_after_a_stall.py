"""An engine that once took very long is not held against whoever comes when it is quick again.

What was learned of a line is kept while nobody waits. Were newcomers to an empty line refused by that, nobody would
ever wait again, and what was learned never change.
"""

import random
from collections import Counter
from math import inf

import pytest

from gateway.domain.admission import Admission
from gateway.domain.decision import Verdict
from gateway.domain.forecast import Forecast
from gateway.domain.holdings import Holdings
from gateway.domain.quantities import Amounts, Capacity
from gateway.domain.queue import QueuePolicy
from gateway.domain.ticket import Ticket

ANSWER_SECONDS = 0.3
STEP_SECONDS = 0.05
FIRST_TOKEN_SECONDS = 5.0
ARRIVALS_PER_SECOND = 2.5  # three quarters of what the engine can do


class OneSeat:
    """An engine that serves one after the other, and nobody until `stalled_until` once `stalls_at` has come."""

    def __init__(self, stalls_at: float, stalled_until: float) -> None:
        self.admission = Admission(Holdings(Capacity(None, 1)), QueuePolicy(), jitter=lambda: 0.0, forecast=Forecast())
        self.stall = stalls_at, stalled_until
        self.holder: Ticket | None = None
        self.ends = inf
        self.fates: Counter[str] = Counter()

    def step(self, now: float, *, comes: bool) -> None:
        if now >= self.ends:
            self.admission.give_back(self.holder.amounts)
            self.ends = inf
        self.tick(now)
        if comes:
            ticket = Ticket(
                Amounts(1, 1).with_prefill(600),
                now,
                now + 30,
                cost_tokens=600,
                first_token_by=now + FIRST_TOKEN_SECONDS,
            )
            decision = self.admission.offer(ticket, now)
            self.fates["came"] += 1
            self.fates["refused"] += decision not in {Verdict.ADMITTED, Verdict.WAITING}
            if decision is Verdict.ADMITTED:
                self.serve(ticket, now)
            self.tick(now)

    def tick(self, now: float) -> None:
        for ticket, decision in self.admission.tick(now):
            if decision is Verdict.ADMITTED:
                self.serve(ticket, now)

    def serve(self, ticket: Ticket, now: float) -> None:
        begins, ends = self.stall
        self.holder = ticket
        self.ends = max(now + ANSWER_SECONDS, ends if begins <= now < ends else 0.0)


@pytest.mark.parametrize("stall", [(0.0, 20.0), (30.0, 33.0), (30.0, 50.0)])
def test_after_a_stall_few_are_refused_again(stall):
    engine, chance = OneSeat(*stall), random.Random(1)
    steps = round(200 / STEP_SECONDS)
    settled_at = round(100 / STEP_SECONDS)
    for step in range(steps):
        if step == settled_at:
            engine.fates.clear()
        engine.step(step * STEP_SECONDS, comes=chance.random() < ARRIVALS_PER_SECOND * STEP_SECONDS)
    assert engine.fates["came"] > 200
    assert engine.fates["refused"] < engine.fates["came"] / 20
