"""A fast stand-in for vLLM, for benchmarks only: it answers at once, or at the pace that the request asks for.

It keeps just enough of vLLM's contract for a gateway to start in front of it and to stream through it; the emulator is
the one that behaves like vLLM. Every knob is a field of the request body, so any proxy may stand in between:

    "stream": true      answer as server-sent events, otherwise as one JSON document
    "max_tokens": N     number of content events, and of completion tokens in the usage      (16)
    "seed": MICROS      pause before the JSON answer, or before each event                   (0)

Each content event carries `@<time.monotonic_ns()>@`, so a reader on this machine learns how long the event was under
way. `GET /stats` tells what arrived here; a test holds the load generator's books against it.
"""

import asyncio
import json
import re
import sys
import time
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import cast

import httptools

# Of a large body only both ends are searched for knobs: the picture lies between them.
EDGE_BYTES = 4096
SMALL_BODY_BYTES = 65_536
MODEL = "m"

_KNOB = re.compile(rb'"(stream|max_tokens|seed|include_usage)"\s*:\s*(true|\d+)')
_METRIC_LABELS = f'engine="0",model_name="{MODEL}"'
_METRICS = f"""\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{{_METRIC_LABELS}}} 0.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{{{_METRIC_LABELS}}} 0.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{{{_METRIC_LABELS}}} 0.0
# TYPE vllm:num_preemptions_total counter
vllm:num_preemptions_total{{{_METRIC_LABELS}}} 0.0
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{{block_size="16",enable_prefix_caching="True",engine="0",kv_cache_size_tokens="16000000",\
num_gpu_blocks="1000000"}} 1.0
"""
_MODELS = {
    "object": "list",
    "data": [
        {"id": MODEL, "object": "model", "created": 1, "owned_by": "vllm", "root": MODEL, "max_model_len": 131_072}
    ],
}
_DOCUMENTS = {
    b"/health": ("text/plain", b""),
    b"/version": ("application/json", b'{"version":"0.32.0"}'),
    b"/v1/models": ("application/json", json.dumps(_MODELS).encode()),
    b"/metrics": ("text/plain; version=0.0.4", _METRICS.encode()),
}
_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nserver: stub\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
_CHUNK_START = b'data: {"id":"chatcmpl-stub","object":"chat.completion.chunk","created":1,"model":"m","choices":['
_EVENT_START = _CHUNK_START + b'{"index":0,"delta":'
_FIRST_EVENT = _EVENT_START + b'{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}\n\n'
_LAST_EVENT = _EVENT_START + b'{"content":""},"logprobs":null,"finish_reason":"stop"}]}\n\n'


@dataclass(frozen=True, slots=True)
class Knobs:
    """What the request asks of the stub."""

    stream: bool
    events: int
    pause_seconds: float
    include_usage: bool


@dataclass(slots=True)
class Books:
    """What arrived, for `/stats`."""

    requests: int = 0
    body_bytes: int = 0
    events: int = 0
    aborted: int = 0


@dataclass(slots=True)
class Edges:
    """Both ends of a body that is otherwise thrown away; the whole of a small one."""

    total_bytes: int = 0
    head: bytes = b""
    tail: bytes = b""

    def add(self, piece: bytes) -> None:
        self.total_bytes += len(piece)
        if self.total_bytes <= SMALL_BODY_BYTES:
            self.head += piece
            return
        if len(self.head) < EDGE_BYTES:
            self.head += piece[:EDGE_BYTES]
        self.tail = piece[-EDGE_BYTES:] if len(piece) >= EDGE_BYTES else (self.tail + piece)[-EDGE_BYTES:]

    def seen(self) -> bytes:
        return self.head + self.tail


@lru_cache(maxsize=64)
def read_knobs(seen: bytes) -> Knobs:
    """The knobs in what was seen of a body."""
    found = dict(_KNOB.findall(seen))
    return Knobs(
        stream=found.get(b"stream") == b"true",
        events=int(found.get(b"max_tokens", 16)),
        pause_seconds=int(found.get(b"seed", 0)) / 1e6,
        include_usage=found.get(b"include_usage") == b"true",
    )


def usage_of(body_bytes: int, events: int) -> dict[str, int]:
    """A plausible usage: the benchmark's texts are near four bytes a token, and pictures count as a flat thousand."""
    prompt = body_bytes // 4 if body_bytes <= SMALL_BODY_BYTES else 1000
    return {"prompt_tokens": prompt, "completion_tokens": events, "total_tokens": prompt + events}


def document(content_type: str, body: bytes, *, status: str = "200 OK") -> bytes:
    head = f"HTTP/1.1 {status}\r\nserver: stub\r\ncontent-type: {content_type}\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


@lru_cache(maxsize=64)
def completion(body_bytes: int, events: int) -> bytes:
    """The whole answer to a request that does not stream."""
    content = "token " * min(events, 64)
    message: dict[str, object] = {"role": "assistant", "content": content, "refusal": None, "tool_calls": []}
    answer = {
        "id": "chatcmpl-stub",
        "object": "chat.completion",
        "created": 1,
        "model": MODEL,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}],
        "usage": usage_of(body_bytes, events),
    }
    return document("application/json", json.dumps(answer, separators=(",", ":")).encode())


