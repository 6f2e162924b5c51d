"""The request log: one JSON line per request, and no way for its output to hold up the loop.

The loop only keeps the record; a thread of its own encodes and writes, woken five times a second, or more often by
many lines. What a slow or broken output cannot take is dropped and counted. Nothing of a picture, a prompt or a key has
a field here.

All other lines are made by structlog (logs.py), these are not: measured, the encoder alone makes 640,000 lines a second
with one Python call each; as structlog's renderer 330,000 with five; from a dict as structlog has it 130,000 with nine.
"""

import asyncio
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from queue import SimpleQueue

import msgspec

from gateway.domain.cost import EngineLimits, Uncertainty
from gateway.domain.outcome import Fate, Outcome, Reason
from gateway.domain.quantities import Bounds

_FLUSH_SECONDS = 0.2
_FLUSH_RECORDS = 256  # to encode more at once would hold up the loop for a millisecond
_MOST_RECORDS = 8192
_CLOSE_SECONDS = 2.0
_LONGEST_MESSAGE = 1000


class Picture(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One image of a request as its header had it, for `vlm-gateway replay`; a list in the line.

    `digest` is the beginning of its file's hash, by which the same picture is known again; None where none was made.
    The size is after orientation, `tokens` what it costs as planned.
    """

    digest: str | None
    format: str
    width: int
    height: int
    tokens: int
    is_low_detail: bool = False


class TokensUsed(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, gc=False):
    """What a request took of the engine, by kind: the prompt is `text`, `visual` (images, with the markers around them)
    and `media` (videos and audio), `output` all its answers. `cached` tokens of the prompt were in the engine's prefix
    cache, as far as it tells.

    `is_estimate`: the engine reported nothing, so that all of it is the gateway's own reckoning.
    """

    text: int = 0
    visual: int = 0
    media: int = 0
    output: int = 0
    cached: int = 0
    is_estimate: bool = False


class RequestRecord(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What the line of one request says; what is None or zero by default is left out.

    `time` is the end of the request. `tenant` is the operator's name for whoever has the key, or `default`;
    `deadline_ms` what the client gave from its arrival. `message` is what a refused client was told, `short` the
    resource that was short. `model` served, in place of `asked_model` where that is there. `upstream` is the server
    that got it or had no place for it, by its name if it has one, and `failed_upstream` the one that failed it before.
    Where it is not known exactly what its images cost, `visual_tokens` are the most, `visual_tokens_least` the least,
    and `visual_why` says why. Tokens are predicted ones, as reserved, and `actual_…` those that the engine reported;
    `counted_output_tokens` are by the events of a stream in which it reported none. `used` is what is to be accounted.
    `is_kept_alive`: its 200 went out while it waited, whatever came of it then.
    `media_tokens` were kept for `videos` and `audios`: the most that these can cost.
    `fetch_ms` is how long it waited for its images by address. `images_changed` are the entries of `x-gateway-images`.
    Where there is a ladder, `pressure` is what the request met, and `rungs` the value of `x-gateway-pressure`.

    The fields from `arrived` on are what `vlm-gateway replay` decides by. `arrived` is in seconds since 1970,
    `offered_ms` the time from then until it asked for a place. `tenant_id` tells tenants of one process apart.
    `asked_priority` and `asked_resize` are what the client asked for, `is_return` says that it came back. `pictures`
    are the images in order, None for what was left out unseen; the last `new_images` of them came after the last
    answer. `limits` are those of the engine that it was priced for, `capacity` what could be held of each resource
    when it asked. In shadow mode `shadow` and what begins so tell what would have become of the request.
    """

    time: datetime
    request_id: str
    outcome: Outcome
    endpoint: str
    method: str = "POST"
    client_request_id: str | None = None
    tenant: str | None = None
    priority: str | None = None
    deadline_ms: float | None = None
    model: str | None = None
    asked_model: str | None = None
    upstream: str | None = None
    failed_upstream: str | None = None
    status: int | None = None
    upstream_status: int | None = None
    reason: Reason | None = None
    code: str | None = None
    short: str | None = None
    message: str | None = None
    is_streaming: bool = False
    is_kept_alive: bool = False
    prompt_tokens: int | None = None
    visual_tokens: int | None = None
    visual_tokens_least: int | None = None
    visual_why: Uncertainty | None = None
    output_tokens: int | None = None
    actual_prompt_tokens: int | None = None
    actual_output_tokens: int | None = None
    counted_output_tokens: int | None = None
    used: TokensUsed | None = None
    images: int = 0
    images_changed: str | None = None
    videos: int = 0
    audios: int = 0
    media_tokens: int = 0
    fetch_ms: float | None = None
    body_bytes: int | None = None
    pressure: float | None = None
    rungs: str | None = None
    queue_ms: float | None = None
    first_event_ms: float | None = None
    total_ms: float | None = None
    arrived: float | None = None
    offered_ms: float | None = None
    tenant_id: str | None = None
    asked_priority: str | None = None
    asked_resize: str | None = None
    is_return: bool = False
    prompts: int = 1
    answers: int = 1
    max_tokens: int | None = None
    text_tokens: Bounds | None = None
    prompt_token_ids: int = 0
    truncate_prompt_tokens: int | None = None
    text_bytes: int | None = None
    messages: int | None = None
    pictures: list[Picture | None] | None = None
    new_images: int = 0
    limits: EngineLimits | None = None
    capacity: tuple[int | None, ...] | None = None
    shadow: Fate | None = None
    shadow_reason: Reason | None = None
    shadow_wait_ms: float = 0.0
    shadow_images: str | None = None
    shadow_rungs: str | None = None


@dataclass(frozen=True, slots=True)
class LogStatistics:
    """Records since the start: `written` to the output, `dropped` for good, `waiting` for their turn."""

    written: int
    dropped: int
    waiting: int


def stdout_writer() -> Callable[[bytes], None]:
    """Writes to the process's standard output, past Python's own buffer. Raises OSError."""
    descriptor = sys.stdout.fileno()

    def write(data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]

    return write


class RequestLog:
    """Takes records in the loop and writes them in a thread, between `start` and `close`; none if it is not `is_on`.

    `write_out` may block or raise OSError.
    """

    def __init__(
        self,
        write_out: Callable[[bytes], None] | None = None,
        *,
        is_on: bool = True,
        most_records: int = _MOST_RECORDS,
        flush_seconds: float = _FLUSH_SECONDS,
    ) -> None:
        self.is_on = is_on
        self._write_out = write_out or stdout_writer()
        self._most_records = most_records
        self._flush_seconds = flush_seconds
        self._encoder = msgspec.json.Encoder()
        self._records: list[RequestRecord] = []
        self._batches: SimpleQueue[list[RequestRecord] | None] = SimpleQueue()
        self._timer: asyncio.TimerHandle | None = None
        self._taken = self._refused = 0  # counted in the loop
        self._written = self._lost = 0  # counted in the thread
        self._thread = threading.Thread(target=self._work, name="request log", daemon=True)

    async def start(self) -> None:
        self._thread.start()

    def write(self, record: RequestRecord) -> None:
        """Keep a record for writing; never waits. Belongs inside the event loop."""
        if not self.is_on:
            return
        if self._taken - self._written - self._lost >= self._most_records:
            self._refused += 1
            return
        self._taken += 1
        self._records.append(record)
        if len(self._records) >= _FLUSH_RECORDS:
            self._flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._flush_seconds, self._flush)

    async def close(self) -> None:
        """Write what is left; a blocked output is given up after two seconds."""
        if self._records:
            self._flush()
        self._batches.put(None)
        await asyncio.to_thread(self._thread.join, _CLOSE_SECONDS)

    def statistics(self) -> LogStatistics:
        return LogStatistics(
            written=self._written,
            dropped=self._refused + self._lost,
            waiting=self._taken - self._written - self._lost,
        )

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        batch, self._records = self._records, []
        self._batches.put(batch)

    def _work(self) -> None:
        is_mid_line = False
        while (batch := self._batches.get()) is not None:
            lines = [line for line in map(self._line, batch) if line]
            try:
                self._write_out(b"".join([b"\n", *lines] if is_mid_line else lines))
            except OSError:
                is_mid_line = True  # part of it may be out; the next line must not be glued to that
                self._lost += len(batch)
            else:
                is_mid_line = False
                self._written += len(lines)
                self._lost += len(batch) - len(lines)

    def _line(self, record: RequestRecord) -> bytes:
        """The line; empty for what JSON cannot say, such as half a surrogate pair in a client's text."""
        if record.message is not None and len(record.message) > _LONGEST_MESSAGE:
            record = msgspec.structs.replace(record, message=record.message[:_LONGEST_MESSAGE] + "…")
        try:
            return self._encoder.encode(record) + b"\n"
        except (TypeError, ValueError):
            return b""
