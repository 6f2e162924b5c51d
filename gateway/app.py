"""Composition root: settings become objects, objects become one ASGI application that starts, drains and stops.

No decision is taken here and nothing is computed on the way of a request.
"""

import asyncio
import os
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, replace

import msgspec

from gateway.access import tenancy_of, trusted_header_of
from gateway.backends import compose_backends
from gateway.certificates import Certificates, certificates_of
from gateway.composing import background_of, image_workers_of, keep_alive_of, metrics_of, relief_of
from gateway.domain.errors import GatewayError
from gateway.domain.tenancy import Tenancy
from gateway.fetching import start_fetching
from gateway.gpus import watch_gpus
from gateway.key_reload import KeysInUse
from gateway.ledger.byte_budget import ByteBudget, Seats
from gateway.ledger.host_memory import memory_limit_bytes, usable_cores
from gateway.ledger.timing import Timing
from gateway.model_files import places_of
from gateway.models.served import ServedModel
from gateway.pipeline.backend import Backend, remarks_of, troubles_of
from gateway.pipeline.exchange import Parts
from gateway.pipeline.gauges import gauge_readers
from gateway.pipeline.status import StatusReader
from gateway.policies import (
    ByteBudgets,
    body_limits_of,
    models_of,
    page_access_of,
    policies_of,
    shadow_body_limits_of,
)
from gateway.server.answers import Send
from gateway.server.connection_refusals import ConnectionRefusals
from gateway.server.control import DRAIN_PATH, create_control_app
from gateway.server.draining import Drain, DrainWatch, closing
from gateway.server.keep_alive import KeepAlive
from gateway.server.page_routes import PAGE_PATHS
from gateway.server.proxy import Door, Proxy, Scope
from gateway.server.receive import Receive
from gateway.server.shadow_proxy import ShadowProxy
from gateway.settings import Settings
from gateway.sharing import share_quotas
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.request_log import RequestLog
from gateway.traces import start_tracing

CONTROL_PATHS = PAGE_PATHS | {
    "/livez", "/readyz", "/startupz", "/health", "/metrics", "/version", "/docs", "/openapi.json", DRAIN_PATH,
}  # fmt: skip
_FETCHED_SHARE = 4  # of what image caches have, for files as they were fetched; the others are of files made here


@dataclass(slots=True)
class Running:
    """What exists between start and stop."""

    proxy: Proxy
    backends: Sequence[Backend]
    metrics: Metrics
    seats: Seats
    drain: Drain
    drain_watch: DrainWatch
    clock: Callable[[], float]
    connection_refusals: ConnectionRefusals
    status: StatusReader
    keys: KeysInUse


