"""Traffic that nobody sent, in the format of the request log: for replay where there is no log yet.

Requests begin as a Poisson process whose rate rises in bursts. Each is a question, a question about one picture, or the
first turn of a session in which most turns add a picture while the context has room, and all earlier ones come along.
The lines are those of a gateway that let everybody in at once: every answer takes as long as `PACE` says among those
that are then in work.
"""

import heapq
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from gateway.domain.cost import EngineLimits
from gateway.domain.geometry import Size
from gateway.domain.image import ImageFormat
from gateway.domain.outcome import Outcome
from gateway.domain.priority import Priority
from gateway.domain.quantities import Bounds
from gateway.domain.text_tokens import template_tokens
from gateway.domain.vision.base import VisionFamily
from gateway.replay.pace import Pace
from gateway.telemetry.request_log import Picture, RequestRecord

START = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
ENDPOINT = "/v1/chat/completions"
CONTEXT_TOKENS = 32_768
PACE = Pace(0.05, 1 / 8000, 0.02, 0.0005)

_SIZES = (Size(640, 480), Size(1280, 960), Size(1920, 1080), Size(4000, 3000))
_SIZE_WEIGHTS = (3, 3, 2, 2)
_MOST_TOKENS = (256, 512, 1024, None)
_BYTES_PER_TOKEN = 3
_BYTES_PER_PIXEL = 0.25  # of a photograph as JPEG, in base64
_SEQUENCES = 128
_PREPROCESS_PIXELS = 40_000_000
_THINK_SECONDS = 20.0
_SHOWS_AGAIN = 0.7
_ROOM_TOKENS = 4096  # more than an answer and the next question have; a session without it ends


class Mix(NamedTuple):
    """Shares of what begins; they need not sum to 1."""

    text: float = 0.6
    image: float = 0.25
    session: float = 0.15


USUAL_MIX = Mix()


@dataclass(frozen=True, slots=True)
class Traffic:
    """What to make. `per_second` counts what begins; the further turns of sessions come on top. A burst makes it
    `burst_factor` times as much for `burst_seconds` out of every `burst_every_seconds`. `tenants`: shares by class.
    """

    model: str
    family: VisionFamily
    seed: int = 0
    seconds: float = 3600.0
    per_second: float = 1.0
    mix: Mix = USUAL_MIX
    burst_factor: float = 4.0
    burst_seconds: float = 30.0
    burst_every_seconds: float = 600.0
    turns: float = 6.0
    tenants: Mapping[str, float] = field(default_factory=lambda: {"default": 1.0})
    kv_blocks: int = 8192


@dataclass(slots=True)
class _Session:
    """A conversation: whose it is, what has been said and shown, how many turns are to come."""

    tenant: str
    turns_left: int
    text_tokens: int = 0
    messages: int = 0
    pictures: list[Picture] = field(default_factory=list)
    new_images: int = 0
    is_about_pictures: bool = False

    def prompt_tokens(self, markers: int) -> int:
        visual = sum(picture.tokens + markers for picture in self.pictures)
        return visual + self.text_tokens + template_tokens(self.messages).expected


def generate(traffic: Traffic) -> Iterator[RequestRecord]:
    """Lines in the order in which the requests end; the same ones for the same traffic."""
    yield from _Generator(traffic).run()


