"""The data path against a server that misbehaves on demand."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable

import pytest
from aiohttp.client_proto import ResponseHandler

from gateway.upstream.client import SLICE_BYTES, Answer, UpstreamClient, UpstreamTimeouts
from gateway.upstream.errors import UpstreamBrokenError, UpstreamDownError, UpstreamTimeoutError
from tests.support.clock import StoppedTime
from tests.support.raw_http import Stub, Visit

JSON = [(b"content-type", b"application/json")]
LIMITS = UpstreamTimeouts(connect_seconds=1.0, first_event_seconds=0.08, gap_seconds=0.08, whole_seconds=0.4)


@pytest.fixture
async def client(stub: Stub) -> AsyncIterator[UpstreamClient]:
    client = UpstreamClient(stub.base_url, LIMITS)
    await client.start()
    yield client
    await client.close()


@pytest.fixture
async def stopped_time(client: UpstreamClient, monkeypatch: pytest.MonkeyPatch) -> StoppedTime:
    return StoppedTime(monkeypatch)


async def post(client: UpstreamClient, *body: bytes | bytearray | memoryview, is_streaming: bool = False) -> Answer:
    return await client.send("POST", "/v1/chat/completions", JSON, body, request_id="gw-1", is_streaming=is_streaming)


async def read_all(answer: Answer) -> bytes:
    try:
        return b"".join([chunk async for chunk in pieces(answer)])
    finally:
        answer.finish()


async def pieces(answer: Answer) -> AsyncIterator[bytes]:
    while chunk := await answer.read():
        yield chunk


async def post_and_read(client: UpstreamClient) -> tuple[int, bytes]:
    answer = await post(client, b"{}")
    return answer.status, await read_all(answer)


def then(*scripts: Callable[[Visit], object]) -> Callable[[Visit], object]:
    """One script after the other, the last for ever."""
    rest = itertools.chain(scripts, itertools.repeat(scripts[-1]))
    return lambda visit: next(rest)(visit)  # noqa: PLW0108  the next script is to be picked at each visit


async def ok(visit: Visit) -> None:
    await visit.answer("200 OK", b"{}")


async def silent(visit: Visit) -> None:
    await visit.reader.read()
    raise ConnectionError


def streaming(pieces: "asyncio.Queue[bytes]") -> Callable[[Visit], object]:
    async def stream(visit: Visit) -> None:
        await visit.stream_head()
        while True:
            await visit.chunk(await pieces.get())

    return stream


class TestOneRequest:
    async def test_request_and_answer_arrive_as_they_were(self, client: UpstreamClient, stub: Stub) -> None:
        answer = await client.send("POST", "/v1/x?a=%2F&b", JSON, [b'{"a":', b"1}"], request_id="gw-7")
        assert (answer.status, answer.headers) == (
            200,
            [(b"content-length", b"2"), (b"content-type", b"application/json")],
        )
        assert await read_all(answer) == b"{}"
        (visit,) = stub.visits
        assert (visit.method, visit.path, visit.body) == ("POST", "/v1/x?a=%2F&b", b'{"a":1}')
        assert visit.headers == [
            ("host", stub.base_url.removeprefix("http://")),
            ("content-type", "application/json"),
            ("accept-encoding", "identity"),
            ("x-request-id", "gw-7"),
            ("content-length", "7"),
        ]

    async def test_a_get_has_no_body(self, client: UpstreamClient, stub: Stub) -> None:
        answer = await client.send("GET", "/v1/models", [], None, request_id="gw-1")
        assert await read_all(answer) == b"{}"
        assert (stub.visits[0].method, stub.visits[0].header("content-length")) == ("GET", [])

    async def test_a_header_in_utf8_passes_unchanged(self, client: UpstreamClient, stub: Stub) -> None:
        answer = await client.send("GET", "/", [(b"x-name", "é".encode())], None, request_id="gw-1")
        answer.finish()
        assert stub.visits[0].header("x-name") == ["é".encode().decode("latin-1")]

    async def test_connections_are_kept(self, client: UpstreamClient, stub: Stub) -> None:
        first = await post(client, b"{}")
        await read_all(first)
        second = await post(client, b"{}")
        await read_all(second)
        assert stub.connections == 1
        assert (client.statistics().in_flight, client.statistics().sent) == (0, 2)

    async def test_a_clients_error_passes_and_keeps_the_connection(self, client: UpstreamClient, stub: Stub) -> None:
        stub.script = lambda visit: visit.answer("400 Bad Request", b'{"error":{}}')
        assert await post_and_read(client) == (400, b'{"error":{}}')
        assert await post_and_read(client) == (400, b'{"error":{}}')
        assert stub.connections == 1


class TestUploads:
    async def test_a_short_body_waits_for_a_connection_that_takes_no_more(
        self, client: UpstreamClient, stub: Stub, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(ResponseHandler, "writing_paused", True)
        answer = await post(client, b'{"a":', memoryview(b"1}"))
        assert await read_all(answer) == b"{}"
        assert [visit.body for visit in stub.visits] == [b'{"a":1}']

    async def test_a_long_body_of_several_segments_arrives_whole(self, client: UpstreamClient, stub: Stub) -> None:
        picture = bytearray(bytes(range(256)) * (12 * SLICE_BYTES // 256) + b"end")
        await read_all(await post(client, b'{"url":"', memoryview(picture), b'"}'))
        (visit,) = stub.visits
        assert visit.body == b'{"url":"' + picture + b'"}'
        assert visit.header("content-length") == [str(len(picture) + 10)]
        assert visit.header("transfer-encoding") == []

    async def test_an_early_refusal_is_read_though_the_upload_is_not_done(
        self, client: UpstreamClient, stub: Stub
    ) -> None:
        async def refuse_unread(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\n{}")
            await writer.drain()
            await closed.wait()
            writer.close()

        closed = asyncio.Event()
        server = await asyncio.start_server(refuse_unread, "127.0.0.1", 0, limit=1024)
        other = UpstreamClient(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", LIMITS)
        await other.start()
        answer = await post(other, bytes(64 * 1024 * 1024))
        assert (answer.status, await read_all(answer)) == (413, b"{}")
        assert other.statistics().in_flight == 0
        closed.set()
        await other.close()
        server.close()

    async def test_cancelling_an_upload_closes_the_connection(self, client: UpstreamClient, stub: Stub) -> None:
        stub.script = silent
        task = asyncio.create_task(post(client, bytes(SLICE_BYTES + 1)))
        await stub.visited.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await stub.hung_up.wait()
        assert client.statistics().in_flight == 0


class TestStreams:
    async def test_pieces_pass_as_they_come(self, client: UpstreamClient, stub: Stub) -> None:
        seen = asyncio.Event()

        async def stream(visit: Visit) -> None:
            await visit.stream_head()
            await visit.chunk(b"data: 1\n\n")
            await seen.wait()
            await visit.chunk(b"data: [DONE]\n\n")
            await visit.write(b"0\r\n\r\n")

        stub.script = stream
        answer = await post(client, b"{}", is_streaming=True)
        assert answer.headers == [(b"content-type", b"text/event-stream")]
        assert await answer.read() == b"data: 1\n\n"
        seen.set()
        assert await answer.read() == b"data: [DONE]\n\n"
        assert await answer.read() == b""
        answer.finish()
        assert client.statistics().in_flight == 0

    async def test_abort_is_seen_by_the_server_at_once(self, client: UpstreamClient, stub: Stub) -> None:
        async def stream(visit: Visit) -> None:
            await visit.stream_head()
            await visit.chunk(b"data: 1\n\n")
            await silent(visit)

        stub.script = stream
        answer = await post(client, b"{}", is_streaming=True)
        assert await answer.read() == b"data: 1\n\n"
        answer.abort()
        await stub.hung_up.wait()
        answer.finish()
        assert client.statistics().in_flight == 0

    async def test_finish_without_reading_closes_too(self, client: UpstreamClient, stub: Stub) -> None:
        async def stream(visit: Visit) -> None:
            await visit.stream_head()
            await silent(visit)

        stub.script = stream
        (await post(client, b"{}", is_streaming=True)).finish()
        await stub.hung_up.wait()

    async def test_a_stream_that_breaks_off_is_an_error_not_an_end(self, client: UpstreamClient, stub: Stub) -> None:
        async def stream(visit: Visit) -> None:
            await visit.stream_head()
            await visit.chunk(b"data: 1\n\n")
            visit.writer.close()
            raise ConnectionError

        stub.script = stream
        answer = await post(client, b"{}", is_streaming=True)
        assert await answer.read() == b"data: 1\n\n"
        with pytest.raises(UpstreamBrokenError, match="broke"):
            await answer.read()
        answer.finish()
        assert (client.statistics().broken, client.statistics().in_flight) == (1, 0)


class TestTimeLimits:
    async def test_a_head_without_an_event_is_silence(self, client: UpstreamClient, stub: Stub) -> None:
        async def stream(visit: Visit) -> None:
            await visit.stream_head()
            await silent(visit)

        stub.script = stream
        answer = await post(client, b"{}", is_streaming=True)
        with pytest.raises(UpstreamTimeoutError, match="silence"):
            await answer.read()
        answer.finish()
        await stub.hung_up.wait()
        assert client.statistics().timed_out == 1

    async def test_no_head_at_all_is_silence_for_a_stream(self, client: UpstreamClient, stub: Stub) -> None:
        stub.script = silent
        with pytest.raises(UpstreamTimeoutError, match="silence"):
            await post(client, b"{}", is_streaming=True)
        await stub.hung_up.wait()

    async def test_a_whole_answer_may_take_longer_than_a_gap_but_not_for_ever(
        self, client: UpstreamClient, stub: Stub, stopped_time: StoppedTime
    ) -> None:
        async def slow(visit: Visit) -> None:
            await stopped_time.passes(0.99 * LIMITS.whole_seconds)
            await ok(visit)

        async def too_slow(visit: Visit) -> None:
            stopped_time.advance(LIMITS.whole_seconds)
            await silent(visit)

        stub.script = then(slow, too_slow)
        assert await post_and_read(client) == (200, b"{}")
        with pytest.raises(UpstreamTimeoutError, match="whole"):
            await post(client, b"{}")
        assert client.statistics().retried == 0

    async def test_each_piece_has_a_gap_of_its_own(
        self, client: UpstreamClient, stub: Stub, stopped_time: StoppedTime
    ) -> None:
        pieces: asyncio.Queue[bytes] = asyncio.Queue()
        stub.script = streaming(pieces)
        answer = await post(client, b"{}", is_streaming=True)
        for _ in range(4):
            reading = asyncio.create_task(answer.read())
            await stopped_time.passes(0.99 * LIMITS.gap_seconds)
            pieces.put_nowait(b"data: 1\n\n")
            assert await reading == b"data: 1\n\n"
        reading = asyncio.create_task(answer.read())
        await asyncio.sleep(0)
        stopped_time.advance(LIMITS.gap_seconds)
        with pytest.raises(UpstreamTimeoutError, match="silence"):
            await reading
        answer.finish()

    async def test_a_slow_reader_is_not_taken_for_silence(
        self, client: UpstreamClient, stub: Stub, stopped_time: StoppedTime
    ) -> None:
        async def stream(visit: Visit) -> None:
            await visit.stream_head()
            await visit.chunk(b"data: 1\n\n")
            await visit.chunk(b"data: 2\n\n")
            await visit.write(b"0\r\n\r\n")

        stub.script = stream
        answer = await post(client, b"{}", is_streaming=True)
        first = await answer.read()
        await stopped_time.passes(2.5 * LIMITS.gap_seconds)
        assert first + await read_all(answer) == b"data: 1\n\ndata: 2\n\n"

    async def test_an_answer_left_unread_does_not_cut_the_next_user_of_its_connection(
        self, client: UpstreamClient, stub: Stub, stopped_time: StoppedTime
    ) -> None:
        pieces: asyncio.Queue[bytes] = asyncio.Queue()
        stub.script = then(ok, streaming(pieces))
        left = await post(client, b"{}")
        await stopped_time.passes(LIMITS.whole_seconds / 2)
        following = await post(client, b"{}", is_streaming=True)
        assert stub.connections == 1
        for _ in range(8):
            await stopped_time.passes(LIMITS.whole_seconds / 10)
            pieces.put_nowait(b".")
            assert await following.read() == b"."
        following.finish()
        assert await read_all(left) == b"{}"


class TestFaults:
    async def test_nobody_listens(self, unused_tcp_port: int) -> None:
        client = UpstreamClient(f"http://127.0.0.1:{unused_tcp_port}")
        await client.start()
        with pytest.raises(UpstreamDownError):
            await post(client, b"{}")
        assert (client.statistics().down, client.statistics().in_flight) == (1, 0)
        await client.close()

    @pytest.mark.parametrize("body", [b"", b'{"error":{"code":500}}', b"x" * 1_000_000])
    async def test_after_a_5xx_the_connection_is_never_used_again(
        self, client: UpstreamClient, stub: Stub, body: bytes
    ) -> None:
        stub.script = then(lambda visit: visit.answer("500 Internal Server Error", body), ok)
        assert await post_and_read(client) == (500, body)
        assert await post_and_read(client) == (200, b"{}")
        assert [visit.connection for visit in stub.visits] == [1, 2]

    async def test_a_pooled_connection_that_was_closed_is_replaced_once(
        self, client: UpstreamClient, stub: Stub
    ) -> None:
        async def hang_up(visit: Visit) -> None:
            visit.reset()
            raise ConnectionError

        stub.script = then(ok, hang_up, ok)
        await post_and_read(client)
        answer = await post(client, bytes(SLICE_BYTES), b"tail")
        assert (answer.status, await read_all(answer), stub.connections) == (200, b"{}", 2)
        assert [len(visit.body) for visit in stub.visits] == [2, SLICE_BYTES + 4, SLICE_BYTES + 4]
        assert client.statistics().retried == 1

        stub.script = then(ok, hang_up)
        await post_and_read(client)
        with pytest.raises(UpstreamBrokenError):
            await post(client, b"{}")
        assert client.statistics().in_flight == 0

    @pytest.mark.parametrize("method", ["GET", "POST"])
    async def test_a_fresh_connection_that_breaks_is_not_replaced(
        self, client: UpstreamClient, stub: Stub, method: str
    ) -> None:
        async def hang_up(visit: Visit) -> None:
            visit.reset()
            raise ConnectionError

        stub.script = hang_up
        with pytest.raises(UpstreamBrokenError):
            await client.send(method, "/v1/models", [], None, request_id="gw-1")
        assert len(stub.visits) == 1

    async def test_no_second_try_once_a_byte_of_the_answer_came(self, client: UpstreamClient, stub: Stub) -> None:
        async def half_a_head(visit: Visit) -> None:
            await visit.write(b"HTTP/1.1 200 OK\r\ncontent-le")
            visit.writer.close()
            raise ConnectionError

        stub.script = then(ok, half_a_head)
        await post_and_read(client)
        with pytest.raises(UpstreamBrokenError):
            await post(client, b"{}")
        assert len(stub.visits) == 2

    async def test_what_is_no_http_is_a_broken_answer(self, client: UpstreamClient, stub: Stub) -> None:
        stub.script = lambda visit: visit.write(b"SSH-2.0-OpenSSH\r\n\r\n")
        with pytest.raises(UpstreamBrokenError):
            await post(client, b"{}")

    async def test_a_redirect_is_neither_followed_nor_shown(self, client: UpstreamClient, stub: Stub) -> None:
        stub.script = lambda visit: visit.answer(
            "307 Temporary Redirect", b"", "location: http://10.0.0.9:8000/v1/chat/completions"
        )
        with pytest.raises(UpstreamBrokenError, match=r"a redirect \(307\)") as caught:
            await post(client, b"{}")
        assert "10.0.0.9" not in str(caught.value)
        assert (len(stub.visits), client.statistics().in_flight, client.statistics().broken) == (1, 0, 1)

    async def test_an_error_that_is_not_of_the_connection_is_not_hidden(self, client: UpstreamClient) -> None:
        with pytest.raises(TypeError):
            await post(client, "text")
        assert client.statistics().in_flight == 0
