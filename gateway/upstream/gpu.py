"""What the GPU itself says, shown beside the budget and never used for admission.

vLLM takes its share of the memory when it starts and keeps it, so that use says nothing of the room that is left; what
it tells is whether something else has come on the card, or a spike (an encoder, a sampler) goes near its end.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from math import isfinite
from typing import NamedTuple, Protocol

from prometheus_client.parser import text_string_to_metric_families

from gateway.upstream.pages import PageError, Pages

NVIDIA_SMI = "nvidia-smi"
_COMMAND = (
    NVIDIA_SMI,
    "--query-gpu=index,memory.used,memory.total,utilization.gpu",
    "--format=csv,noheader,nounits",
)
_MIB = 1 << 20
_TIMEOUT_SECONDS = 5.0
_END_SECONDS = 1.0
_USED, _FREE, _RESERVED, _BUSY = (
    f"DCGM_FI_DEV_{name}" for name in ("FB_USED", "FB_FREE", "FB_RESERVED", "GPU_UTIL")
)  # names of the DCGM exporter's default counters


class GpuReading(NamedTuple):
    """One card. `busy_ratio`: the share of the last moment in which anything ran on it; None where it is not told."""

    name: str
    used_bytes: int
    total_bytes: int
    busy_ratio: float | None


class GpuError(Exception):
    """No reading could be had; the text says why."""


class GpuSource(Protocol):
    """Where readings come from."""

    async def read(self) -> list[GpuReading]:
        """Raises GpuError."""
        ...

    async def close(self) -> None: ...


class NvidiaSmi:
    """The tool of the driver, on this host."""

    async def read(self) -> list[GpuReading]:
        try:
            process = await asyncio.create_subprocess_exec(
                *_COMMAND, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
            )
        except OSError as error:
            raise GpuError(f"`{NVIDIA_SMI}` cannot be started: {error.strerror}") from error
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                output, _ = await process.communicate()
        except TimeoutError as error:
            raise GpuError(f"`{NVIDIA_SMI}` took longer than {_TIMEOUT_SECONDS:g} s") from error
        finally:
            if process.returncode is None:
                await _end(process)
        text = output.decode("utf-8", "replace")
        if process.returncode:
            raise GpuError(f"`{NVIDIA_SMI}` ended with {process.returncode}: {text.strip()[:200]}")
        return list(readings_of_nvidia_smi(text))

    async def close(self) -> None:
        """Nothing stays open."""


async def _end(process: asyncio.subprocess.Process) -> None:
    """One that hangs in its driver may not end even when it is killed, and is left."""
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_END_SECONDS):
            await process.communicate()


class DcgmExporter:
    """NVIDIA's exporter, at the address of its page."""

    def __init__(self, url: str) -> None:
        base, _, path = url.partition("://")[2].partition("/")
        self._pages = Pages(f"{url.partition('://')[0]}://{base}", None, _TIMEOUT_SECONDS)
        self._path = f"/{path}"

    async def read(self) -> list[GpuReading]:
        try:
            page = await self._pages.get(self._path)
        except PageError as error:
            raise GpuError(f"the DCGM exporter's page: {error}") from error
        if not page.is_success:
            raise GpuError(f"the DCGM exporter answered {page.status}")
        return list(readings_of_dcgm(page.body.decode("utf-8", "replace")))

    async def close(self) -> None:
        await self._pages.close()


def source_of(setting: str) -> GpuSource:
    """`nvidia-smi`, or the address of a DCGM exporter's page."""
    return NvidiaSmi() if setting == NVIDIA_SMI else DcgmExporter(setting)


def readings_of_nvidia_smi(text: str) -> Iterator[GpuReading]:
    """Lines of index, MiB used, MiB in all, per cent. Cards that do not tell their memory (MIG) are left out."""
    for line in text.splitlines():
        name, *numbers = (field.strip() for field in line.split(","))
        used, total, busy = (*map(_number, numbers), None, None, None)[:3]
        if used is not None and total is not None:
            yield GpuReading(name, int(used * _MIB), int(total * _MIB), None if busy is None else busy / 100)


def readings_of_dcgm(text: str) -> Iterator[GpuReading]:
    """Of Prometheus' text, by the label `gpu`. Raises GpuError where it is none."""
    found: dict[str, dict[str, float]] = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                is_of_a_card = sample.name in {_USED, _FREE, _RESERVED, _BUSY} and "GPU_I_ID" not in sample.labels
                if is_of_a_card and isfinite(sample.value):
                    found.setdefault(sample.labels.get("gpu", ""), {})[sample.name] = float(sample.value)
    except ValueError as error:
        raise GpuError(f"the DCGM exporter's page cannot be read: {error}") from error
    for name, values in sorted(found.items()):
        if _USED in values and _FREE in values:
            total = values[_USED] + values[_FREE] + values.get(_RESERVED, 0.0)
            busy = values.get(_BUSY)
            yield GpuReading(name, int(values[_USED] * _MIB), int(total * _MIB), None if busy is None else busy / 100)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if isfinite(number) else None


class GpuWatch:
    """Asks now and then; `readings` are the last ones, none once there is `trouble`. `tell` gets each new trouble."""

    def __init__(self, source: GpuSource, every_seconds: float, tell: Callable[[str], None]) -> None:
        self._source = source
        self._every_seconds = every_seconds
        self._tell = tell
        self.readings: list[GpuReading] = []
        self.trouble: str | None = None

    async def start(self) -> None:
        self._task = asyncio.create_task(self._go_on())

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._source.close()

    async def look(self) -> None:
        try:
            self.readings, trouble = await self._source.read(), None
        except Exception as error:  # noqa: BLE001 - no list of what drivers and exporters may say is complete
            self.readings, trouble = [], str(error) or type(error).__name__
        if trouble is not None and trouble != self.trouble:
            self._tell(trouble)
        self.trouble = trouble

    async def _go_on(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(self._every_seconds)
