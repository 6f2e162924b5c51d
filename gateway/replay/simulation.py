"""One day under one configuration: the gateway's own gate in virtual time, before an engine that only takes time."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from gateway.domain.cost import EngineLimits, growth_room_blocks
from gateway.domain.errors import GatewayError
from gateway.domain.forecast import Forecast
from gateway.domain.learning import PreprocessRate
from gateway.domain.outcome import Fate
from gateway.domain.pressure import PressurePolicy
from gateway.domain.quantities import Capacity, Resource
from gateway.domain.queue import QueuePolicy
from gateway.domain.slo import ServiceLevel
from gateway.domain.tenancy import DEFAULT_CLASS, Tenant
from gateway.ledger.gate import Gate
from gateway.ledger.local import LocalLedger
from gateway.models.served import ModelTable
from gateway.pipeline.exchange import Policies
from gateway.pipeline.story import refuse_what_is_late, ticket_of
from gateway.replay.ladder import LadderReplay
from gateway.replay.lines import Line
from gateway.replay.pace import Recording
from gateway.replay.pricing import EngineSettings, Pricer
from gateway.replay.tally import Ended, as_recorded
from gateway.replay.virtual_time import VirtualTime
from gateway.replay.visit import Place, Visit

PROGRESS_LINES = 1000


@dataclass(frozen=True, slots=True)
class Configuration:
    """What a day is decided by: settings as the deciders take them. `tenants` by their class.

    `engine_of` and `models_of` are asked once for each model server of the log, by its name.
    """

    policies: Policies
    engine_of: Callable[[str | None], EngineSettings]
    models_of: Callable[[str | None], ModelTable]
    queue: QueuePolicy
    preprocess_backlog_seconds: float
    soonest: ServiceLevel
    tenants: Mapping[str, Tenant]
    pressure: PressurePolicy | None = None

    def tenant(self, line: Line) -> Tenant:
        """Whose the request would be. Keys are not in the log, so each flow stays what it was."""
        settings = self.tenants.get(line.tenant) or self.tenants[DEFAULT_CLASS]
        return replace(settings, name=line.flow)


class Simulation:
    """`on_ended` is told once of each request that was a matter of an engine, in the order in which they end.

    Each goes to the model server that it went to; `recordings` are of these, by name.
    """

    def __init__(
        self,
        configuration: Configuration,
        recordings: Mapping[str | None, Recording],
        on_ended: Callable[[Line, Ended], None],
    ) -> None:
        self._time = VirtualTime(0.0)
        self._on_ended = on_ended
        self._servers = {
            name: _Server(configuration, name, self._time, recording, on_ended)
            for name, recording in recordings.items()
        }

    def run(self, lines: Sequence[Line], on_progress: Callable[[], None] = lambda: None) -> None:
        """`lines` in the order in which they asked for their places; `on_progress` is called after each thousand."""
        alike = _Alike(lines)
        for number, line in enumerate(lines):
            self._time.run_until(line.offered)
            self._arrive(number, line, alike)
            if number % PROGRESS_LINES == PROGRESS_LINES - 1:
                on_progress()
        self._time.run_out()
        for server in self._servers.values():
            server.assert_empty()

    def _arrive(self, number: int, line: Line, alike: "_Alike") -> None:
        if line.is_priced:
            alike.note(line)
            self._servers[line.upstream].offer(number, line)
        elif line.is_unread and (priced := alike.find(line)) is not None:
            self._servers[priced.upstream].offer(number, priced)
        elif (ended := as_recorded(line)) is not None:
            self._on_ended(line, ended)


class _Server:
    """One engine with the gate before it."""

    def __init__(
        self,
        configuration: Configuration,
        name: str | None,
        time: VirtualTime,
        recording: Recording,
        on_ended: Callable[[Line, Ended], None],
    ) -> None:
        self._configuration = configuration
        self._engine = configuration.engine_of(name)
        gate, pressure = _gate(configuration, self._engine, time), configuration.pressure
        ladder = None if pressure is None else LadderReplay(pressure, gate, time)
        self._pricer = Pricer(configuration.policies, configuration.models_of(name), self._engine, ladder)
        self._place = Place(gate, time, recording, set(), on_ended)
        self._recorded_capacity: tuple[int | None, ...] | None = None

    def offer(self, number: int, line: Line) -> None:
        """The log's `number`th request asks for its place, at once."""
        if line.capacity is not None and line.capacity != self._recorded_capacity:
            self._recorded_capacity = line.capacity
            self._follow(line.capacity)
        now = self._place.time.now
        try:
            priced = self._pricer.price(line, self._configuration.tenant(line))
            refuse_what_is_late(priced.exchange, now)
        except GatewayError as refusal:
            self._place.on_ended(line, Ended(Fate.REFUSED, refusal.reason))
            return
        ticket = ticket_of(self._pricer.rules, priced.exchange, priced.cost, now)
        Visit(self._place, number, line, priced, ticket).begin()

    def assert_empty(self) -> None:
        """At the end of the day."""
        statistics = self._place.gate.statistics()
        assert not statistics.leases, "every lease comes back"
        assert not statistics.admission.queue_depth, "nobody waits for ever"

    def _follow(self, recorded: tuple[int | None, ...]) -> None:
        """What the settings leave open is as large as it was."""
        for resource, setting in zip(Resource, self._engine, strict=False):
            if setting is None:
                self._place.gate.set_capacity(resource, recorded[resource])
        if self._engine.kv_blocks is None and (blocks := recorded[Resource.KV_BLOCKS]) is not None:
            # A twentieth of the pool was taken off it.
            self._place.gate.set_growth_room(growth_room_blocks(blocks * 20 // 19))


def _gate(configuration: Configuration, engine: EngineSettings, time: VirtualTime) -> Gate:
    blocks = EngineLimits(kv_blocks=engine.kv_blocks).admission_kv_blocks
    gate = Gate(
        LocalLedger(Capacity(blocks, engine.sequences, engine.encoder_tokens)),
        configuration.queue,
        clock=time,
        call_later=time.call_later,
        jitter=random.Random(0).random,  # noqa: S311 - the same each time
        preprocess_rate=PreprocessRate(configuration.preprocess_backlog_seconds),
        forecast=Forecast.of(configuration.soonest),
    )
    if engine.kv_blocks is not None:
        gate.set_growth_room(growth_room_blocks(engine.kv_blocks))
    return gate


class _Alike:
    """Finds a request like one whose body nobody read: the last before it of the same flow and about the same size,
    else of the same flow, else of anybody.
    """

    def __init__(self, lines: Sequence[Line]) -> None:
        self._last: dict[object, Line] = {}
        first = next((line for line in lines if line.is_priced), None)
        if first is not None:
            self._last[None] = first

    def note(self, line: Line) -> None:
        self._last[line.flow, line.body_bytes.bit_length()] = self._last[line.flow] = self._last[None] = line

    def find(self, unread: Line) -> Line | None:
        """As if `unread` had been read; None where no line of the log says what anything costs."""
        keys = ((unread.flow, unread.body_bytes.bit_length()), unread.flow, None)
        like = next((self._last[key] for key in keys if key in self._last), None)
        if like is None:
            return None
        return msgspec.structs.replace(
            like,
            arrived=unread.arrived,
            outcome=unread.outcome,
            reason=unread.reason,
            tenant=unread.tenant,
            tenant_id=unread.tenant_id,
            asked_priority=unread.asked_priority,
            deadline_ms=unread.deadline_ms,
            is_return=unread.is_return,
            body_bytes=unread.body_bytes or like.body_bytes,
            upstream_status=None,
            offered_ms=None,
            queue_ms=0.0,
            total_ms=unread.total_ms,
        )
