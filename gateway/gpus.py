"""Part of the composition: what the GPUs say, where the operator wants it shown."""

import logging
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack

from gateway.settings import Settings
from gateway.upstream.gpu import GpuReading, GpuWatch, source_of

logger = logging.getLogger(__name__)

Reader = Callable[[], Mapping[str, float | None]]


async def watch_gpus(settings: Settings, stack: AsyncExitStack) -> dict[str, Reader]:
    """Readers of the metrics by their declared names; without a source there are no cards. `stack` ends it."""
    source = settings.gpu.source
    if source is None:
        return _readers(list)
    watch = GpuWatch(source_of(source), settings.gpu.poll_seconds, tell=logger.warning)
    await watch.start()
    stack.push_async_callback(watch.close)
    return _readers(lambda: watch.readings)


def _readers(readings: Callable[[], list[GpuReading]]) -> dict[str, Reader]:
    def of_each(value: Callable[[GpuReading], float | None]) -> Reader:
        return lambda: {reading.name: value(reading) for reading in readings()}

    return {
        "gpu_memory_used_bytes": of_each(lambda reading: reading.used_bytes),
        "gpu_memory_total_bytes": of_each(lambda reading: reading.total_bytes),
        "gpu_busy_ratio": of_each(lambda reading: reading.busy_ratio),
    }
