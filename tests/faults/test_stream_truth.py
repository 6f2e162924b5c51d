"""Wherever a stream is cut, its client is told inside of it or has the whole answer, and no byte is made up or lost.

The streams are those of an emulated vLLM 0.32, recorded once for each dialect. Every byte offset of each is a place
where the upstream's connection breaks; what the client got is judged here by the framing of server-sent events alone.
"""

import asyncio
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.emulator.config import EmulatorConfig
from gateway.emulator.serve import running_emulator
from gateway.wire.usage_event import UsageEventFilter
from tests.support.live_gateway import CHAT, MODEL, chat, live_gateway
from tests.support.model_server import model_server
from tests.support.raw_client import raw_client

SHORT = {"stream": True, "max_tokens": 3}
ASKS = {
    "chat": (CHAT, chat(**SHORT)),
    "chat that asked for usage": (CHAT, chat(**SHORT, stream_options={"include_usage": True})),
    "completions": ("/v1/completions", {"model": MODEL, "prompt": "Once", **SHORT}),
    "messages": (
        "/v1/messages",
        {"model": MODEL, "messages": [{"role": "user", "content": "Hello."}], **SHORT},
    ),
    "responses": ("/v1/responses", {"model": MODEL, "input": "Hello.", "stream": True, "max_output_tokens": 1}),
}
ENDS = {"/v1/messages": b"event: message_stop\n", "/v1/responses": b"event: response.completed\n"}
AT_ONCE = 16


@pytest.fixture(scope="module")
def recorded():
    """By dialect, what the gateway gets and what its client gets, where nothing breaks."""
    return asyncio.run(_recorded())


async def _recorded():
    streams = {}
    with running_emulator(EmulatorConfig.fast()) as emulator:
        for name, (path, body) in ASKS.items():
            whole = await _asked_directly(emulator.base_url, path, _as_sent_on(path, body))
            streams[name] = whole
    return streams


def _as_sent_on(path, body):
    """What the gateway makes of it: usage asked for on the routes where that can be."""
    return body if path in ENDS else body | {"stream_options": {"include_usage": True}}


async def _asked_directly(url, path, body):
    host, _, port = url.removeprefix("http://").partition(":")
    async with raw_client(host, int(port)) as client:
        client.post(json.dumps(body).encode(), "connection: close", path=path)
        status, _ = await client.answer_head()
        assert status == 200
        return unchunked(await client.reader.read())[0]


def unchunked(wire: bytes) -> tuple[bytes, bool]:
    """The bytes of a chunked body, and whether it came to its end."""
    out = bytearray()
    while wire:
        size, _, wire = wire.partition(b"\r\n")
        count = int(size or b"0", 16)
        if count == 0:
            return bytes(out), bool(size)
        out += wire[:count]
        wire = wire[count + 2 :]
    return bytes(out), False


def events_of(stream: bytes) -> list[bytes]:
    return [event for event in stream.split(b"\n\n") if event.strip()]


def is_whole(path: str, stream: bytes) -> bool:
    """As a client of the route sees it."""
    end = ENDS.get(path)
    last = events_of(stream)[-1].strip() if stream.strip() else b""
    return last == b"data: [DONE]" if end is None else last.startswith(end)


def error_in(path: str, stream: bytes) -> dict[str, object] | None:
    """The error that the last event, or the last but [DONE], tells."""
    events = [event for event in events_of(stream) if event != b"data: [DONE]"]
    if not events:
        return None
    data = events[-1].rpartition(b"data: ")[2]
    try:
        told = json.loads(data)
    except ValueError:
        return None
    error = told.get("error") if isinstance(told, dict) else None
    return error if isinstance(error, dict) else None


def forwarded_of(path: str, cut: bytes) -> bytes:
    """What of the upstream's bytes a client gets that did not ask for usage: all but that event."""
    sieve = UsageEventFilter()
    return sieve.feed(cut) + sieve.flush()


async def _answer_at(gateway, path, body, offset):
    async with raw_client(gateway.host, gateway.port) as client:
        client.post(json.dumps(body | {"user": str(offset)}).encode(), "connection: close", path=path)
        status, headers = await client.answer_head()
        rest = await client.reader.read()
        return status, headers, rest


@pytest.mark.parametrize("is_in_order", [False, True], ids=["cut off", "ended in order"])
@pytest.mark.parametrize("name", ASKS)
async def test_every_place_to_cut_a_stream(recorded, name, is_in_order):
    """Cut off, so that its framing tells, or ended in order, as a proxy may do: then only its events tell."""
    path, body = ASKS[name]
    stream = recorded[name]
    assert is_whole(path, stream)

    async def cut_there(visit):
        offset = int(json.loads(visit.body)["user"])
        await visit.stream_head()
        if offset:
            await visit.chunk(stream[:offset])
        if is_in_order or offset == len(stream):
            await visit.write(b"0\r\n\r\n")
        else:
            visit.writer.close()
            raise ConnectionError

    has_usage_event = name in {"chat", "completions"}
    async with model_server(cut_there) as upstream, live_gateway(upstream.base_url) as gateway:
        await gateway.until_up()
        for first in range(0, len(stream) + 1, AT_ONCE):
            offsets = range(first, min(first + AT_ONCE, len(stream) + 1))
            answers = await asyncio.gather(*(_answer_at(gateway, path, body, offset) for offset in offsets))
            for offset, (status, _, rest) in zip(offsets, answers, strict=True):
                _judge(path, stream, offset, status, rest, has_usage_event=has_usage_event)
        await gateway.until_released()
        assert "gateway_fault" not in gateway.ended()


def _judge(path, stream, offset, status, rest, *, has_usage_event):
    cut = stream[:offset]
    where = f"cut at {offset} of {len(stream)}: {rest[-300:]!r}"
    if status != 200:
        assert (offset, status) == (0, 502), where
        return
    got, has_ended = unchunked(rest)
    assert has_ended, f"a silent end, {where}"
    sent_on = forwarded_of(path, cut) if has_usage_event else cut
    assert got.startswith(sent_on), where
    added = got[len(sent_on) :]
    if is_whole(path, sent_on) and not added:
        # Behind its last event a few line ends may be missing: nobody misses them.
        assert offset == len(stream) or not stream[offset:].strip(), where
    else:
        error = error_in(path, got)
        assert error is not None, f"no error event, {where}"
        assert error["message"], where
        assert added.count(b"error") >= 1, where


@settings(max_examples=60)
@given(data=st.data())
def test_bytes_forwarded_are_bytes_received_however_they_are_cut(recorded, data):
    """But for the usage event that the gateway asked for itself, which only the filter takes out."""
    stream = recorded[data.draw(st.sampled_from(["chat", "completions"]))]
    places = sorted(data.draw(st.sets(st.integers(0, len(stream)), max_size=40)))
    sieve = UsageEventFilter()
    pieces = [stream[start:end] for start, end in zip([0, *places], [*places, len(stream)], strict=True)]
    got = b"".join(map(sieve.feed, pieces)) + sieve.flush()
    (usage,) = (event for event in events_of(stream) if b'"choices":[]' in event and b'"usage":{' in event)
    assert [event for event in events_of(got) if b'"finish_reason":"' not in event] == [
        event for event in events_of(stream) if event != usage and b'"finish_reason":"' not in event
    ]
    assert len(events_of(got)) == len(events_of(stream)) - 1
