"""Part of the composition: what the settings make of the parts of the application that no server is behind."""

import asyncio
import platform
from collections.abc import Sequence
from contextlib import AsyncExitStack

from gateway import __version__
from gateway.access import tenant_classes_of
from gateway.imaging.processes import JobLimits, WorkerProcesses
from gateway.imaging.render import ENCODER_ID
from gateway.imaging.workers import ImageWorkers
from gateway.ledger.byte_budget import ByteBudget
from gateway.ledger.timing import Timing
from gateway.models.served import ServedModel
from gateway.pipeline.backend import Backend
from gateway.pipeline.background import BackgroundWatch
from gateway.pipeline.relief import Relief
from gateway.policies import pressure_policy_of, upstreams_of
from gateway.server.keep_alive import KeepAlive
from gateway.settings import Settings
from gateway.telemetry.metrics import Metrics

_WALL_PER_CPU_SECOND = 3  # a picture is given up when it had so much time, though others had the cores


class DecodeBudget:
    """The byte budget as the image workers ask for it: with the patience of the queue."""

    def __init__(self, budget: ByteBudget, wait_seconds: float) -> None:
        self._budget = budget
        self._wait_seconds = wait_seconds

    async def acquire(self, byte_count: int) -> None:
        await self._budget.acquire(byte_count, self._wait_seconds)

    def release(self, byte_count: int) -> None:
        self._budget.release(byte_count)


def metrics_of(settings: Settings, models: list[ServedModel]) -> Metrics:
    metrics = Metrics(
        [model.name for model in models],
        tenant_classes_of(settings),
        [upstream.name for upstream in upstreams_of(settings)],
        is_shadow=settings.is_shadow,
    )
    metrics.build_info(version=__version__, encoder_id=ENCODER_ID, python=platform.python_version())
    return metrics


def image_workers_of(
    settings: Settings, decode_budget: ByteBudget, cache_bytes: int, threads: int
) -> tuple[ImageWorkers, WorkerProcesses]:
    """With the processes that they decode in."""
    decode_seconds = settings.images.decode_seconds
    processes = WorkerProcesses(JobLimits(decode_seconds, _WALL_PER_CPU_SECOND * decode_seconds))
    images = ImageWorkers(
        threads=threads,
        isolation=processes,
        decode_budget=DecodeBudget(decode_budget, settings.queue.wait_seconds),
        cache_bytes=cache_bytes,
        verify=settings.images.verify,
    )
    return images, processes


def keep_alive_of(settings: Settings) -> KeepAlive | None:
    streaming = settings.streaming
    if streaming.keep_alive_after_seconds is None:
        return None
    return KeepAlive(
        streaming.keep_alive_after_seconds,
        streaming.keep_alive_every_seconds,
        call_later=asyncio.get_running_loop().call_later,
    )


def relief_of(settings: Settings, backends: Sequence[Backend], images: ImageWorkers, timing: Timing) -> Relief | None:
    policy = pressure_policy_of(settings)
    if policy is None:
        return None
    gates = {backend.name: backend.gate for backend in backends}
    return Relief(policy, gates, images, ENCODER_ID, timing.clock)


def background_of(settings: Settings, timing: Timing, stack: AsyncExitStack) -> BackgroundWatch | None:
    if not settings.responses.allow_background:
        return None
    watch = BackgroundWatch(timing.clock, settings.upstream.total_timeout_seconds)
    stack.push_async_callback(watch.close)
    return watch
