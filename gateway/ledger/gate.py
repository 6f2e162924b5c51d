"""The asyncio shell around admission: requests wait here, and what they hold is an object.

All decisions are domain/admission.py's. Here are only the futures that waiters sleep on, and one timer for the
next deadline. Nothing is awaited between a decision and its effect.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from gateway.domain.admission import Admission, AdmissionStatistics
from gateway.domain.decision import Decision, Prospect, Refusal, Verdict
from gateway.domain.fit import Fit
from gateway.domain.forecast import Forecast
from gateway.domain.holdings import HoldingsStatistics
from gateway.domain.learning import PreprocessRate
from gateway.domain.outcome import Ending
from gateway.domain.pressure import Pressure
from gateway.domain.promise import RetryAdvice
from gateway.domain.quantities import TO_FIRST_TOKEN, Amounts, Resource, begun_before
from gateway.domain.queue import QueuePolicy
from gateway.domain.ticket import Newcomer, Ticket
from gateway.domain.unfolding import BlocksAhead, Unfolding
from gateway.ledger.base import Ledger, SharedStanding
from gateway.ledger.lease import Lease
from gateway.ledger.timing import CallLater, Timer


@dataclass(frozen=True, slots=True)
class GateStatistics:
    """One look at everything; `endings` counts closed leases, `preprocess_rate` is in pixels per second."""

    holdings: HoldingsStatistics
    admission: AdmissionStatistics
    leases: int
    endings: dict[Ending, int]
    preprocess_rate: float


class SentAwayError(Exception):
    """The request waited, and is to be served by another engine."""


class _Sleeper:
    """A task that waits and what was decided about it; the future only wakes it up."""

    __slots__ = ("decision", "future")

    def __init__(self, future: asyncio.Future[None]) -> None:
        self.future = future
        self.decision: Decision = Verdict.WAITING

    def decided(self, decision: Decision) -> None:
        self.decision = decision
        # A cancelled future wakes its task too; the task then sees the decision and undoes it.
        if not self.future.done():
            self.future.set_result(None)


class Gate:
    """Admission to one engine for the tasks of one event loop.

    `clock` and `call_later` are the loop's own in production (`loop.time`, `loop.call_later`); `jitter` gives numbers
    from 0 to 1. `unadmitted` is what requests take of the engine that were sent without a place (shadow.py).
    """

    def __init__(
        self,
        ledger: Ledger,
        policy: QueuePolicy,
        *,
        clock: Callable[[], float],
        call_later: CallLater,
        jitter: Callable[[], float],
        preprocess_rate: PreprocessRate | None = None,
        forecast: Forecast | None = None,
    ) -> None:
        self._ledger = ledger
        self._forecast = forecast or Forecast()
        self._sequences = ledger.whole().capacity[Resource.SEQUENCES]
        self._open: set[Lease] = set()
        self._fit = Fit(ledger, self._unfolding)
        self._admission = Admission(ledger, policy, jitter, self._forecast, self._fit)
        self._clock = clock
        self.call_later = call_later
        self._rate = preprocess_rate or PreprocessRate()
        self._waiters: dict[Ticket, Callable[[Decision], None]] = {}
        self._timer: Timer | None = None
        self._timer_due = 0.0
        self._endings = dict.fromkeys(Ending, 0)
        self.unadmitted = Amounts()
        self._follow_rate()
        self._follow_pace()

    async def start(self) -> None:
        await self._ledger.start(self.wake, self._admission.waiting)

    async def stop(self) -> None:
        """Ends the background work of the ledger and the deadline timer; leases are closed by their owners."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        await self._ledger.stop()

    def refuse_if_full(self, newcomer: Newcomer) -> None:
        """For the door, before the body is read. Raises GatewayError 429 where waiting is already impossible."""
        refusal = self._admission.would_refuse(newcomer, self._clock())
        if refusal is not None:
            raise refusal.error(self._admission.policy)

    @property
    def has_waiters(self) -> bool:
        return bool(self._waiters)

    def has_room(self, newcomer: Newcomer) -> bool:
        """`refuse_if_full` would let it by; nothing is promised."""
        return self._admission.has_room(newcomer, self._clock())

    def would_decide(self, ticket: Ticket) -> Prospect:
        """What `admit` would come to, without asking for anything."""
        return self._admission.would_decide(ticket, self._clock())

    @property
    def policy(self) -> QueuePolicy:
        return self._admission.policy

    @property
    def now(self) -> float:
        return self._clock()

    @property
    def capacity(self) -> tuple[int | None, ...]:
        """What may be held just now, by Resource; None: not enforced."""
        return self._ledger.capacity

    def whole(self) -> HoldingsStatistics:
        """What the engine has in all, whoever has it, and with what other gateways hold and want of it."""
        return self._ledger.whole()

    @property
    def standing(self) -> SharedStanding | None:
        """None: no other gateway shares the budget."""
        return self._ledger.standing

    def pressure(self, *, on_images: bool) -> Pressure:
        """On the engine, as a request meets it that comes now, with images or without."""
        return self._admission.pressure(self._clock(), on_images=on_images)

    def utilisation(self, *, on_images: bool) -> float:
        """The ratio of the pressure, which is all that choosing among engines asks for."""
        return self._admission.pressure_of_who_is_here(on_images=on_images).ratio

    def is_expected(self, newcomer: Newcomer) -> bool:
        """It comes back as it was told, and a place is kept for it."""
        return self._admission.is_expected(newcomer, self._clock())

    def promise_after(self, to: Newcomer, share: float, *, is_kept: bool = True) -> RetryAdvice:
        """For one that may come back when `share` (0 to 1) of those that wait have left. Unless `is_kept`, only what
        would be promised is told.
        """
        return self._admission.promise_after(to, share, self._clock(), is_kept=is_kept)

    async def admit(self, ticket: Ticket) -> Lease:
        """The lease, at once or after waiting. Raises GatewayError 429 (no room to wait) or 503 (waited in vain), and
        SentAwayError.

        Cancelling it leaves nothing behind, even in the moment in which it was admitted.
        """
        now = self._clock()
        decision = self._admission.offer(ticket, now)
        if decision is Verdict.WAITING:
            decision = await self._decided(ticket)
            now = self._clock()
        if isinstance(decision, Refusal):
            raise decision.error(self._admission.policy)
        if decision is Verdict.SENT_AWAY:
            raise SentAwayError
        return self.lease(ticket, now - ticket.arrived)

    def ask(self, ticket: Ticket, decided: Callable[[Decision], None]) -> Decision:
        """`admit` for those who do not sleep. After WAITING `decided` is told what became of it, once, be it before
        this returns; unless it is withdrawn. Who is ADMITTED holds its amounts, and takes the `lease` at once.
        """
        decision = self._admission.offer(ticket, self._clock())
        if decision is Verdict.WAITING:
            self._waiters[ticket] = decided
            self.wake()
        return decision

    def lease(self, ticket: Ticket, queue_seconds: float) -> Lease:
        """Of one that was just ADMITTED."""
        lease = Lease(self, ticket, queue_seconds)
        self.began(lease)
        return lease

    def began(self, lease: Lease) -> None:
        """It was opened, and will say when it `ended`."""
        self._open.add(lease)

    def withdraw(self, ticket: Ticket) -> None:
        """A request that waits is given up. Raises KeyError if it does not wait."""
        del self._waiters[ticket]
        self._admission.withdraw(ticket, self._clock())
        self.wake()

    def send_away(self, ticket: Ticket) -> None:
        """A request that waits is to be served elsewhere; does nothing if it does not wait any more."""
        decided = self._waiters.get(ticket)
        if decided is not None:
            self.withdraw(ticket)
            decided(Verdict.SENT_AWAY)

    async def _decided(self, ticket: Ticket) -> Decision:
        sleeper = _Sleeper(asyncio.get_running_loop().create_future())
        self._waiters[ticket] = sleeper.decided
        self.wake()
        try:
            await sleeper.future
        except BaseException:
            self._undo(ticket, sleeper)
            raise
        return sleeper.decision

    def _undo(self, ticket: Ticket, sleeper: _Sleeper) -> None:
        """The client left: out of the line, or, if it was admitted in this very moment, back with what it holds."""
        if sleeper.decision is Verdict.WAITING:
            self.withdraw(ticket)
        elif sleeper.decision is Verdict.ADMITTED:
            self.give_back(ticket.amounts)

    def wake(self) -> None:
        """Let in who fits now, refuse whose time is up."""
        if not self._waiters:
            return
        for ticket, decision in self._admission.tick(self._clock()):
            self._waiters.pop(ticket)(decision)
        self._arm()

    def give_back(self, amounts: Amounts) -> None:
        self._admission.give_back(amounts)
        self.wake()

    def grow(self, amounts: Amounts) -> None:
        self._ledger.grow(amounts)

    def ended(self, lease: Lease, amounts: Amounts, ending: Ending) -> None:
        """It was closed, and held `amounts` to the end."""
        self._open.discard(lease)
        self._endings[ending] += 1
        self.give_back(amounts)

    def set_capacity(self, resource: Resource, capacity: int | None) -> None:
        """What was discovered or learned of the engine; None: not enforced."""
        if resource is Resource.SEQUENCES:
            self._sequences = capacity
            self._limit_sequences()
        else:
            self._ledger.set_capacity(resource, capacity)
        self.wake()

    def set_growth_room(self, blocks: int | None) -> None:
        """Of the pool, what the capacity leaves free for answers that outgrow their reservation; None: not known."""
        self._fit.growth_room_blocks = blocks

    def pause_until(self, until: float) -> None:
        """The engine turns requests away: nothing is sent before `until`, on this gate's clock."""
        self._admission.pause_until(until)
        self._arm()

    @property
    def has_levels(self) -> bool:
        """What is on its way to the first token is bounded, by levels of service."""
        return self._forecast.is_bound

    def tokens_to_begin(self, ticket: Ticket) -> int:
        """On their way to the first token, and not passed by such a request."""
        before = begun_before(is_image=ticket.is_image)
        return sum(self._ledger.held(resource) + self.unadmitted[resource] for resource in before)

    def first_token_seconds(self, ticket: Ticket) -> float:
        """How long what is on its way takes to its first token; 0 while that is not known."""
        return self._forecast.first_token.seconds(self.tokens_to_begin(ticket))

    def first_token_came(self, tokens: int, seconds: float) -> None:
        """It came `seconds` after its request was sent; `tokens` were on their way then, its own among them."""
        self._forecast.first_token.observe(tokens, seconds)
        if self._forecast.is_bound:
            self._follow_pace()

    def generated(self, tokens: int, seconds: float) -> None:
        """All `tokens` of an answer came within `seconds` from the first of them."""
        sequences = self._ledger.held(Resource.SEQUENCES) + self.unadmitted.sequences
        self._forecast.token.observe(tokens, seconds, sequences)
        if self._forecast.is_bound:
            self._limit_sequences()

    def preprocessing_started(self, pixels: int) -> float:
        """`pixels` were sent; returns the seconds after which the engine's thread should be through with them."""
        now = self._clock()
        return self._rate.sent(now, pixels) - now

    def preprocessing_seen_through(self, pixels: int) -> None:
        self._rate.seen_through(self._clock(), pixels)
        self._follow_rate()

    def preprocessing_out_of_sight(self, pixels: int) -> None:
        self._rate.lost_sight(self._clock(), pixels)

    def statistics(self) -> GateStatistics:
        return GateStatistics(
            holdings=self._ledger.statistics(),
            admission=self._admission.statistics(self._clock()),
            leases=len(self._open),
            endings=dict(self._endings),
            preprocess_rate=self._rate.pixels_per_second,
        )

    def holdings(self) -> HoldingsStatistics:
        """With what of the KV blocks overlaps, which is looked for anew."""
        ahead = (
            BlocksAhead(self._unfolding(as_begun=True)) if self._fit.growth_room_blocks is not None else BlocksAhead()
        )
        overlap_blocks = max(0, ahead.held_blocks - ahead.most_blocks())
        return replace(self._ledger.statistics(), overlap_blocks=overlap_blocks)

    def _unfolding(self, *, as_begun: bool = False) -> list[Unfolding]:
        return [lease.unfolding(as_begun=as_begun) for lease in self._open if lease.held.kv_blocks]

    def _follow_rate(self) -> None:
        self._ledger.set_capacity(Resource.PREPROCESS_PIXELS, self._rate.capacity_pixels)

    def _limit_sequences(self) -> None:
        limits = [limit for limit in (self._sequences, self._forecast.most_sequences) if limit is not None]
        self._ledger.set_capacity(Resource.SEQUENCES, min(limits, default=None))

    def _follow_pace(self) -> None:
        for resource in TO_FIRST_TOKEN:
            self._ledger.set_capacity(resource, self._forecast.first_token.window_tokens)

    def _arm(self) -> None:
        """One timer, for the next deadline; one that fires too early only looks again."""
        due = self._admission.next_deadline
        if due is None or (self._timer is not None and self._timer_due <= due):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due = due
        self._timer = self.call_later(max(0.0, due - self._clock()), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.wake()
