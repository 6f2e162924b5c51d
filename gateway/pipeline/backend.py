"""One upstream and all that is its own: what it serves, the gate before it, the client to it, and what follows it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from gateway.domain.breaker import Breaker
from gateway.domain.ticket import Newcomer, Ticket
from gateway.ledger.gate import Gate
from gateway.models.served import ModelTable
from gateway.pipeline.calibration import Calibrator
from gateway.pipeline.follow import EngineFollower
from gateway.pipeline.model_search import ModelSearch
from gateway.pipeline.text_sample import TextSampler
from gateway.upstream.client import UpstreamClient
from gateway.upstream.poll import Poller

if TYPE_CHECKING:
    from gateway.pipeline.exchange import Exchange


@dataclass(frozen=True, slots=True)
class Backend:
    """`name` is the operator's, a label of metrics. `unseen` are the exchanges under way there whose answers show
    nothing until their end, by request id (unseen.py); `waiting` those that could still be served by another server.
    """

    name: str
    models: ModelTable
    gate: Gate
    upstream: UpstreamClient
    follower: EngineFollower
    poller: Poller
    search: ModelSearch
    calibrator: Calibrator
    sampler: TextSampler
    breaker: Breaker = field(default_factory=Breaker)
    unseen: "dict[str, Exchange]" = field(default_factory=dict)
    waiting: "dict[Ticket, Exchange]" = field(default_factory=dict)

    def is_healthy(self, now: float) -> bool:
        """Requests go there where there is a choice."""
        return self.models.engine.is_up and self.breaker.allows(now)


def troubles_of(backends: Sequence[Backend]) -> list[str]:
    """A sentence about each that could not serve anybody when it was last looked at."""
    is_alone = len(backends) == 1
    return [_trouble(backend, is_alone=is_alone) for backend in backends if not backend.poller.state.is_up]


def remarks_of(backends: Sequence[Backend]) -> list[str]:
    """A sentence about each that is served though something is amiss."""
    standings = [(backend.name, backend.gate.standing) for backend in backends]
    return [
        f"the shared budget of {name} cannot be reached in Redis: this gateway uses a fixed share, "
        f"one of {standing.gateways}"
        for name, standing in standings
        if standing is not None and standing.is_cut_off
    ]


def _trouble(backend: Backend, *, is_alone: bool) -> str:
    state = backend.poller.state
    which = "the model server" if is_alone else f"the model server {backend.name}"
    return f"{which} is {'still loading or not there yet' if state.is_loading else 'down'}: {state.trouble}"


def refuse_if_all_full(backends: Sequence[Backend], ask: Callable[[], Newcomer]) -> None:
    """For the door, which does not know yet whom the request is for. Raises GatewayError 429 where none could let it
    wait: that of the one which expects a place soonest, and only there one is promised. `ask` says who comes.
    """
    for backend in backends:
        if not backend.gate.has_waiters:
            return
    newcomer = ask()
    if len(backends) > 1 and any(backend.gate.has_room(newcomer) for backend in backends):
        return
    soonest = backends[0] if len(backends) == 1 else min(backends, key=partial(_seconds_to_a_place, newcomer))
    soonest.gate.refuse_if_full(newcomer)


def _seconds_to_a_place(newcomer: Newcomer, backend: Backend) -> float:
    return backend.gate.promise_after(newcomer, 0.0, is_kept=False).seconds