class Application:
    """The ASGI application. Mistakes of the settings that only show when files are read are raised at once
    (ModelSettingsError, CertificateError). `write_log` takes the lines of the request log; None: standard output. By
    `timing` requests wait and are counted; None: the event loop's. It is one of `processes` that divide the machine.
    """

    def __init__(
        self,
        settings: Settings,
        write_log: Callable[[bytes], None] | None = None,
        timing: Timing | None = None,
        *,
        processes: int = 1,
    ) -> None:
        self._settings = settings
        self._processes = processes
        self._write_log = write_log
        self._timing = timing
        self._models = models_of(settings)
        self._certificates = certificates_of(settings)
        self._control = create_control_app(self, page_access_of(settings), has_drain_route=settings.server.drain_route)
        self._running: Running | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["path"] in CONTROL_PATHS:
            await self._control(scope, receive, send)
        else:
            assert self._running is not None, "the server starts the application before it serves"
            drain = self._running.drain
            await self._running.proxy(scope, receive, closing(send) if drain.is_begun else send)

    @property
    def tls(self) -> ssl.SSLContext | None:
        """What clients are spoken to with; None: plain HTTP."""
        return self._certificates.server

    @property
    def write_timeout_seconds(self) -> float:
        return self._settings.server.write_timeout_seconds

    def connection_refused(self, error: GatewayError) -> None:
        """A connection was answered with this error before there was a request."""
        if self._running is not None:
            self._running.connection_refusals.note(error)

    def drain(self) -> None:
        """Be not ready from now on, soon take nothing new, and finish what is inside."""
        if self._running is not None:
            self._running.drain.begin(self._running.clock())
            self._running.drain_watch.look_again()
            self._calibrate_no_more()

    def reload(self) -> None:
        """Read anew what may change without a restart: the keys file."""
        if self._running is not None:
            self._running.keys.ask()

    def call_off_drain(self) -> None:
        """Take requests again, unless this process is to end."""
        if self._running is not None:
            self._running.drain.call_off()
            self._running.drain_watch.look_again()
            if not self._running.drain.is_begun:
                for backend in self._running.backends:
                    backend.calibrator.resume()

    def end(self, *, has_grace: bool) -> None:
        """Drain and be over then. Without grace nothing new is taken from now on."""
        if self._running is not None:
            self._running.drain.end(self._running.clock(), has_grace=has_grace)
            self._running.drain_watch.look_again()
            self._calibrate_no_more()

    def _calibrate_no_more(self) -> None:
        for backend in self._running.backends if self._running else ():
            backend.calibrator.pause()

    @property
    def is_over(self) -> bool:
        """The process was told to end, and nothing keeps it any more."""
        running = self._running
        return running is not None and running.drain.is_over(running.clock(), is_empty=not running.seats.taken)

    def in_flight(self) -> int:
        """How many requests are inside whose answers would be cut off by stopping now."""
        return 0 if self._running is None else self._running.seats.taken

    def is_drained(self) -> bool:
        return self._running is None or self._running.drain_watch.is_drained

    async def until_drained(self) -> None:
        if self._running is not None:
            await self._running.drain_watch.wait()

    def is_started(self) -> bool:
        return self._running is not None

    def why_not_ready(self) -> str | None:
        if self._running is None:
            return "the gateway is still starting"
        if self._running.drain.is_begun:
            return "the gateway is shutting down"
        troubles = self.troubles()
        return None if len(troubles) < len(self._running.backends) else "; ".join(troubles)

    def troubles(self) -> list[str]:
        """A sentence about each model server that is not up."""
        return [] if self._running is None else troubles_of(self._running.backends)

    def remarks(self) -> list[str]:
        """What is amiss, though requests are served."""
        return [] if self._running is None else self.troubles() + remarks_of(self._running.backends)

    def metrics_page(self, accept: str) -> tuple[bytes, str]:
        assert self._running is not None, "the server starts the application before it serves"
        return self._running.metrics.render(accept)

    def status(self) -> bytes:
        """What the status page shows, as JSON."""
        assert self._running is not None, "the server starts the application before it serves"
        return msgspec.json.encode(self._running.status.read(is_draining=self._running.drain.is_begun))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Everything started, in the order of need; stopped in reverse whatever happens."""
        async with AsyncExitStack() as stack:
            timing = self._timing or Timing(time.monotonic, asyncio.get_running_loop().call_later)
            self._running = await _start(
                self._settings, self._models, self._certificates, self._write_log, timing, stack, self._processes
            )
            stack.callback(self._stopped)
            yield

    def _stopped(self) -> None:
        self._running = None

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        phase = "startup"
        try:
            async with self.running():
                await send({"type": "lifespan.startup.complete"})
                phase = "shutdown"
                await receive()
        except Exception as error:
            await send({"type": f"lifespan.{phase}.failed", "message": str(error)})
            raise
        await send({"type": "lifespan.shutdown.complete"})


async def _start(
    settings: Settings,
    models: list[ServedModel],
    certificates: Certificates,
    write_log: Callable[[bytes], None] | None,
    timing: Timing,
    stack: AsyncExitStack,
    processes: int,
) -> Running:
    budgets = ByteBudgets.of(settings.budget, memory_limit_bytes() // processes)
    body_budget = ByteBudget(budgets.body_bytes, purpose="request bodies", call_later=timing.call_later)
    decode_budget = ByteBudget(budgets.decode_bytes, purpose="decoding images", call_later=timing.call_later)
    metrics, threads = metrics_of(settings, models), max(1, usable_cores() // processes)
    fetched_bytes = budgets.cache_bytes // _FETCHED_SHARE
    images, decoders = image_workers_of(settings, decode_budget, budgets.cache_bytes - fetched_bytes, threads)
    remote, fetches = await start_fetching(settings, body_budget, fetched_bytes, timing, stack)
    log, seats = RequestLog(write_log, is_on=settings.log.requests), Seats(settings.server.seats)
    drain = Drain(settings.server.drain_grace_seconds, settings.server.drain_seconds)
    backends = compose_backends(
        settings,
        models,
        metrics,
        body_bytes=budgets.body_bytes,
        is_busy=lambda: seats.taken > 0,
        timing=timing,
        places=stack.enter_context(places_of(settings, os.environ)),
        tls=certificates.upstreams,
    )
    stack.callback(asyncio.create_task(certificates.renew_for_ever(), name="certificates").cancel)
    parts = Parts(
        policies=policies_of(settings, budgets),
        backends=backends,
        images=images,
        remote=remote,
        metrics=metrics,
        log=log,
        clock=timing.clock,
        relief=relief_of(settings, backends, images, timing),
        tracing=start_tracing(settings, stack),
        background=background_of(settings, timing, stack),
    )
    keep_alive = keep_alive_of(settings)
    keys = KeysInUse(settings, tenancy_of(settings), timing.clock)
    metrics.observe_gauges(
        **gauge_readers(parts, seats, body_budget, decode_budget),
        **keys.gauge_readers(),
        **await watch_gpus(settings, stack),
        image_fetches_total=lambda: asdict(fetches()),
        image_workers_lost_total=decoders.lost,
        draining=lambda: float(drain.is_begun),
        shadow_mode=lambda: float(settings.is_shadow),
        streams_kept_alive_total=lambda: 0 if keep_alive is None else keep_alive.begun,
    )
    await _begin_all(stack, settings, parts, keys, timing)
    door = _door(settings, seats, body_budget, budgets, drain, keys.tenancy)
    proxy = _proxy(settings, parts, door, budgets, keep_alive)
    refusals = ConnectionRefusals(metrics, log, parts.refusals, timing.clock)
    status = StatusReader(parts, seats, body_budget, decode_budget, is_shadow=settings.is_shadow)
    watch = DrainWatch(drain, seats, timing)
    return Running(proxy, backends, metrics, seats, drain, watch, timing.clock, refusals, status, keys)


def _door(
    settings: Settings, seats: Seats, body_budget: ByteBudget, budgets: ByteBudgets, drain: Drain, tenancy: Tenancy
) -> Door:
    return Door(
        seats,
        body_budget,
        body_limits_of(settings, budgets),
        settings.queue.wait_seconds,
        tenancy,
        page_access_of(settings),
        drain,
        trusted_header_of(settings),
    )


def _proxy(settings: Settings, parts: Parts, door: Door, budgets: ByteBudgets, keep_alive: KeepAlive | None) -> Proxy:
    if settings.is_shadow:
        return ShadowProxy(parts, replace(door, body_limits=shadow_body_limits_of(budgets)), door.body_limits)
    return Proxy(parts, door, keep_alive)


async def _begin_all(stack: AsyncExitStack, settings: Settings, parts: Parts, keys: KeysInUse, timing: Timing) -> None:
    stack.push_async_callback(parts.images.close)
    await parts.images.start()
    await keys.load()
    await _begin(stack, (parts.log.start, parts.log.close), (keys.start, keys.close))
    await share_quotas(settings, keys, timing, stack)
    for backend in parts.backends:
        await _begin_backend(stack, backend)


async def _begin_backend(stack: AsyncExitStack, backend: Backend) -> None:
    await _begin(
        stack,
        (backend.upstream.start, backend.upstream.close),
        (backend.gate.start, backend.gate.stop),
        (backend.search.start, backend.search.close),
        (backend.poller.start, backend.poller.close),
    )
    stack.push_async_callback(backend.calibrator.close)
    stack.push_async_callback(backend.sampler.close)


async def _begin(
    stack: AsyncExitStack, *parts: tuple[Callable[[], Awaitable[None]], Callable[[], Awaitable[None]]]
) -> None:
    """Start each in turn; `stack` stops those that were started, in reverse."""
    for start, stop in parts:
        await start()
        stack.push_async_callback(stop)
