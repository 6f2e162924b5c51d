"""Admit, wait or refuse: the decision itself.

Who comes while others wait, waits with them; order.py says who is next. One that does not fit is passed by those that
take nothing of what it is short of, and by others up to its own cost; then by nobody, and it gets in once enough is
free, alone if need be. Everything is synchronous, so nothing can change between looking at the budget and taking from
it. The shell around it (ledger/gate.py) wakes the waiters and keeps the clock.
"""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from math import inf

from gateway.domain.decision import Decision, Prospect, Refusal, Verdict
from gateway.domain.fit import Budget, Fit
from gateway.domain.forecast import Ahead, Forecast
from gateway.domain.holdings import Holdings
from gateway.domain.outcome import BUDGET_REASON, Reason
from gateway.domain.pressure import Pressure, Unmet, pressure_on_images, pressure_on_texts
from gateway.domain.promise import NO_PROMISE, DrainRate, Promises, RetryAdvice, departures_to_count_on
from gateway.domain.quantities import Amounts, Resource
from gateway.domain.queue import QueuePolicy, WaitQueue
from gateway.domain.shares_held import Waiting
from gateway.domain.text_room import TextRoom
from gateway.domain.ticket import NO_ROOM, Newcomer, Ticket

# After so many texts that have to wait, no further text is looked at; likewise images, which so never hide a text.
_MOST_BLOCKED = 8

# Between two looks at who in the line can no longer be served in time.
_SWEEP_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class AdmissionStatistics:
    """`promised` places not yet taken; `drain_per_second` None while unknown."""

    queue_depth: int
    queue_bytes: int
    queue_cost_tokens: int
    promised: int
    drain_per_second: float | None


