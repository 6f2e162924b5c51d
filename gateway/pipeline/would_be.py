"""What would have become of a request that was sent anyhow. Values only; deciding is shadow.py's."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from gateway.domain.decision import Verdict
from gateway.domain.errors import GatewayError
from gateway.domain.image import ImagePlan
from gateway.domain.outcome import Fate
from gateway.ledger.shadow import ShadowLease

_A_WAIT_SECONDS = 0.001


@dataclass(frozen=True, slots=True)
class WouldBe:
    """`error` refuses it before the gate, `lease` stands for it there; one that needs no place has neither.

    `plans` and `trimmed` are its images as they would have been sent, `rungs` what the ladder would have done. The
    price that the exchange has is of what is sent, unless that has other images (`is_priced_as_sent`).
    """

    error: GatewayError | None = None
    lease: ShadowLease | None = None
    plans: Sequence[ImagePlan] = ()
    trimmed: Collection[int] = ()
    rungs: str = ""
    is_undecided: bool = False
    is_priced_as_sent: bool = True

    @property
    def fate(self) -> Fate:
        """As far as is known: one that stands in line may still be refused."""
        if self.is_undecided:
            return Fate.UNDECIDED
        if self.refusal is not None:
            return Fate.REFUSED
        if self.lease is None:
            return Fate.ADMITTED
        has_waited = self.lease.decision is Verdict.WAITING or self.lease.would_wait_seconds >= _A_WAIT_SECONDS
        return Fate.QUEUED if has_waited else Fate.ADMITTED

    @property
    def refusal(self) -> GatewayError | None:
        """What its client would have been told instead of an answer."""
        return self.error if self.error is not None or self.lease is None else self.lease.refusal

    @property
    def wait_seconds(self) -> float:
        return 0.0 if self.lease is None else self.lease.would_wait_seconds
