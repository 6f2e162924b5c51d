"""The load generator: one process, one event loop, as many connections as the plan says.

Three ways of loading:
    closed   every connection sends its next request when its last one is answered
    rate     requests leave at fixed instants, whether or not earlier ones are answered; `late_p99_us` tells how late
             the loop's own timer let them go
    burst    every connection sends one request at the same moment, then the run is over

An upload is always sent to its end, as the OpenAI SDK's transport does it; a server that answers early and then closes
costs that client its answer, and is counted under `cut_uploads`.
"""

import argparse
import asyncio
import contextlib
import json
import os
import re
import time
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import httptools

from benchmarks.processes import cpu_ns

# Sixteen base64 zeros inside a picture's comment: each request gets a number there, so no two pictures are alike.
UNIQUE_MARK = b"0" * 16
LONGEST_BURST_SECONDS = 120.0
REDIAL_SECONDS = 0.02
FIRST_WRITE_BYTES = 65_536
LEAST_PATIENCE_SECONDS = 10.0
PATIENCE = 6  # a slow peer is measured up to so many times longer, until `min_done` requests are answered

_STAMP = re.compile(rb'"@(\d+)@')


@dataclass(frozen=True, slots=True)
class Plan:
    """What to send, where, and for how long. `rate_per_second` 0 is the closed loop; `total` > 0 the burst."""

    port: int
    body: bytes
    connections: int
    rate_per_second: float = 0.0
    total: int = 0
    stream: bool = False
    warm_seconds: float = 0.4
    seconds: float = 3.0
    min_done: int = 20
    pid: int | None = None
    path: str = "/v1/chat/completions"


@dataclass(slots=True)
class Tally:
    """What was seen since measuring began. Times in nanoseconds."""

    codes: Counter[int] = field(default_factory=Counter)
    latencies: list[int] = field(default_factory=list)
    event_delays: list[int] = field(default_factory=list)
    lateness: list[int] = field(default_factory=list)
    broken_streams: int = 0
    cut_uploads: int = 0
    errors: int = 0

    @property
    def done(self) -> int:
        return len(self.latencies)


def quantile_us(values: list[int], share: float) -> float:
    """The value at `share` of the sorted values, in microseconds; 0 if there are none."""
    if not values:
        return 0.0
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] / 1e3


class Request:
    """The bytes of one request; with a mark in the body, each copy differs in sixteen characters."""

    def __init__(self, plan: Plan) -> None:
        head = (
            f"POST {plan.path} HTTP/1.1\r\nhost: 127.0.0.1:{plan.port}\r\ncontent-type: application/json\r\n"
            f"authorization: Bearer benchmark\r\naccept: */*\r\ncontent-length: {len(plan.body)}\r\n\r\n"
        ).encode()
        before, mark, after = plan.body.partition(UNIQUE_MARK)
        self._before, self._mark, self._after = head + before, mark, after
        self._sent = 0

    def write_to(self, transport: asyncio.Transport) -> None:
        if self._mark:
            self._sent += 1
            # The process id keeps the numbers of later rounds apart from those of earlier ones.
            number = b"%06d%010d" % (os.getpid() % 1_000_000, self._sent)
            transport.write(self._before + number + self._after[:FIRST_WRITE_BYTES])
            transport.write(memoryview(self._after)[FIRST_WRITE_BYTES:])
        else:
            transport.write(self._before)


class Client(asyncio.Protocol):
    """One connection that carries one request after the other, dialled again when the server closes it."""

    def __init__(self, run: "Run") -> None:
        self._run = run
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._is_busy = False
        self._is_sending = False
        self._is_answered = False
        self._is_kept_alive = False
        self._started_ns = 0
        self._events = b""
        self._saw_done = False

    @property
    def is_idle(self) -> bool:
        return not self._is_busy

    def begin(self, started_ns: int) -> None:
        """Send a request whose latency counts from `started_ns`."""
        self._is_busy, self._is_answered, self._started_ns = True, False, started_ns
        self._events, self._saw_done = b"", False
        if self._transport is None:
            self._run.spawn(self._dial())
        else:
            self._send()

    async def _dial(self) -> None:
        try:
            await asyncio.get_running_loop().create_connection(lambda: self, "127.0.0.1", self._run.plan.port)
        except OSError:
            self._run.tally.errors += 1
            await asyncio.sleep(REDIAL_SECONDS)
            self._is_busy = False
            self._run.ended(self)

    def _send(self) -> None:
        assert self._transport is not None
        self._is_sending = False
        self._run.request.write_to(self._transport)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one without saying so
        self._transport.set_write_buffer_limits(high=0)
        self._parser = httptools.HttpResponseParser(self)
        if self._run.is_over:
            self.close()
        elif self._is_busy:
            self._send()

    def pause_writing(self) -> None:
        self._is_sending = True

    def resume_writing(self) -> None:
        self._is_sending = False
        if self._is_busy and self._is_answered and self._is_kept_alive:
            self._finish()

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._transport = None
        if not self._is_busy or self._run.is_over:
            return
        if self._is_answered:
            self._run.tally.cut_uploads += self._is_sending
            self._finish()
        else:
            self._run.tally.errors += 1
            self._is_busy = False
            self._run.ended(self)

    # Called by the parser.

    def on_body(self, piece: bytes) -> None:
        if self._run.plan.stream:
            *events, self._events = (self._events + piece).split(b"\n\n")
            for event in events:
                self._event(event)

    def _event(self, event: bytes) -> None:
        stamp = _STAMP.search(event)
        if stamp:
            self._run.tally.event_delays.append(time.monotonic_ns() - int(stamp[1]))
            self._run.count()
        elif event.endswith(b"[DONE]"):
            self._saw_done = True

    def on_message_complete(self) -> None:
        self._is_answered = True
        assert self._transport is not None
        self._is_kept_alive = self._parser.should_keep_alive()  # the parser knows it only inside this call
        if not self._is_kept_alive:
            self._transport.close()  # sends what is left; connection_lost finishes the request
        elif not self._is_sending:
            self._finish()

    def _finish(self) -> None:
        tally, status = self._run.tally, self._parser.get_status_code()
        tally.codes[status] += 1
        tally.latencies.append(time.monotonic_ns() - self._started_ns)
        if self._run.plan.stream and status == 200 and not self._saw_done:
            tally.broken_streams += 1
        self._is_busy = False
        self._run.ended(self)


