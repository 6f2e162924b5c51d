"""A real Prometheus that scrapes what a test runs, and its promtool."""

import asyncio
import math
import pathlib
import subprocess
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import yaml

from tests.support.processes import free_port, wait_until_ready

STOP_SECONDS = 30
Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A running server."""

    http: httpx.AsyncClient

    async def query(self, query: str, at: float) -> dict[Labels, float]:
        """The value of each series at that moment, by its labels. Raises AssertionError for what it cannot parse."""
        answer = await self.http.post("/api/v1/query", data={"query": query, "time": f"{at:.3f}"})
        told = answer.json()
        assert told["status"] == "success", f"{query}: {told}"
        return {_labels(series["metric"]): float(series["value"][1]) for series in told["data"]["result"]}

    async def day(self, job: str) -> tuple[float, float]:
        """The moments of the first scrape of the job, and of one that begins after now."""
        last = await self.next_scrape(job)
        return min(await self.scrapes(job)), last

    async def scrapes(self, job: str) -> list[float]:
        """When the job's page was read: the moments of its samples."""
        query = f'gateway_build_info{{job="{job}"}}[1h]'
        answer = await self.http.post("/api/v1/query", data={"query": query, "time": f"{time.time():.3f}"})
        return [float(moment) for series in answer.json()["data"]["result"] for moment, _ in series["values"]]

    async def next_scrape(self, job: str, *, within_seconds: float = 30.0) -> float:
        """Of a scrape that begins after now: its moment."""
        begun = time.time()
        give_up_at = time.monotonic() + within_seconds
        while time.monotonic() < give_up_at:
            moment = max(await self.scrapes(job), default=-math.inf)
            if moment > begun:
                return moment
            await asyncio.sleep(0.05)
        raise AssertionError(f"the job {job} was not scraped within {within_seconds:g} s")


def _labels(metric: Mapping[str, str]) -> Labels:
    return tuple(sorted((name, value) for name, value in metric.items() if name != "__name__"))


@asynccontextmanager
async def running_prometheus(
    work: pathlib.Path, jobs: Mapping[str, str], *, interval_seconds: float
) -> AsyncIterator[Prometheus]:
    """`jobs` are addresses (host:port) by the name of their job; the block runs when the server is ready."""
    process, address = await asyncio.to_thread(_started, work, jobs, interval_seconds)
    try:
        async with httpx.AsyncClient(base_url=address, timeout=30, verify=False, trust_env=False) as http:
            yield Prometheus(http)
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait, STOP_SECONDS)


def _started(
    work: pathlib.Path, jobs: Mapping[str, str], interval_seconds: float
) -> "tuple[subprocess.Popen[bytes], str]":
    work.mkdir(parents=True, exist_ok=True)
    settings, log, address = work / "prometheus.yml", work / "prometheus.log", f"127.0.0.1:{free_port()}"
    settings.write_text(yaml.safe_dump(_settings(jobs, interval_seconds)))
    command = ["prometheus", f"--config.file={settings}", f"--storage.tsdb.path={work / 'data'}", "--log.level=warn"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, f"--web.listen-address={address}"], stdout=output, stderr=subprocess.STDOUT
        )
    try:
        wait_until_ready(f"http://{address}/-/ready", process, log)
    except BaseException:
        process.kill()
        process.wait()
        raise
    return process, f"http://{address}"


def _settings(jobs: Mapping[str, str], interval_seconds: float) -> dict[str, Any]:
    interval = f"{round(interval_seconds * 1000)}ms"
    scrapes = [{"job_name": job, "static_configs": [{"targets": [target]}]} for job, target in jobs.items()]
    return {"global": {"scrape_interval": interval, "scrape_timeout": interval}, "scrape_configs": scrapes}


def promtool(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """What it said and its exit code."""
    return subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False)
