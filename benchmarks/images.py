"""`python -m benchmarks.images`: what shrinking a large picture costs, beside the naive way and the decoder's limit.

From base64 to base64, to what a model of a million pixels sees. CPU is that of this process and of the worker together;
rounds are interleaved and medians shown, so that ratios of one run hold on a busy machine. `limit` is the least that
libjpeg-turbo and the encoder take: a scaled decode and an encode of the result, without a resize. Quality is against a
full decode and one LANCZOS resize, by SSIM (Wang et al. 2004, windows of 8 x 8, grey). `bytes a pixel` is by how much
the worker grows at most beyond what it and the file take, for each pixel of the file. PNG and WebP are shrunk by
libvips where the extra `vips` is installed; `by Pillow` is the same without it.

    python -m benchmarks.images --rounds 7
    python -m benchmarks.images --quick        shows that it works, measures nothing
"""

import argparse
import io
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pybase64
from PIL import Image
from rich.console import Console
from rich.table import Table

from gateway.domain.geometry import Size
from gateway.domain.image import ImageInfo
from gateway.imaging import vips
from gateway.imaging.heap import give_back_free_memory
from gateway.imaging.judge import judge
from gateway.imaging.limits import ImageLimits, job_bytes
from gateway.imaging.probe import probe
from gateway.imaging.processes import JobLimits, WorkerProcesses
from gateway.imaging.verdicts import Verdict
from gateway.wire.encoded_file import EncodedFile

LARGE_SIDES = ((4000, 3000), (8000, 6000))
QUICK_SIDES = ((400, 300),)
TARGET_PIXELS = 1_000_000
GRID = 28
_WINDOW = 8
_STABILITY = ((0.01 * 255) ** 2, (0.03 * 255) ** 2)
_JPEG = {"quality": 90, "subsampling": "4:4:4"}


@dataclass(frozen=True, slots=True)
class Material:
    """A file, what it is, and what it is shrunk to."""

    name: str
    file: bytes
    info: ImageInfo
    target: Size

    @property
    def payload(self) -> bytes:
        return pybase64.b64encode(self.file)


