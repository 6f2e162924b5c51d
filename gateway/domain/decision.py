"""What admission says: admitted, waiting, or refused and why; values only.

The decision itself is admission.py's. What clients read of it is made here.
"""

from enum import Enum, auto
from typing import NamedTuple

from gateway.domain.errors import Code, GatewayError
from gateway.domain.forecast import Miss
from gateway.domain.outcome import Reason
from gateway.domain.promise import RetryAdvice
from gateway.domain.quantities import Resource
from gateway.domain.queue import QueuePolicy


class Verdict(Enum):
    ADMITTED = auto()
    WAITING = auto()
    SENT_AWAY = auto()
    """Another engine is to serve it."""


class Refusal(NamedTuple):
    """Why not, what the next in line is short of, and when to come back; the queue's depth and bytes just then.

    `miss` is what would have come too late, `ahead` how many go before it.
    """

    reason: Reason
    short: Resource
    advice: RetryAdvice
    queue_depth: int
    queue_bytes: int
    miss: Miss | None = None
    ahead: int = 0

    def error(self, policy: QueuePolicy) -> GatewayError:
        """The refusal as the client sees it."""
        is_overload = self.reason in (Reason.DEADLINE_PASSED, Reason.UPSTREAM_BACKPRESSURE)
        return GatewayError(
            Code.SERVER_IS_OVERLOADED if is_overload else Code.RATE_LIMIT_EXCEEDED,
            f"{self._story(policy)} Short at the engine: {self.short.label}. {self._advice()}",
            reason=self.reason,
            retry_after_seconds=self.advice.seconds,
            is_promise=self.advice.is_promise,
            short=self.short.label,
        )

    def _story(self, policy: QueuePolicy) -> str:
        story = "The engine is busy and this gateway keeps no queue."
        match self.reason:
            case Reason.SHED_PRIORITY:
                story = f"A more urgent request took the place of this one; {self.queue_depth} others wait."
            case Reason.WOULD_MISS_DEADLINE:
                story = self._late_story()
            case Reason.DEADLINE_PASSED:
                story = f"The request waited for its turn in vain, with {self.queue_depth} others still waiting."
            case Reason.UPSTREAM_BACKPRESSURE:
                story = "The model server turns requests away and this gateway keeps no queue."
            case Reason.QUEUE_BYTES:
                held = f"{self.queue_bytes} of {policy.body_bytes} bytes"
                story = f"Waiting requests hold {held}; this one has no room."
            case Reason.QUEUE_FULL if policy.requests:
                story = self._full_story(policy)
        return story

    def _late_story(self) -> str:
        miss = self.miss
        if miss is None:
            return f"The request waited until it could no longer be served in time; {self.queue_depth} others wait."
        return (
            f"The {miss.what} is expected within {miss.expected_seconds:.1f} s and is due in {miss.due_seconds:.1f} s; "
            f"{self.ahead} requests go before this one. Send it again when there is less to do, or smaller, or give it "
            "longer."
        )

    def _full_story(self, policy: QueuePolicy) -> str:
        if self.queue_depth >= policy.requests:
            return f"The queue is full: {self.queue_depth} requests wait."
        return (
            f"The queue has no place for this request: {self.queue_depth} of {policy.requests} are taken, "
            "and the others are kept for small bodies or promised to clients that were here before."
        )

    def _advice(self) -> str:
        if self.advice.is_promise:
            return f"A place is expected in {self.advice.seconds:.1f} s."
        return "No place is expected within a minute."


Decision = Verdict | Refusal


class Prospect(NamedTuple):
    """What would be decided of a newcomer, and `short`, of which there is too little for it now (None: it fits, or only
    others are in its way). For WAITING, how many come before it, and how long all of these and itself take at the
    present pace (None: not known yet).
    """

    decision: Decision
    short: Resource | None = None
    ahead: int = 0
    expected_wait_seconds: float | None = None