class Admission:
    """One line of waiters before one budget. `jitter` gives numbers from 0 to 1; `forecast` is shared with whoever
    observes the engine's paces, `fit` with whoever knows the answers that are under way.
    """

    __slots__ = (
        "_budget",
        "_displaced",
        "_drain",
        "_fit",
        "_forecast",
        "_jitter",
        "_just_joined",
        "_paused_until",
        "_policy",
        "_promises",
        "_queue",
        "_short",
        "_swept_at",
        "_text_room",
        "_unmet",
    )

    def __init__(
        self,
        budget: Budget,
        policy: QueuePolicy,
        jitter: Callable[[], float],
        forecast: Forecast | None = None,
        fit: Fit | None = None,
    ) -> None:
        self._budget = budget
        self._fit = fit or Fit(budget)
        self._policy = policy
        self._jitter = jitter
        self._queue = WaitQueue(policy)
        self._promises = Promises()
        self._drain = DrainRate()
        self._forecast = forecast or Forecast()
        self._short = Resource.KV_BLOCKS
        self._displaced: list[tuple[Ticket, Decision]] = []
        self._just_joined: Ticket | None = None
        self._paused_until = -inf
        self._swept_at = -inf
        self._text_room = TextRoom()
        self._unmet = Unmet()

    @property
    def policy(self) -> QueuePolicy:
        return self._policy

    @property
    def next_deadline(self) -> float | None:
        """When `tick` must be called next even if nothing is given back; None: no need."""
        deadline = self._queue.next_deadline
        if deadline is None:
            return None
        deadline = min(deadline, self._fit.look_again_at)
        return deadline if self._paused_until == -inf else min(deadline, self._paused_until)

    def pause_until(self, until: float) -> None:
        """The engine turns requests away: nobody is let in before; who comes meanwhile waits."""
        self._paused_until = max(self._paused_until, until)

    def offer(self, ticket: Ticket, now: float) -> Decision:
        """A request arrives: it holds its amounts now (ADMITTED), stands in line (WAITING), or is refused.

        Call `tick` at once after WAITING: it may fit past the others, or have taken the place of one of them.
        """
        promise = self._promises.redeem(now, ticket.tenant) if ticket.is_return else None
        if promise is not None:
            ticket.first_token_by = min(ticket.first_token_by, promise.first_token_by)
            ticket.answer_by = min(ticket.answer_by, promise.answer_by)
            ticket.keeps_place = ticket.is_due
        if not ticket.is_image:
            self._text_room.came(ticket.amounts, now)
        if (late := self._late(ticket, now)) is not None:
            return late
        if not self._queue and now >= self._paused_until:
            short = self._try_reserve(ticket, now)
            if short is None:
                return Verdict.ADMITTED
            self._short = short
            if not self._policy.requests:
                return self._refusal(BUDGET_REASON[short], ticket, now)
        elif not self._policy.requests:
            advice = RetryAdvice(self._paused_until - now, is_promise=True)
            return Refusal(Reason.UPSTREAM_BACKPRESSURE, Resource.SEQUENCES, advice, 0, 0)
        obstacle = self._obstacle(ticket, now, is_expected=promise is not None)
        if obstacle is None:
            self._queue.join(ticket)
        elif (loser := self._queue.displaced_by(ticket)) is not None:
            self._displace(loser, ticket, now)
        else:
            return self._refusal(obstacle, ticket, now)
        self._drain.resume(now)
        self._forecast.waiting(ticket, now)
        self._just_joined = ticket
        return Verdict.WAITING

    def _late(self, ticket: Ticket, now: float) -> Refusal | None:
        """The refusal, if it would miss what was asked of it. One that would be alone is not refused for that.

        No promise goes with it: whoever comes back later is served later than one that waits.
        """
        if not ticket.is_due or not (self._queue or self._budget.held(Resource.SEQUENCES)):
            return None
        must_wait = bool(self._queue) or self._fit.shortage(ticket, ticket.needs(self._budget.held), now) is not None
        # What waiting takes one that keeps its place was looked at when that was promised.
        ahead = self._ahead_of(ticket) if must_wait and not ticket.keeps_place else None
        miss = self._forecast.miss(ticket, now, ahead, self._budget.held)
        if miss is None:
            ticket.start_by = self._forecast.start_by(ticket, self._budget.held)
            return None
        refusal = self._refusal(Reason.WOULD_MISS_DEADLINE, ticket, now)
        return refusal._replace(miss=miss, ahead=0 if ahead is None else ahead.requests)

    def _ahead_of(self, new: Ticket) -> Ahead:
        """While some are decoded, texts pass the images that wait for that."""
        passes_images = not new.is_image and self._budget.held(Resource.IMAGE_PREFILL_TOKENS) > 0
        ahead = (ticket for ticket in self._queue.ahead_of(new) if not (passes_images and ticket.is_image))
        return Ahead.of(ahead, self._promises.ahead_of(new.priority), self._queue.debt_tokens(new))

    def would_refuse(self, newcomer: Newcomer, now: float) -> Refusal | None:
        """What is certain before the body was read: with others waiting and no room among them, there is none."""
        obstacle = self._closed_to(newcomer, now)
        return None if obstacle is None else self._refusal(obstacle, newcomer, now)

    def has_room(self, newcomer: Newcomer, now: float) -> bool:
        """As `would_refuse` has it, without a promise to one that has none."""
        return self._closed_to(newcomer, now) is None

    def _closed_to(self, newcomer: Newcomer, now: float) -> Reason | None:
        if not self._queue:
            return None
        obstacle = self._obstacle(newcomer, now, is_expected=self.is_expected(newcomer, now))
        return obstacle if obstacle is None or self._queue.displaced_by(newcomer) is None else None

    def would_decide(self, ticket: Ticket, now: float) -> Prospect:
        """What `offer` and `tick` would say, tried on a copy: nothing is taken, joined or promised."""
        holdings = Holdings.of(self._budget.statistics())
        short = self._fit.before(holdings).shortage(ticket, ticket.amounts, now)
        trial, newcomer = self._copy(holdings), copy(ticket)
        decision = trial.offer(newcomer, now)
        if decision is Verdict.WAITING:
            decision = dict(trial.tick(now)).get(newcomer, decision)
        if decision is not Verdict.WAITING:
            return Prospect(decision, short)
        ahead = sum(1 for _ in self._queue.ahead_of(ticket))
        rate, pause_seconds = self._drain.per_second(now), max(0.0, self._paused_until - now)
        wait_seconds = pause_seconds + (ahead + 1) / rate if rate else pause_seconds or None
        return Prospect(decision, short, ahead, wait_seconds)

    def _copy(self, budget: Budget) -> "Admission":
        """One with the same tickets and promises before another budget, which goes its own way from now on."""
        other = Admission(budget, self._policy, self._jitter, self._forecast.copy(), self._fit.before(budget))
        other._queue, other._promises, other._drain = self._queue.copy(), self._promises.copy(), copy(self._drain)
        other._short, other._paused_until = self._short, self._paused_until
        other._text_room = copy(self._text_room)
        other._swept_at = self._swept_at
        return other

    def tick(self, now: float) -> list[tuple[Ticket, Decision]]:
        """Let in who is next while it fits, refuse whose time is up.

        Call after whatever may change that: WAITING, a give-back, more capacity, a withdrawal, a deadline.
        """
        decided, self._displaced = self._displaced, []
        self._fit.look_again_at = inf
        while (expired := self._queue.pop_expired(now)) is not None:
            reason = Reason.DEADLINE_PASSED if expired.deadline <= now else Reason.WOULD_MISS_DEADLINE
            self._forecast.left(expired, now)
            decided.append((expired, self._refusal(reason, expired, now)))
        if self._queue.due and now >= self._swept_at + _SWEEP_SECONDS:
            self._swept_at = now
            decided += self._sweep(now)
        while now >= self._paused_until and (admitted := self._let_in_next(now)) is not None:
            decided.append((admitted, Verdict.ADMITTED))
        self._just_joined = None
        if now >= self._paused_until:
            self._paused_until = -inf
        self._pause_if_empty(now)
        return decided

    def _sweep(self, now: float) -> list[tuple[Ticket, Decision]]:
        """Refuse those that wait though they can no longer be served in time."""
        if not self._budget.held(Resource.SEQUENCES):
            return []
        lost = self._forecast.lost(self._queue.in_turn(), now, self._budget.held)
        for ticket in lost:
            self._leave(ticket, now)
        return [(ticket, self._refusal(Reason.WOULD_MISS_DEADLINE, ticket, now)) for ticket in lost]

    def _let_in_next(self, now: float) -> Ticket | None:
        """It left the line and holds its amounts. None: nobody fits who may."""
        blocked: list[tuple[Ticket, Resource]] = []
        looks = [_MOST_BLOCKED, _MOST_BLOCKED]
        for ticket in self._queue.candidates(now):
            if not looks[ticket.is_image]:
                if not any(looks):
                    break
                continue
            if self._is_lost(ticket, now):
                continue
            short = self._barrier(ticket, blocked)
            if short is None:
                short = self._try_reserve(ticket, now)
            if short is None:
                self._admit(ticket, [ahead for ahead, missing in blocked if ticket.takes(missing)], now)
                return ticket
            if not blocked:
                self._short = short
            blocked.append((ticket, short))
            looks[ticket.is_image] -= 1
        return None

    def _try_reserve(self, ticket: Ticket, now: float) -> Resource | None:
        """None: it holds its amounts. While texts come and none waits, images that are due leave room for the next."""
        if ticket.is_image:
            short = self._fit.shortage(ticket, ticket.amounts, now)
            if short is None:  # else texts may pass it, while it waits for others to be decoded
                leaves_room = ticket.is_due and not self._queue.wanted_by_texts.sequences
                room = self._text_room.amounts(now, self._budget.capacity) if leaves_room else NO_ROOM
                short = self._fit.shortage(ticket, ticket.needs(self._budget.held, room), now)
            if short is not None:
                return short
        return self._fit.take(ticket, now)

    def _is_lost(self, ticket: Ticket, now: float) -> bool:
        """Too late even if let in now; the next sweep refuses it."""
        held = self._budget.held
        return ticket.is_due and held(Resource.SEQUENCES) > 0 and now > self._forecast.start_by(ticket, held)

    def _admit(self, ticket: Ticket, overtaken: list[Ticket], now: float) -> None:
        for ahead in overtaken:
            self._queue.overtake(ahead, ticket.cost_tokens)
        self._queue.admit(ticket, now, in_turn=not overtaken)
        # The place of one that never stood in line was not one that fell free.
        if ticket is not self._just_joined:
            self._drain.count(now)
            self._forecast.let_in(ticket, now)
        self._forecast.left(ticket, now)

    def _displace(self, loser: Ticket, newcomer: Ticket, now: float) -> None:
        self._leave(loser, now)
        self._queue.join(newcomer)
        reason = Reason.SHED_PRIORITY if loser.priority > newcomer.priority else Reason.QUEUE_FULL
        self._displaced.append((loser, self._refusal(reason, loser, now)))

    def _leave(self, ticket: Ticket, now: float) -> None:
        """Without having been let in. Raises KeyError if it does not wait."""
        self._queue.leave(ticket)
        self._forecast.left(ticket, now)

    def withdraw(self, ticket: Ticket, now: float) -> None:
        """The client of a waiting ticket left. Raises KeyError if it does not wait; `tick` then lets the next in."""
        self._leave(ticket, now)
        self._pause_if_empty(now)

    def give_back(self, amounts: Amounts) -> None:
        """An admitted request needs these no more; `tick` then lets waiters in."""
        self._budget.give_back(amounts)
        if amounts.kv_blocks:
            self._fit.forget_look()

    def waiting(self) -> Waiting:
        return self._queue.waiting()

    def statistics(self, now: float) -> AdmissionStatistics:
        return AdmissionStatistics(
            queue_depth=len(self._queue),
            queue_bytes=self._queue.body_bytes,
            queue_cost_tokens=self._queue.cost_tokens,
            promised=len(self._promises),
            drain_per_second=self._drain.per_second(now),
        )

    def pressure(self, now: float, *, on_images: bool) -> Pressure:
        """As a request meets it that comes now, with images or without."""
        unmet = self._unmet.share(self._budget.capacity, now, on_images=on_images)
        return self.pressure_of_who_is_here(on_images=on_images)._replace(unmet=unmet)

    def pressure_of_who_is_here(self, *, on_images: bool) -> Pressure:
        """The same but for those that were refused: the use that the engine is in."""
        holdings, queue = self._budget.whole(), self._queue
        if on_images:
            return pressure_on_images(holdings, queue.wanted_by_texts, queue.wanted_by_images)
        return pressure_on_texts(holdings, queue.wanted_by_texts)

    def is_expected(self, newcomer: Newcomer, now: float) -> bool:
        """It comes back as it was told, and a place is kept for it."""
        return newcomer.is_return and self._promises.is_due(now, newcomer.tenant)

    def promise_after(self, to: Newcomer, share: float, now: float, *, is_kept: bool) -> RetryAdvice:
        """For one that may come back when `share` (0 to 1) of those that wait have left. Unless `is_kept`, only what
        would be promised is told.
        """
        promises = self._promises if is_kept else self._promises.copy()
        return self._promise(promises, int(share * len(self._queue)) + 1, to, now)

    def _obstacle(self, newcomer: Ticket | Newcomer, now: float, *, is_expected: bool) -> Reason | None:
        obstacle = self._queue.obstacle(newcomer.body_bytes)
        if (
            obstacle is not None
            or is_expected
            or not self._promises
            or not self._promises.bind(newcomer, self._queue.places_of(newcomer.tenant))
        ):
            return obstacle
        # A newcomer's place must not be one that a promise needs.
        free_after = self._useful_places(now) - 1
        if self._promises.leave_room(now, self._drain.per_second(now), free_after):
            return None
        return Reason.QUEUE_FULL

    def _useful_places(self, now: float) -> int:
        """Free places from which the head is reached before the wait ends; negative: so many are too many."""
        free, rate = self._queue.free_places, self._drain.per_second(now)
        if rate is None:
            return free
        return min(free, int(rate * self._policy.wait_seconds) - len(self._queue))

    def _refusal(self, reason: Reason, to: Ticket | Newcomer, now: float) -> Refusal:
        if isinstance(to, Ticket):
            self._unmet.note(to.amounts, self._budget.capacity, now, has_images=to.is_image)
        if reason is Reason.WOULD_MISS_DEADLINE:
            return Refusal(reason, self._short, NO_PROMISE, len(self._queue), self._queue.body_bytes)
        missing = max(1 - self._useful_places(now), self._queue.departures_until_room(to.body_bytes))
        advice = self._promise(self._promises, missing, to, now)
        return Refusal(reason, self._short, advice, len(self._queue), self._queue.body_bytes)

    def _promise(self, promises: Promises, missing: int, to: Ticket | Newcomer, now: float) -> RetryAdvice:
        """A place, though behind all that wait now, there and of its flow, from which it is served in time."""
        rate, useful_until = self._drain.per_second(now), inf
        if rate and min(to.first_token_by, to.answer_by) < inf:
            line_seconds = departures_to_count_on(len(self._queue)) / rate
            flow_seconds = self._forecast.flow_seconds(to, self._queue.debt_tokens(to), now)
            useful_until = self._forecast.start_by(to, self._budget.held) - max(line_seconds, flow_seconds)
        return promises.promise(now, rate, missing, self._jitter(), to, useful_until)

    def _pause_if_empty(self, now: float) -> None:
        if not self._queue:
            self._drain.pause(now)
            self._forecast.nobody_waits(now)

    def _barrier(self, ticket: Ticket, blocked: list[tuple[Ticket, Resource]]) -> Resource | None:
        """What it must leave to one that is ahead of it and short of that; None: it may pass them all."""
        for ahead, short in blocked:
            if self._queue.overtaken_tokens(ahead) + ticket.cost_tokens > ahead.cost_tokens and ticket.takes(short):
                return short
        return None