def photograph(width: int, height: int) -> Image.Image:
    """Noise of every size, as in nature, and some hard edges."""
    dice = np.random.default_rng(1)
    sum_of_all = np.zeros((height, width, 3), np.float32)
    cells, strength = 4, 90.0
    while cells < min(width, height):
        rough = dice.integers(0, 256, (cells * height // width + 1, cells, 3), dtype=np.uint8)
        smooth = Image.fromarray(rough).resize((width, height), Image.Resampling.BICUBIC)
        sum_of_all += (np.asarray(smooth, np.float32) - 128) * (strength / 128)
        cells, strength = cells * 2, strength * 0.62
    sum_of_all[height // 3 : height // 2, width // 4 : width // 2] += 60
    return Image.fromarray((sum_of_all + 128).clip(0, 255).astype(np.uint8))


def materials(sides: tuple[tuple[int, int], ...]) -> Iterator[Material]:
    for width, height in sides:
        picture = photograph(width, height)
        kinds: list[tuple[str, dict[str, object]]] = [("JPEG", {"quality": 88})]
        if (width, height) == sides[0]:
            kinds += [("PNG", {}), ("WEBP", {"quality": 80})]
        for kind, options in kinds:
            out = io.BytesIO()
            picture.save(out, kind, **options)
            info = probe(EncodedFile(pybase64.b64encode(out.getvalue())), _LIMITS, "benchmark")
            yield Material(f"{width * height / 1e6:.0f} MP {kind}", out.getvalue(), info, target_of(info.size))


_LIMITS = replace(ImageLimits(), max_bytes=1 << 30, decode_bytes=8 << 30)


def target_of(size: Size) -> Size:
    """On a grid, below a million pixels, of the same shape."""
    scale = min(1.0, (TARGET_PIXELS / size.pixels) ** 0.5)
    return Size(max(GRID, int(size.width * scale) // GRID * GRID), max(GRID, int(size.height * scale) // GRID * GRID))


def naive(material: Material) -> bytes:
    """What one writes first."""
    picture = Image.open(io.BytesIO(pybase64.b64decode(material.payload))).convert("RGB")
    picture = picture.resize((material.target.width, material.target.height), Image.Resampling.LANCZOS)
    return _as_jpeg(picture)


def limit(material: Material) -> bytes:
    """Nothing can be less: no resize, so the size is not even right."""
    picture = Image.open(io.BytesIO(pybase64.b64decode(material.payload, validate=True)))
    picture.draft("RGB", (material.target.width, material.target.height))
    return _as_jpeg(picture)


def _as_jpeg(picture: Image.Image) -> bytes:
    out = io.BytesIO()
    picture.save(out, "JPEG", **_JPEG)
    return pybase64.b64encode(out.getvalue())


def timed_judge(file: EncodedFile, info: ImageInfo, target: Size) -> tuple[Verdict, float]:
    began = time.process_time()
    verdict = judge(file, info, target)
    return verdict, time.process_time() - began


def timed_by_pillow(file: EncodedFile, info: ImageInfo, target: Size) -> tuple[Verdict, float]:
    """As if the extra were not installed."""
    installed, vips.VIPS_VERSION = vips.VIPS_VERSION, None
    try:
        return timed_judge(file, info, target)
    finally:
        vips.VIPS_VERSION = installed


def here(material: Material) -> bytes:
    return _file_of(judge(EncodedFile(material.payload), material.info, material.target))


def _file_of(verdict: Verdict) -> bytes:
    assert verdict.prepared is not None, "it shrinks"
    return verdict.prepared.base64


def peak_bytes(file: EncodedFile, info: ImageInfo, target: Size) -> int:
    """By how much this process grows at most while it judges; runs in a worker."""
    give_back_free_memory()  # what earlier pictures left would hide what this one takes
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the highest mark is now what is held
    before = _status_bytes("VmRSS")
    judge(file, info, target)
    return _status_bytes("VmHWM") - before


def _status_bytes(name: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) << 10


class InWorker:
    """As the gateway does it; `elsewhere_seconds` is the CPU that the worker used."""

    def __init__(self, processes: WorkerProcesses, judging: Callable[..., tuple[Verdict, float]] = timed_judge) -> None:
        self._processes = processes
        self._judging = judging
        self.elsewhere_seconds = 0.0

    def __call__(self, material: Material) -> bytes:
        byte_count = job_bytes(material.info, material.target)
        work = (self._judging, EncodedFile(material.payload), material.info, material.target)
        verdict, seconds = self._processes.run(byte_count, *work)
        self.elsewhere_seconds += seconds
        return _file_of(verdict)


def cpu_seconds(ways: dict[str, Callable[[Material], bytes]], material: Material) -> dict[str, float]:
    """One round: CPU of each way, its worker's included."""
    return {name: _cpu_seconds(way, material) for name, way in ways.items()}


def _cpu_seconds(way: Callable[[Material], bytes], material: Material) -> float:
    began = time.process_time()
    before = way.elsewhere_seconds if isinstance(way, InWorker) else 0.0
    way(material)
    used = time.process_time() - began
    return used + way.elsewhere_seconds - before if isinstance(way, InWorker) else used


def ssim(first: Image.Image, second: Image.Image) -> float:
    """1 is the same picture. Both of one size."""
    pairs = [_windows(np.asarray(each.convert("L"), np.float64)) for each in (first, second)]
    (mean_1, mean_2), (variance_1, variance_2) = zip(*((w.mean(1), w.var(1)) for w in pairs), strict=True)
    covariance = (pairs[0] * pairs[1]).mean(1) - mean_1 * mean_2
    light, contrast = _STABILITY
    above = (2 * mean_1 * mean_2 + light) * (2 * covariance + contrast)
    below = (mean_1**2 + mean_2**2 + light) * (variance_1 + variance_2 + contrast)
    return float((above / below).mean())


def _windows(grey: np.ndarray) -> np.ndarray:
    height, width = (side // _WINDOW * _WINDOW for side in grey.shape)
    cells = grey[:height, :width].reshape(height // _WINDOW, _WINDOW, width // _WINDOW, _WINDOW)
    return cells.swapaxes(1, 2).reshape(-1, _WINDOW * _WINDOW)


def quality(material: Material, base64: bytes) -> float:
    """Of a result against a full decode and one LANCZOS resize."""
    whole = Image.open(io.BytesIO(material.file)).convert("RGB")
    best = whole.resize((material.target.width, material.target.height), Image.Resampling.LANCZOS)
    return ssim(best, Image.open(io.BytesIO(pybase64.b64decode(base64))))


@dataclass(frozen=True, slots=True)
class Measured:
    """Median CPU seconds by way, the quality of the gateway's result, and its memory for each pixel of the file."""

    material: Material
    seconds: dict[str, float]
    ssim: float
    bytes_per_pixel: float


def measure(material: Material, rounds: int, processes: WorkerProcesses) -> Measured:
    worker = InWorker(processes)
    ways: dict[str, Callable[[Material], bytes]] = {"naive": naive, "in this process": here, "gateway": worker}
    if material.name.endswith("JPEG"):
        ways["limit"] = limit
    else:
        ways["by Pillow"] = InWorker(processes, timed_by_pillow)
    result = worker(material)
    taken = [cpu_seconds(ways, material) for _ in range(rounds)]
    medians = {name: statistics.median(one[name] for one in taken) for name in ways}
    work = (peak_bytes, EncodedFile(material.payload), material.info, material.target)
    peak = processes.run(job_bytes(material.info, material.target), *work)
    return Measured(material, medians, quality(material, result), peak / material.info.stored.pixels)


def table_of(rows: list[Measured]) -> Table:
    table = Table("picture", "to", *(f"{column} ms" for column in _COLUMNS), title="CPU of one shrink")
    for heading in ("share of the limit", "naive / gateway", "SSIM", "bytes a pixel"):
        table.add_column(heading, justify="right")
    for row in rows:
        material, medians = row.material, row.seconds
        share = f"{medians['limit'] / medians['gateway']:.0%}" if "limit" in medians else "-"
        shown = [f"{medians[name] * 1e3:.0f}" if name in medians else "-" for name in _COLUMNS]
        ratio = f"{medians['naive'] / medians['gateway']:.2f}"
        table.add_row(
            material.name, str(material.target), *shown, share, ratio, f"{row.ssim:.3f}", f"{row.bytes_per_pixel:.1f}"
        )
    return table


_COLUMNS = ("naive", "limit", "in this process", "by Pillow", "gateway")


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.images", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--rounds", type=int, default=5, help="visits of each way (default %(default)s)")
    parser.add_argument("--quick", action="store_true", help="small pictures, one round")
    given = parser.parse_args()
    console = Console()
    processes = WorkerProcesses(JobLimits(cpu_seconds=120, wall_seconds=600))
    rows = []
    try:
        for material in materials(QUICK_SIDES if given.quick else LARGE_SIDES):
            console.print(f"{material.name}, {len(material.file) / 1e6:.1f} MB", style="dim")
            rows.append(measure(material, 1 if given.quick else given.rounds, processes))
    finally:
        processes.close()
    console.print(table_of(rows))


if __name__ == "__main__":
    main()
