"""Records in, JSON lines out; the output is a list, a gate that blocks, or one that fails."""

import asyncio
import json
import os
import threading
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime

import pytest

from gateway.domain.outcome import Outcome, Reason
from gateway.telemetry.request_log import RequestLog, RequestRecord, stdout_writer

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


def record(request_id: str = "gw-1", **fields: object) -> RequestRecord:
    return RequestRecord(
        time=NOON, request_id=request_id, outcome=Outcome.FINISHED, endpoint="/v1/chat/completions", **fields
    )


class Output:
    """Takes lines; blocks while `open` is not set, fails while `is_broken`."""

    def __init__(self) -> None:
        self.data = b""
        self.open = threading.Event()
        self.open.set()
        self.reached = threading.Event()
        self.is_broken = False

    def write(self, data: bytes) -> None:
        self.reached.set()
        self.open.wait(10)
        if self.is_broken:
            raise BrokenPipeError
        self.data += data

    @property
    def ids(self) -> list[str]:
        return [json.loads(line)["request_id"] for line in self.data.splitlines() if line]


@pytest.fixture
def output() -> Output:
    return Output()


@pytest.fixture
async def log(output: Output) -> AsyncIterator[RequestLog]:
    log = RequestLog(output.write, most_records=3, flush_seconds=0.001)
    await log.start()
    yield log
    output.open.set()
    await log.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110  what is waited for happens in another thread
            await asyncio.sleep(0.001)


async def test_a_line_says_all_that_is_known_and_nothing_else(output: Output, log: RequestLog) -> None:
    log.write(
        record(
            status=429,
            reason=Reason.QUEUE_FULL,
            code="rate_limit_exceeded",
            short="kv_blocks",
            message="The queue is full.",
            queue_ms=1.5,
            images=2,
        )
    )
    await log.close()
    assert output.data.endswith(b"}\n")
    assert json.loads(output.data) == {
        "time": "2026-11-30T12:00:00Z",
        "request_id": "gw-1",
        "outcome": "finished",
        "endpoint": "/v1/chat/completions",
        "status": 429,
        "reason": "queue_full",
        "code": "rate_limit_exceeded",
        "short": "kv_blocks",
        "message": "The queue is full.",
        "queue_ms": 1.5,
        "images": 2,
    }


def test_no_field_can_carry_a_picture_a_prompt_or_a_key() -> None:
    suspicious = {"body", "prompt", "text", "url", "headers", "authorization", "key", "api_key", "content"}
    assert not suspicious & set(RequestRecord.__struct_fields__)


async def test_lines_come_without_closing_and_in_order(output: Output, log: RequestLog) -> None:
    log.write(record("a"))
    log.write(record("b"))
    await until(lambda: output.ids == ["a", "b"])
    log.write(record("c"))
    await until(lambda: output.ids == ["a", "b", "c"])
    await until(lambda: log.statistics().written == 3)
    assert (log.statistics().dropped, log.statistics().waiting) == (0, 0)


async def test_many_lines_do_not_wait_for_the_time(output: Output) -> None:
    log = RequestLog(output.write, flush_seconds=3600)
    await log.start()
    for number in range(300):
        log.write(record(str(number)))
    await until(lambda: log.statistics().written == 256)
    await log.close()
    assert output.ids == [str(number) for number in range(300)]


async def test_a_blocked_output_holds_up_nobody_and_costs_only_lines(output: Output, log: RequestLog) -> None:
    output.open.clear()
    log.write(record("a"))
    await asyncio.to_thread(output.reached.wait, 5)
    for request_id in "bcde":
        log.write(record(request_id))
    assert (log.statistics().dropped, log.statistics().waiting) == (2, 3)
    output.open.set()
    await until(lambda: log.statistics().written == 3)
    assert output.ids == ["a", "b", "c"]
    log.write(record("f"))
    await until(lambda: output.ids == ["a", "b", "c", "f"])


async def test_a_broken_output_is_counted_and_tried_again(output: Output, log: RequestLog) -> None:
    output.is_broken = True
    log.write(record("a"))
    await until(lambda: log.statistics().dropped == 1)
    output.is_broken = False
    log.write(record("b"))
    await until(lambda: log.statistics().written == 1)
    assert output.data.startswith(b"\n{")
    log.write(record("c"))
    await until(lambda: log.statistics().written == 2)
    assert output.ids == ["b", "c"]


async def test_closing_gives_a_blocked_output_up(
    output: Output, log: RequestLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.telemetry.request_log._CLOSE_SECONDS", 0.01)
    output.open.clear()
    log.write(record())
    await log.close()
    assert log.statistics().waiting == 1


async def test_a_log_that_is_off_writes_nothing(output: Output) -> None:
    log = RequestLog(output.write, is_on=False)
    await log.start()
    log.write(record())
    await log.close()
    assert (output.data, log.statistics().dropped) == (b"", 0)


async def test_closing_an_unused_log_is_quiet(output: Output, log: RequestLog) -> None:
    await log.close()
    assert output.data == b""


async def test_a_record_that_json_cannot_say_costs_only_itself(output: Output, log: RequestLog) -> None:
    log.write(record("a"))
    log.write(record("b", message="half a pair: \ud800"))
    log.write(record("c"))
    await log.close()
    assert output.ids == ["a", "c"]
    assert (log.statistics().written, log.statistics().dropped) == (2, 1)


async def test_long_messages_are_cut(output: Output, log: RequestLog) -> None:
    log.write(record(message="x" * 5_000))
    await log.close()
    assert json.loads(output.data)["message"] == "x" * 1_000 + "…"


def test_standard_output_gets_everything_though_the_pipe_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    read_end, write_end = os.pipe()
    with os.fdopen(write_end, "w") as stdout, os.fdopen(read_end, "rb") as pipe:
        monkeypatch.setattr("sys.stdout", stdout)
        data = bytes(range(256)) * 1024
        writer = threading.Thread(target=lambda: (stdout_writer()(data), stdout.close()))
        writer.start()
        assert pipe.read() == data
        writer.join()
