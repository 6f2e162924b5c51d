"""Leases of requests that are sent whatever is decided, so that later decisions come out as they would have.

Who would be admitted holds its amounts. Who would have to wait stands in line, and holds them from the moment in which
its turn has come. Who would be refused, at once or at the end of its wait, holds nothing. What is at the engine without
a place is kept apart (`Gate.unadmitted`): it is no load of others, and its preemptions are not the doing of those who
have one.

It is not quite what would have been: all of them slow each other down at the engine, so under overload places are held
for longer and fewer would be admitted than in earnest. `vlm-gateway replay` of the log comes closer.
"""

from gateway.domain.decision import Decision, Refusal, Verdict
from gateway.domain.errors import GatewayError
from gateway.domain.outcome import Ending
from gateway.domain.quantities import Amounts
from gateway.domain.ticket import Ticket
from gateway.ledger.gate import Gate
from gateway.ledger.lease import Lease


class UnadmittedLease(Lease):
    """Of a request that is at the engine and asked for no place there: it holds nothing."""

    __slots__ = ("_beside",)

    def __init__(self, gate: Gate, ticket: Ticket) -> None:
        super().__init__(gate, ticket, queue_seconds=0.0)
        gate.began(self)
        self._held = Amounts()
        self._beside = Amounts()
        self._take_beside(ticket.amounts)

    def grow(self, generated_tokens: int) -> None:
        """What is not held does not grow."""
        self._generated_tokens = generated_tokens

    def close(self, ending: Ending) -> None:
        """Raises RuntimeError when it is closed already."""
        self._take_beside(Amounts())
        super().close(ending)

    def _release_front(self) -> None:
        self._take_beside(Amounts(self._beside.kv_blocks, self._beside.sequences))
        super()._release_front()

    def _take_beside(self, amounts: Amounts) -> None:
        """What it takes of the engine without a place, from now on."""
        self._gate.unadmitted = self._gate.unadmitted.plus(self._beside, -1).plus(amounts)
        self._beside = amounts


class ShadowLease(UnadmittedLease):
    """As a lease, from its making on, and `decision` is what would have come of the request as far as is known.

    `would_wait_seconds` is how long it stood in line, until now if it still does.
    """

    __slots__ = ("_decided_at", "_is_decoded", "_is_front_through", "decision")

    def __init__(self, gate: Gate, ticket: Ticket) -> None:
        super().__init__(gate, ticket)
        self._decided_at: float | None = None
        self._is_decoded = self._is_front_through = False
        self.decision: Decision = Verdict.WAITING
        decision = gate.ask(ticket, self._decided)
        if decision is not Verdict.WAITING:
            self._decided(decision)
            # Asking takes some microseconds, or more where the process had to wait: it stood in no line meanwhile.
            self._decided_at = ticket.arrived

    @property
    def is_admitted(self) -> bool:
        return self.decision is Verdict.ADMITTED

    @property
    def would_wait_seconds(self) -> float:
        until = self._gate.now if self._decided_at is None else self._decided_at
        return until - self._ticket.arrived

    @property
    def refusal(self) -> GatewayError | None:
        """What its client would have been told."""
        return self.decision.error(self._gate.policy) if isinstance(self.decision, Refusal) else None

    def grow(self, generated_tokens: int) -> None:
        """It is caught up with once it is held."""
        super().grow(generated_tokens)
        if self.is_admitted:
            Lease.grow(self, generated_tokens)

    def close(self, ending: Ending) -> None:
        """Out of the line too. Raises RuntimeError when it is closed already."""
        if self.is_open and self._decided_at is None:
            self._decided_at = self._gate.now
            self._gate.withdraw(self._ticket)
        super().close(ending)

    def _decided(self, decision: Decision) -> None:
        self.decision = decision
        self._decided_at = self._gate.now
        if self.is_admitted:
            self._take_beside(Amounts())
            self._held = self._ticket.amounts
            if self._is_front_through:
                self._release_front()
            elif self._is_decoded:
                self._decoded()

    def _decoded(self) -> None:
        self._is_decoded = True
        super()._decoded()

    def _release_front(self) -> None:
        self._is_front_through = True
        super()._release_front()
