"""What is measured, and which figures of it are shown and compared."""

from dataclasses import dataclass
from typing import Any

MIB = 1 << 20
Figures = dict[str, Any]  # plain JSON: numbers by name, None where there is nothing to count


@dataclass(frozen=True, slots=True)
class Column:
    """One figure of a table. `compared` puts it into the table of ratios."""

    key: str
    title: str
    compared: bool = False
    less_is_better: bool = False


@dataclass(frozen=True, slots=True)
class Scenario:
    """One way of loading a peer; the fields are the load generator's, see loader.py.

    refusing  peers are started in a state in which they answer 429 to everything
    fresh     each measurement has a process of its own, with the byte budget `body_budget_bytes`
    side_body a second load generator uploads this body without a pause meanwhile
    """

    name: str
    what: str
    body: str
    connections: int
    columns: tuple[Column, ...]
    rate_per_second: float = 0.0
    total: int = 0
    stream: bool = False
    refusing: bool = False
    fresh: bool = False
    side_body: str | None = None
    clients: bool = False
    body_budget_bytes: int | None = None


REQUESTS = (
    Column("requests_per_cpu_second", "req per CPU-s", compared=True),
    Column("cpu_us_per_request", "CPU us/req", less_is_better=True),
    Column("requests_per_second", "req/s", compared=True),
    Column("core_use", "core use"),
    Column("p50_us", "p50 us", less_is_better=True),
    Column("p99_us", "p99 us", less_is_better=True),
)
LATENCY = (
    Column("best_p50_us", "p50 us, best round", compared=True, less_is_better=True),
    Column("added_p50_us", "added p50 us", compared=True, less_is_better=True),
    Column("p99_us", "p99 us", less_is_better=True),
    Column("cpu_us_per_request", "CPU us/req", less_is_better=True),
    Column("late_p99_us", "timer late p99 us"),
)
EVENTS = (
    Column("events_per_cpu_second", "events per CPU-s", compared=True),
    Column("cpu_us_per_event", "CPU us/event", less_is_better=True),
    Column("events_per_second", "events/s"),
    Column("core_use", "core use"),
    Column("event_p50_us", "event p50 us", less_is_better=True),
    Column("event_p99_us", "event p99 us", compared=True, less_is_better=True),
)
BODIES = (
    Column("mb_per_cpu_second", "MB per CPU-s", compared=True),
    Column("cpu_ms_per_mb", "CPU ms/MB", less_is_better=True),
    Column("mb_per_second", "MB/s", compared=True),
    Column("core_use", "core use"),
    Column("p50_us", "p50 us", less_is_better=True),
    Column("peak_mb", "peak RSS MB", less_is_better=True),
)
MIXED = (
    Column("event_p99_us", "event p99 us", compared=True, less_is_better=True),
    Column("event_p50_us", "event p50 us", less_is_better=True),
    Column("events_per_second", "events/s"),
    Column("side_per_second", "uploads/s"),
)
MEMORY = (
    Column("peak_mb", "peak RSS MB", compared=True, less_is_better=True),
    Column("growth_per_flight", "growth / bytes in flight", less_is_better=True),
    Column("growth_per_budget", "growth / byte budget", less_is_better=True),
    Column("seconds", "seconds"),
    Column("served", "of 50 served"),
    Column("cpu_ms_per_mb", "CPU ms/MB", less_is_better=True),
)
SEEN = (
    Column("httpx_seen", "httpx saw 429, %", compared=True),
    Column("openai_seen", "OpenAI SDK saw 429, %", compared=True),
)

SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario("text", "closed loop, 32 connections, 0.8 KB of text", "text", 32, REQUESTS),
        Scenario("latency", "50 requests a second at fixed instants", "text", 16, LATENCY, rate_per_second=50),
        Scenario("sse_1k", "20 streams, an event each 20 ms: 1,000 events/s", "stream_20ms", 20, EVENTS, stream=True),
        Scenario(
            "sse_10k", "100 streams, an event each 10 ms: 10,000 events/s", "stream_10ms", 100, EVENTS, stream=True
        ),
        Scenario("image_1mb", "closed loop, 4 connections, 1 MB body, each picture new", "image_1mb", 4, BODIES),
        Scenario("image_20mb", "closed loop, 4 connections, 20 MB body, each picture new", "image_20mb", 4, BODIES),
        Scenario(
            "mixed",
            "the streams of sse_1k while two clients upload 20 MB bodies without a pause",
            "stream_20ms",
            20,
            MIXED,
            stream=True,
            side_body="image_20mb",
        ),
        Scenario("refuse", "every request refused, 0.8 KB", "text", 32, REQUESTS, refusing=True),
        Scenario(
            "refuse_5mb", "every request refused, 5 MB body, sent to its end", "image_5mb", 4, REQUESTS, refusing=True
        ),
        Scenario(
            "refuse_seen",
            "a 5 MB upload refused: how many real clients see the 429",
            "image_5mb",
            4,
            SEEN,
            refusing=True,
            clients=True,
        ),
        Scenario(
            "memory",
            "50 clients each upload a body of 26.7 MB at once; the upstream answers after 1 s; byte budget 256 MB",
            "image_27mb_slow",
            50,
            MEMORY,
            total=50,
            fresh=True,
            body_budget_bytes=256 * MIB,
        ),
    )
}


def derive(loaded: Figures, body_bytes: int) -> Figures:
    """The figures of one measurement from the load generator's numbers."""
    done, events = loaded["done"], loaded["events"]
    seconds, cpu = loaded["seconds"], loaded["cpu_seconds"]
    megabytes = done * body_bytes / MIB
    return {
        **loaded,
        "requests_per_cpu_second": ratio(done, cpu),
        "cpu_us_per_request": ratio(cpu * 1e6, done),
        "requests_per_second": ratio(done, seconds),
        "core_use": ratio(cpu, seconds),
        "events_per_cpu_second": ratio(events, cpu),
        "cpu_us_per_event": ratio(cpu * 1e6, events),
        "events_per_second": ratio(events, seconds),
        "mb_per_cpu_second": ratio(megabytes, cpu),
        "cpu_ms_per_mb": ratio(cpu * 1e3, megabytes),
        "mb_per_second": ratio(megabytes, seconds),
    }


def ratio(value: float | None, unit: float | None) -> float | None:
    """None where nothing was counted on either side (`direct` has no CPU time of its own)."""
    return value / unit if value and unit else None