def content_event(now_ns: int) -> bytes:
    return _EVENT_START + b'{"content":"@%d@"},"logprobs":null,"finish_reason":null}]}\n\n' % now_ns


def closing_events(knobs: Knobs, body_bytes: int) -> bytes:
    """The finish reason, the usage if asked for, and the end mark."""
    usage = b""
    if knobs.include_usage:
        numbers = json.dumps(usage_of(body_bytes, knobs.events)).encode()
        usage = _CHUNK_START + b'],"usage":' + numbers + b"}\n\n"
    return _LAST_EVENT + usage + b"data: [DONE]\n\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


@dataclass(slots=True)
class Answering:
    """The answer under way on one connection."""

    knobs: Knobs
    body_bytes: int
    due: float
    events_left: int
    timer: asyncio.TimerHandle | None = None


class Stub:
    """The server: what its connections share, and its end."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.books = Books()
        self.connections: set[Connection] = set()

    async def listen(self, port: int = 0) -> int:
        """Listen on 127.0.0.1 and return the port; 0 takes a free one."""
        self._listening = await self.loop.create_server(lambda: Connection(self), "127.0.0.1", port, backlog=4096)
        taken: int = self._listening.sockets[0].getsockname()[1]
        return taken

    async def close(self) -> None:
        """Stop listening and drop every connection."""
        self._listening.close()
        for connection in self.connections:
            connection.abort()
        await self._listening.wait_closed()


class Connection(asyncio.Protocol):
    """One client connection: a parser in front, at most one answer under way."""

    _transport: asyncio.Transport

    def __init__(self, server: Stub) -> None:
        self._server = server
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._edges = Edges()
        self._answering: Answering | None = None
        self._is_reader_slow = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one without saying so
        self._server.connections.add(self)

    def abort(self) -> None:
        self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._server.connections.discard(self)
        if self._answering is not None:
            self._server.books.aborted += 1
            if self._answering.timer is not None:
                self._answering.timer.cancel()

    def pause_writing(self) -> None:
        self._is_reader_slow = True

    def resume_writing(self) -> None:
        self._is_reader_slow = False
        if self._answering is not None and self._answering.timer is None:
            self._stream()

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._transport.close()

    # Called by the parser.

    def on_url(self, url: bytes) -> None:
        self._url = url
        self._edges = Edges()

    def on_body(self, piece: bytes) -> None:
        self._edges.add(piece)

    def on_message_complete(self) -> None:
        if self._url == b"/v1/chat/completions":
            self._chat()
        elif self._url == b"/stats":
            self._transport.write(document("application/json", json.dumps(asdict(self._server.books)).encode()))
        elif self._url in _DOCUMENTS:
            self._transport.write(document(*_DOCUMENTS[self._url]))
        else:
            self._transport.write(document("application/json", b'{"detail":"Not Found"}', status="404 Not Found"))

    def _chat(self) -> None:
        knobs, body_bytes = read_knobs(self._edges.seen()), self._edges.total_bytes
        self._server.books.requests += 1
        self._server.books.body_bytes += body_bytes
        if not knobs.stream and not knobs.pause_seconds:
            self._transport.write(completion(body_bytes, knobs.events))
            return
        due = self._server.loop.time() + knobs.pause_seconds
        self._answering = Answering(knobs, body_bytes, due, knobs.events)
        if knobs.stream:
            self._transport.write(_STREAM_HEAD + chunk(_FIRST_EVENT))
            self._stream()
        else:
            self._answering.timer = self._server.loop.call_at(due, self._answer_late)

    def _answer_late(self) -> None:
        assert self._answering is not None
        self._transport.write(completion(self._answering.body_bytes, self._answering.knobs.events))
        self._answering = None

    def _stream(self) -> None:
        """Send what may go now: one event if they are paced, all that the socket takes if not."""
        answering = self._answering
        assert answering is not None
        answering.timer = None
        if answering.knobs.pause_seconds:
            answering.timer = self._server.loop.call_at(answering.due, self._paced_event)
            return
        while answering.events_left and not self._is_reader_slow:
            self._send_event(answering)
        if not answering.events_left:
            self._finish(answering)

    def _paced_event(self) -> None:
        answering = self._answering
        assert answering is not None
        if not self._is_reader_slow:
            self._send_event(answering)
        if not answering.events_left:
            self._finish(answering)
            return
        answering.due += answering.knobs.pause_seconds
        answering.timer = self._server.loop.call_at(answering.due, self._paced_event)

    def _send_event(self, answering: Answering) -> None:
        self._transport.write(chunk(content_event(time.monotonic_ns())))
        answering.events_left -= 1
        self._server.books.events += 1

    def _finish(self, answering: Answering) -> None:
        self._answering = None
        self._transport.write(chunk(closing_events(answering.knobs, answering.body_bytes)) + b"0\r\n\r\n")


async def _serve(port: int) -> None:
    await Stub().listen(port)
    await asyncio.Event().wait()


if __name__ == "__main__":
    import uvloop

    uvloop.run(_serve(int(sys.argv[1])))
