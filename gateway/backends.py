"""Part of the composition: each upstream of the settings becomes a backend, with what looks at it and follows it."""

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from gateway.access import withheld_of
from gateway.domain.breaker import Breaker
from gateway.domain.forecast import Forecast
from gateway.domain.learning import PreprocessRate
from gateway.domain.quantities import Capacity
from gateway.domain.queue import QueuePolicy
from gateway.ledger.gate import Gate
from gateway.ledger.timing import Timing
from gateway.models.places import Places
from gateway.models.served import ModelTable, ServedModel
from gateway.pipeline.backend import Backend
from gateway.pipeline.calibration import Calibrator
from gateway.pipeline.evacuation import evacuate
from gateway.pipeline.exchange import Exchange
from gateway.pipeline.follow import EngineFollower
from gateway.pipeline.model_search import ModelSearch
from gateway.pipeline.text_sample import TextSampler
from gateway.pipeline.unseen import grow_unseen
from gateway.pipeline.work_watch import WorkWatch
from gateway.policies import (
    UNHURRIED_SECONDS,
    UpstreamPolicy,
    calibration_ways_of,
    engine_of,
    preprocess_backlog_seconds_of,
    queue_policy_of,
    soonest_level,
    upstreams_of,
)
from gateway.settings import Settings
from gateway.sharing import ledger_of
from gateway.telemetry.declarations import ONLY_UPSTREAM
from gateway.telemetry.metrics import Metrics
from gateway.upstream.client import UpstreamClient, UpstreamTimeouts
from gateway.upstream.counting import Counter
from gateway.upstream.pages import Pages
from gateway.upstream.poll import Poller
from gateway.upstream.state import PollPace, UpstreamState
from gateway.upstream.tls import UpstreamTls

_SAMPLE_SECONDS = 5.0
_FREE_SEQUENCES = 128


def compose_backends(
    settings: Settings,
    models: Sequence[ServedModel],
    metrics: Metrics,
    *,
    body_bytes: int,
    is_busy: Callable[[], bool],
    timing: Timing,
    places: Places,
    tls: Mapping[str, UpstreamTls],
) -> tuple[Backend, ...]:
    """None is started yet. `body_bytes` are for all bodies in the gateway; `is_busy` says that there are requests,
    `places` are where the models' own files are looked for, and `tls` is for servers of these addresses.
    """
    queue = queue_policy_of(settings, body_bytes)
    backends: list[Backend] = []

    def look_after_who_waits(_state: UpstreamState) -> None:
        evacuate(backends, timing.clock())

    backends.extend(
        _backend(settings, upstream, models, metrics, queue, is_busy, look_after_who_waits, timing, places, tls)
        for upstream in upstreams_of(settings)
    )
    return tuple(backends)


def _backend(
    settings: Settings,
    upstream: UpstreamPolicy,
    models: Sequence[ServedModel],
    metrics: Metrics,
    queue: QueuePolicy,
    is_busy: Callable[[], bool],
    look_after_who_waits: Callable[[UpstreamState], None],
    timing: Timing,
    places: Places,
    known_tls: Mapping[str, UpstreamTls],
) -> Backend:
    tls = known_tls.get(upstream.url)
    table = ModelTable([model.at_one_upstream() for model in models], engine_of(settings, upstream))
    gate = _gate(settings, upstream, queue, timing)
    log_prefix = "" if upstream.name == ONLY_UPSTREAM else f"{upstream.name}: "
    follower = EngineFollower(
        table,
        gate,
        metrics,
        upstream.name,
        upstream.kv_blocks,
        upstream.sequences,
        clock=timing.clock,
        log_prefix=log_prefix,
    )
    client = _client(settings, upstream, tls)
    breaker = Breaker()
    work_watch = WorkWatch(breaker, client, timing.clock, log_prefix)
    search = ModelSearch(table, places, log_prefix=log_prefix)
    unseen: dict[str, Exchange] = {}
    counter = Counter(upstream.url, upstream.key, tls=tls)
    sampler = TextSampler(
        table,
        partial(Pages, upstream.url, upstream.key, _SAMPLE_SECONDS, tls),
        settings.calibration != "off",
        log_prefix,
    )
    calibrator = Calibrator(table, gate, counter, calibration_ways_of(settings), log_prefix=log_prefix)
    poller = Poller(
        upstream.url,
        observers=[
            follower,
            search,
            work_watch,
            lambda _state: grow_unseen(unseen.values(), timing.clock()),
            look_after_who_waits,
            sampler,
            calibrator,
        ],
        pace=PollPace(busy_seconds=settings.upstream.poll_seconds),
        is_busy=is_busy,
        upstream_key=upstream.key,
        clock=timing.clock,
        log_prefix=log_prefix,
        tls=tls,
    )
    return Backend(upstream.name, table, gate, client, follower, poller, search, calibrator, sampler, breaker, unseen)


def _client(settings: Settings, upstream: UpstreamPolicy, tls: UpstreamTls | None) -> UpstreamClient:
    return UpstreamClient(
        upstream.url,
        _timeouts(settings),
        upstream_key=upstream.key,
        withheld=withheld_of(settings, upstream.key),
        tls=tls,
    )


def _gate(settings: Settings, upstream: UpstreamPolicy, queue: QueuePolicy, timing: Timing) -> Gate:
    total = Capacity(upstream.kv_blocks, upstream.sequences or _FREE_SEQUENCES, settings.budget.encoder_tokens)
    return Gate(
        ledger_of(settings, upstream, total, timing),
        queue,
        clock=timing.clock,
        call_later=timing.call_later,
        jitter=random.random,
        preprocess_rate=PreprocessRate(preprocess_backlog_seconds_of(settings)),
        forecast=Forecast.of(soonest_level(settings)),
    )


def _timeouts(settings: Settings) -> UpstreamTimeouts:
    upstream = settings.upstream
    if settings.is_shadow:
        return UpstreamTimeouts(
            upstream.connect_timeout_seconds, UNHURRIED_SECONDS, UNHURRIED_SECONDS, UNHURRIED_SECONDS
        )
    return UpstreamTimeouts(
        connect_seconds=upstream.connect_timeout_seconds,
        first_event_seconds=upstream.first_byte_timeout_seconds,
        gap_seconds=upstream.gap_timeout_seconds,
        whole_seconds=upstream.total_timeout_seconds,
    )
