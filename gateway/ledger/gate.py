"""The asyncio shell around admission: requests wait here, and what they hold is an object.

All decisions are domain/admission.py's. Here are only the futures that waiters sleep on, one timer for the next
deadline, and the lease. Nothing is awaited between a decision and its effect.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from gateway.domain.admission import Admission, AdmissionStatistics, Decision, Prospect, Refusal, Verdict
from gateway.domain.holdings import HoldingsStatistics
from gateway.domain.learning import PreprocessRate
from gateway.domain.outcome import Ending
from gateway.domain.pressure import Pressure
from gateway.domain.promise import RetryAdvice
from gateway.domain.quantities import Amounts, Resource
from gateway.domain.queue import QueuePolicy
from gateway.domain.ticket import Newcomer, Ticket
from gateway.ledger.base import Ledger
from gateway.ledger.timing import CallLater, Timer


@dataclass(frozen=True, slots=True)
class GateStatistics:
    """One look at everything; `endings` counts closed leases, `preprocess_rate` is in pixels per second."""

    holdings: HoldingsStatistics
    admission: AdmissionStatistics
    leases: int
    endings: dict[Ending, int]
    preprocess_rate: float


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


class Lease:
    """What an admitted request holds, until it is closed: exactly once, however it ended.

    The pipeline's order: `sent`, for streams `first_event` and `grow`, then `close`; `abandon` in its `finally`.
    """

    __slots__ = ("_front_timer", "_gate", "_grown_blocks", "_held", "_pixels_in_sight", "_ticket", "queue_seconds")

    def __init__(self, gate: "Gate", ticket: Ticket, queue_seconds: float) -> None:
        self._gate = gate
        self._ticket = ticket
        self._held: Amounts | None = ticket.amounts
        self._grown_blocks = 0
        self._pixels_in_sight = 0
        self._front_timer: Timer | None = None
        self.queue_seconds = queue_seconds

    @property
    def is_open(self) -> bool:
        return self._held is not None

    @property
    def held(self) -> Amounts:
        """What it holds now; nothing once closed."""
        return self._held or Amounts()

    def sent(self, *, is_streamed: bool) -> None:
        """The body is on its way to the engine.

        A stream shows by its first event that its images are through. Any other answer does not: its images count as
        through once the engine's thread should be, by the learned rate.
        """
        pixels = self._ticket.amounts.preprocess_pixels
        if not pixels:
            return
        delay = self._gate.preprocessing_started(pixels)
        if is_streamed:
            self._pixels_in_sight = pixels
        else:
            self._gate.preprocessing_out_of_sight(pixels)
            self._front_timer = self._gate.call_later(delay, self._release_front)

    def first_event(self) -> None:
        """The first event of the stream came: encoder tokens and preprocessing are free. Later calls do nothing."""
        if self._pixels_in_sight:
            self._gate.preprocessing_seen_through(self._pixels_in_sight)
            self._pixels_in_sight = 0
        self._release_front()

    def grow(self, generated_tokens: int) -> None:
        """So many tokens (over all answers of the request) have been generated; beyond the reservation they cost."""
        blocks = self._ticket.growth.blocks(generated_tokens)
        more = blocks - self._grown_blocks
        if more <= 0 or self._held is None:
            return
        self._grown_blocks = blocks
        self._held = self._held._replace(kv_blocks=self._held.kv_blocks + more)
        self._gate.grow(Amounts(kv_blocks=more))

    def close(self, ending: Ending) -> None:
        """Give everything back. Raises RuntimeError when it is closed already."""
        held = self._held
        if held is None:
            raise RuntimeError("this lease was closed before")
        self._held = None
        if self._front_timer is not None:
            self._front_timer.cancel()
        if self._pixels_in_sight:
            self._gate.preprocessing_out_of_sight(self._pixels_in_sight)
            self._pixels_in_sight = 0
        self._gate.ended(held, ending)

    def abandon(self) -> None:
        """For `finally`: close, teaching nothing, unless that was done."""
        if self._held is not None:
            self.close(Ending.IGNORED)

    def _release_front(self) -> None:
        held = self._held
        if held is None or not (held.encoder_tokens or held.preprocess_pixels):
            return
        self._held = Amounts(held.kv_blocks, held.sequences)
        self._gate.give_back(Amounts(0, 0, held.encoder_tokens, held.preprocess_pixels))


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
    ) -> None:
        self._ledger = ledger
        self._admission = Admission(ledger, policy, jitter)
        self._clock = clock
        self.call_later = call_later
        self._rate = preprocess_rate or PreprocessRate()
        self._waiters: dict[Ticket, Callable[[Decision], None]] = {}
        self._timer: Timer | None = None
        self._timer_due = 0.0
        self._endings = dict.fromkeys(Ending, 0)
        self._leases = 0
        self.unadmitted = Amounts()
        self._follow_rate()

    async def start(self) -> None:
        await self._ledger.start(self.wake)

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

    def pressure(self, *, on_images: bool) -> Pressure:
        """On the engine, as a request meets it that comes now, with images or without."""
        return self._admission.pressure(on_images=on_images)

    def is_expected(self, newcomer: Newcomer) -> bool:
        """It comes back as it was told, and a place is kept for it."""
        return self._admission.is_expected(newcomer, self._clock())

    def promise_after(self, to: Newcomer, share: float, *, is_kept: bool = True) -> RetryAdvice:
        """For one that may come back when `share` (0 to 1) of those that wait have left. Unless `is_kept`, only what
        would be promised is told.
        """
        return self._admission.promise_after(to, share, self._clock(), is_kept=is_kept)

    async def admit(self, ticket: Ticket) -> Lease:
        """The lease, at once or after waiting. Raises GatewayError 429 (no room to wait) or 503 (waited in vain).

        Cancelling it leaves nothing behind, even in the moment in which it was admitted.
        """
        now = self._clock()
        decision = self._admission.offer(ticket, now)
        if decision is Verdict.WAITING:
            decision = await self._decided(ticket)
            now = self._clock()
        if isinstance(decision, Refusal):
            raise decision.error(self._admission.policy)
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
        self.began()
        return Lease(self, ticket, queue_seconds)

    def began(self) -> None:
        """A lease was opened, which will say when it `ended`."""
        self._leases += 1

    def withdraw(self, ticket: Ticket) -> None:
        """A request that waits is given up. Raises KeyError if it does not wait."""
        del self._waiters[ticket]
        self._admission.withdraw(ticket, self._clock())
        self.wake()

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

    def ended(self, amounts: Amounts, ending: Ending) -> None:
        """A lease was closed."""
        self._leases -= 1
        self._endings[ending] += 1
        self.give_back(amounts)

    def set_capacity(self, resource: Resource, capacity: int | None) -> None:
        """What was discovered or learned of the engine; None: not enforced."""
        self._ledger.set_capacity(resource, capacity)
        self.wake()

    def pause_until(self, until: float) -> None:
        """The engine turns requests away: nothing is sent before `until`, on this gate's clock."""
        self._admission.pause_until(until)
        self._arm()

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
            leases=self._leases,
            endings=dict(self._endings),
            preprocess_rate=self._rate.pixels_per_second,
        )

    def _follow_rate(self) -> None:
        self._ledger.set_capacity(Resource.PREPROCESS_PIXELS, self._rate.capacity_pixels)

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
