import asyncio
import contextlib
import json
import sys
import time

from benchmarks import loader
from benchmarks.bodies import text_request
from benchmarks.loader import UNIQUE_MARK, Plan, Run
from benchmarks.processes import free_port
from benchmarks.stub import Stub

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


@contextlib.asynccontextmanager
async def stub_server():
    server = Stub()
    yield await server.listen(), server.books
    await server.close()


@contextlib.asynccontextmanager
async def raw_server(serve):
    """A server whose connections run `serve(reader, writer)` and are closed at the end; yields its port."""
    tasks = set()

    async def connection(reader, writer):
        tasks.add(asyncio.current_task())
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await serve(reader, writer)
        writer.close()
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            await writer.wait_closed()

    server = await asyncio.start_server(connection, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def scripted_server(answer):
    """Reads one request after the other and lets `answer(body, writer)` reply; yields its port and the bodies."""
    bodies = []

    async def serve(reader, writer):
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = int(head.split("content-length: ")[1].split("\r\n")[0])
            bodies.append(await reader.readexactly(length))
            await answer(bodies[-1], writer)

    async with raw_server(serve) as port:
        yield port, bodies


def replies(data):
    async def answer(_body, writer):
        writer.write(data)
        await writer.drain()

    return answer


async def test_a_burst_sends_each_request_once_and_counts_what_the_server_counted():
    body = text_request()
    async with stub_server() as (port, books):
        seen = await Run(Plan(port, body, connections=10, total=10)).measure()
    assert (seen["done"], seen["codes"], seen["errors"]) == (10, {"200": 10}, 0)
    assert (books.requests, books.body_bytes) == (10, 10 * len(body))
    assert 0 < seen["p50_us"] <= seen["p99_us"]


async def test_the_closed_loop_goes_on_until_it_has_enough():
    async with stub_server() as (port, books):
        seen = await Run(Plan(port, text_request(), connections=3, warm_seconds=0, seconds=0.05, min_done=5)).measure()
    assert 5 <= seen["done"] <= books.requests


async def test_events_are_counted_and_their_delay_is_that_of_the_stamp():
    sent_ns = time.monotonic_ns() - 5_000_000_000
    events = b'data: {"content":"@%d@"}\n\n' % sent_ns * 3 + b"data: [DONE]\n\n"
    stream = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(events), events)
    async with scripted_server(replies(stream)) as (port, _):
        seen = await Run(Plan(port, b"{}", connections=1, total=1, stream=True)).measure()
    assert (seen["events"], seen["broken_streams"]) == (3, 0)
    assert seen["event_p50_us"] >= 5_000_000


async def test_a_stream_without_its_end_mark_is_broken():
    stream = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\ndata: x\n\n"
    async with scripted_server(replies(stream)) as (port, _):
        seen = await Run(Plan(port, b"{}", connections=1, total=1, stream=True)).measure()
    assert seen["broken_streams"] == 1


async def test_no_two_pictures_are_alike_and_only_the_mark_differs():
    body = b'{"url":"data:image/jpeg;base64,abcd' + UNIQUE_MARK + b"efgh" * 40_000 + b'"}'
    before, _, after = body.partition(UNIQUE_MARK)
    async with scripted_server(replies(OK)) as (port, bodies):
        await Run(Plan(port, body, connections=3, total=3)).measure()
    assert len(set(bodies)) == 3
    assert all(one.startswith(before) and one.endswith(after) and len(one) == len(body) for one in bodies)


async def test_a_connection_that_the_server_closes_is_dialled_again():
    closing = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok"
    async with scripted_server(replies(closing)) as (port, bodies):
        run = Run(Plan(port, b"{}", connections=1, warm_seconds=0, seconds=0.2, min_done=3))
        seen = await run.measure()
    assert seen["errors"] == 0
    assert set(seen["codes"]) == {"200"}
    assert len(bodies) >= 3


async def test_an_upload_whose_answer_comes_early_is_sent_to_its_end_and_its_connection_used_again():
    refusal = b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 2\r\n\r\nno"
    uploads = []

    async def refuse_then_drain(reader, writer):
        while True:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(refusal)
            uploads.append((writer, len(await reader.readexactly(8_000_000))))

    async with raw_server(refuse_then_drain) as port:
        plan = Plan(port, bytes(8_000_000), connections=1, warm_seconds=0, seconds=0.3, min_done=2)
        seen = await Run(plan).measure()
    assert (set(seen["codes"]), seen["cut_uploads"], seen["errors"]) == ({"429"}, 0, 0)
    assert len({writer for writer, _ in uploads}) == 1


async def test_an_upload_that_the_server_cuts_is_not_a_clean_refusal():
    refusal = b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 2\r\n\r\nno"

    async def refuse_and_close(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(refusal)

    async with raw_server(refuse_and_close) as port:
        seen = await Run(Plan(port, bytes(30_000_000), connections=1, total=1)).measure()
    assert seen["cut_uploads"] + seen["errors"] == 1


async def test_at_a_fixed_rate_requests_leave_though_none_is_answered():
    async def never(_body, _writer):
        await asyncio.Event().wait()

    async with scripted_server(never) as (port, bodies):
        plan = Plan(port, b"{}", connections=1, rate_per_second=500, warm_seconds=0, seconds=0.1, min_done=0)
        seen = await Run(plan).measure()
        assert seen["done"] == 0
        assert len(bodies) > 1


async def test_a_port_where_nobody_listens_is_an_error_and_not_a_hang():
    seen = await Run(Plan(free_port(), b"{}", connections=1, total=1)).measure()
    assert (seen["done"], seen["errors"]) == (0, 1)


async def test_the_program_prints_its_figures_as_json(tmp_path):
    body = tmp_path / "body.json"
    body.write_bytes(text_request())
    async with stub_server() as (port, _):
        command = [sys.executable, "-m", "benchmarks.loader", "--port", str(port), "--body", str(body), "--total", "1"]
        child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        printed, _ = await child.communicate()
    assert json.loads(printed)["codes"] == {"200": 1}


def test_a_quantile_of_nothing_is_nothing():
    assert loader.quantile_us([], 0.5) == 0.0
    assert loader.quantile_us([4000, 1000, 3000, 2000], 0.5) == 3.0
    assert loader.quantile_us([1000], 0.99) == 1.0