class _Generator:
    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self._random = random.Random(traffic.seed)  # noqa: S311 - no secret is made of it
        self._number = 0
        self._next_turns: list[tuple[float, int, _Session]] = []
        self._in_work: list[tuple[float, int, RequestRecord]] = []

    def run(self) -> Iterator[RequestRecord]:
        for arrived, session in self._turns():
            while self._in_work and self._in_work[0][0] <= arrived:
                yield heapq.heappop(self._in_work)[2]
            self._serve(arrived, session)
        while self._in_work:
            yield heapq.heappop(self._in_work)[2]

    def _turns(self) -> Iterator[tuple[float, _Session]]:
        """First turns as they begin, and the later ones of sessions that have begun, in the order of time."""
        end = START + self._traffic.seconds
        begins = self._begins()
        begin = next(begins)
        while min(begin, self._next_turns[0][0] if self._next_turns else begin) < end:
            if self._next_turns and self._next_turns[0][0] <= begin:
                due, _, session = heapq.heappop(self._next_turns)
                yield due, session
            else:
                yield begin, self._new_session()
                begin = next(begins)

    def _begins(self) -> Iterator[float]:
        """Thinned: drawn at the highest rate, kept by the rate of the moment."""
        traffic, now = self._traffic, START
        most = max(traffic.burst_factor, 1.0)
        while True:
            now += self._random.expovariate(traffic.per_second * most)
            is_burst = (now - START) % traffic.burst_every_seconds < traffic.burst_seconds
            if self._random.random() * most < (traffic.burst_factor if is_burst else 1.0):
                yield now

    def _new_session(self) -> _Session:
        traffic, dice = self._traffic, self._random
        (kind,) = dice.choices(Mix._fields, traffic.mix)
        (tenant,) = dice.choices(list(traffic.tenants), list(traffic.tenants.values()))
        turns = 1 + int(dice.expovariate(1 / max(traffic.turns - 1, 1e-9))) if kind == "session" else 1
        return _Session(tenant, turns, is_about_pictures=kind != "text")

    def _serve(self, arrived: float, session: _Session) -> None:
        self._number += 1
        self._ask(session)
        record, ended = self._record(arrived, session)
        heapq.heappush(self._in_work, (ended, self._number, record))
        session.turns_left -= 1
        is_full = (record.prompt_tokens or 0) + _ROOM_TOKENS > CONTEXT_TOKENS
        if session.turns_left and not is_full:
            session.text_tokens += record.actual_output_tokens or 0
            session.messages += 1
            due = ended + self._random.expovariate(1 / _THINK_SECONDS)
            heapq.heappush(self._next_turns, (due, self._number, session))

    def _ask(self, session: _Session) -> None:
        dice, family = self._random, self._traffic.family
        session.text_tokens += self._tokens(120.0 if session.messages else 300.0)
        session.messages += 1
        session.new_images = 0
        if session.is_about_pictures and (session.messages == 1 or dice.random() < _SHOWS_AGAIN):
            (size,) = dice.choices(_SIZES, _SIZE_WEIGHTS)
            tokens, digest = family.tokens(size).placeholder, f"{dice.getrandbits(48):012x}"
            picture = Picture(digest, ImageFormat.JPEG, size.width, size.height, tokens)
            if session.prompt_tokens(family.markers) + picture.tokens + _ROOM_TOKENS <= CONTEXT_TOKENS:
                session.pictures.append(picture)
                session.new_images = 1

    def _tokens(self, median: float) -> int:
        return int(min(max(1.0, self._random.lognormvariate(0.0, 0.8) * median), 10 * median))

    def _record(self, arrived: float, session: _Session) -> tuple[RequestRecord, float]:
        """The line, and when it ends."""
        traffic = self._traffic
        most = self._random.choice(_MOST_TOKENS)
        output = min(self._tokens(150.0), most or CONTEXT_TOKENS)
        prompt = session.prompt_tokens(traffic.family.markers)
        first = PACE.start_seconds + prompt * PACE.prompt_token_seconds
        whole = first + output * PACE.token_seconds_among(len(self._in_work))
        limits = EngineLimits(CONTEXT_TOKENS, traffic.kv_blocks)
        record = RequestRecord(
            time=datetime.fromtimestamp(arrived + whole, UTC),
            request_id=f"synthetic-{self._number}",
            outcome=Outcome.FINISHED,
            endpoint=ENDPOINT,
            tenant=session.tenant,
            priority=Priority.DEFAULT.label,
            model=traffic.model,
            status=200,
            upstream_status=200,
            is_streaming=True,
            prompt_tokens=prompt,
            actual_prompt_tokens=prompt,
            actual_output_tokens=output,
            queue_ms=0.0,
            first_event_ms=round(first * 1000, 3),
            total_ms=round(whole * 1000, 3),
            arrived=round(arrived, 4),
            offered_ms=0.0,
            max_tokens=most,
            limits=limits,
            capacity=(limits.admission_kv_blocks, _SEQUENCES, None, _PREPROCESS_PIXELS),
            **_content(session, traffic.family.markers),
        )
        return record, arrived + whole


def _content(session: _Session, markers: int) -> dict[str, Any]:
    """Text and pictures, as a line tells of them."""
    text_bytes = session.text_tokens * _BYTES_PER_TOKEN
    text = Bounds.exact(session.text_tokens + template_tokens(session.messages).expected)
    if not session.pictures:
        return {"text_tokens": text, "body_bytes": text_bytes}
    pixels = sum(picture.width * picture.height for picture in session.pictures)
    return {
        "text_tokens": text,
        "body_bytes": text_bytes + int(pixels * _BYTES_PER_PIXEL),
        "visual_tokens": sum(picture.tokens + markers for picture in session.pictures),
        "images": len(session.pictures),
        "text_bytes": text_bytes,
        "messages": session.messages,
        "pictures": list(session.pictures),
        "new_images": session.new_images,
    }