class Run:
    """One measurement: the clients, the clock and the books."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.request = Request(plan)
        self.tally = Tally()
        self.is_over = False
        self._clients = [Client(self) for _ in range(plan.connections)]
        self._dialling: set[asyncio.Task[None]] = set()
        self._has_enough = asyncio.Event()

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._dialling.add(task)
        task.add_done_callback(self._dialling.discard)

    def count(self) -> None:
        """Something was seen; notice when it suffices."""
        if self.plan.total:
            is_enough = self.tally.done + self.tally.errors >= self.plan.total
        else:
            seen = len(self.tally.event_delays) if self.plan.stream else self.tally.done
            is_enough = seen >= self.plan.min_done
        if is_enough:
            self._has_enough.set()

    def ended(self, client: Client) -> None:
        """A client has its answer, or has lost it."""
        self.count()
        if not self.plan.total and not self.plan.rate_per_second:
            asyncio.get_running_loop().call_soon(self._next, client)

    def _next(self, client: Client) -> None:
        if not self.is_over:
            client.begin(time.monotonic_ns())

    async def measure(self) -> dict[str, object]:
        """Load as planned and return the figures."""
        load = asyncio.create_task(self._load())
        if not self.plan.total:
            await asyncio.sleep(self.plan.warm_seconds)
        self.tally, self._has_enough = Tally(), asyncio.Event()
        began_ns, cpu_before, own_before = time.monotonic_ns(), self._cpu_ns(), time.process_time()
        await self._until_enough()
        ended_ns, cpu_after, own_after = time.monotonic_ns(), self._cpu_ns(), time.process_time()
        tally, self.is_over = self.tally, True
        load.cancel()
        await self._hang_up()
        return {
            "seconds": (ended_ns - began_ns) / 1e9,
            "cpu_seconds": (cpu_after - cpu_before) / 1e9,
            "loader_cpu_seconds": own_after - own_before,
            **figures(tally),
        }

    async def _hang_up(self) -> None:
        for client in self._clients:
            client.close()
        if self._dialling:
            await asyncio.wait(self._dialling)
        await asyncio.sleep(0)  # the loop tells the clients that their connections are gone

    def _cpu_ns(self) -> int:
        return cpu_ns(self.plan.pid) if self.plan.pid is not None else 0

    async def _load(self) -> None:
        if self.plan.rate_per_second:
            await self._at_rate()
            return
        for client in self._clients:
            client.begin(time.monotonic_ns())
            if not self.plan.total:  # spread over the warm-up, so that streams do not beat in step
                await asyncio.sleep(self.plan.warm_seconds / 2 / self.plan.connections)

    async def _at_rate(self) -> None:
        began, sent = time.monotonic(), 0
        while True:
            due = began + sent / self.plan.rate_per_second
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            self.tally.lateness.append(int((time.monotonic() - due) * 1e9))
            self._idle_client().begin(time.monotonic_ns())
            sent += 1

    def _idle_client(self) -> Client:
        for client in self._clients:
            if client.is_idle:
                return client
        self._clients.append(Client(self))
        return self._clients[-1]

    async def _until_enough(self) -> None:
        longest = LONGEST_BURST_SECONDS
        if not self.plan.total:
            await asyncio.sleep(self.plan.seconds)
            longest = max(LEAST_PATIENCE_SECONDS, (PATIENCE - 1) * self.plan.seconds)
            self.count()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(longest):
                await self._has_enough.wait()


def figures(tally: Tally) -> dict[str, object]:
    """The books as plain numbers."""
    return {
        "done": tally.done,
        "events": len(tally.event_delays),
        "codes": {str(code): count for code, count in sorted(tally.codes.items())},
        "errors": tally.errors,
        "broken_streams": tally.broken_streams,
        "cut_uploads": tally.cut_uploads,
        "p50_us": quantile_us(tally.latencies, 0.5),
        "p99_us": quantile_us(tally.latencies, 0.99),
        "event_p50_us": quantile_us(tally.event_delays, 0.5),
        "event_p99_us": quantile_us(tally.event_delays, 0.99),
        "late_p99_us": quantile_us(tally.lateness, 0.99),
    }


def _plan_of(arguments: argparse.Namespace) -> Plan:
    given = {name: value for name, value in vars(arguments).items() if name != "body"}
    return Plan(body=Path(arguments.body).read_bytes(), **given)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--body", required=True, help="file with the request body")
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--rate-per-second", type=float, default=0.0)
    parser.add_argument("--total", type=int, default=0)
    parser.add_argument("--stream", action="store_true")
    parser.add_argument("--warm-seconds", type=float, default=0.4)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--min-done", type=int, default=20)
    parser.add_argument("--pid", type=int, help="process whose CPU time is measured, with its children")
    plan = _plan_of(parser.parse_args())
    import uvloop  # noqa: PLC0415  # tests import this file and stay on the plain loop

    print(json.dumps(uvloop.run(Run(plan).measure())))


if __name__ == "__main__":
    main()
