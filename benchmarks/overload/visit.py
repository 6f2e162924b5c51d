"""What one client lives through, all attempts together, and how it reads a stream. Pure: times are handed in.

Times are seconds since the cell of the benchmark began.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from benchmarks.overload.sdk_rules import asked_seconds
from benchmarks.overload.traffic import Request

LONGEST_PROMISE_SECONDS = 59.0  # a refusal that asks for a minute says that it does not know
_SAYS_SOMETHING = re.compile(rb'"content":\s*"[^"]')
_IS_ERROR = re.compile(rb'^\{\s*"error":\s*[^n]')


class Ending(StrEnum):
    """How a client's visit ended."""

    DONE = "done"
    REFUSED = "refused"  # any status but 200, no attempt left or no use in one
    BROKEN = "broken stream"  # an error inside a 200, or no [DONE]
    NO_ANSWER = "no answer"  # the connection failed
    LEFT_WAITING = "left before the first token"
    LEFT_READING = "left in the stream"


@dataclass(frozen=True, slots=True)
class Slo:
    """The service level that a client judges by, from its first attempt on."""

    first_token_seconds: float
    total_seconds: float


@dataclass(frozen=True, slots=True)
class Refusal:
    """One attempt that got no answer. `promised_seconds`: when to come back, where the server named a time."""

    kind: str
    after_seconds: float
    is_in_stream: bool = False
    promised_seconds: float | None = None


@dataclass(slots=True)
class Visit:
    """`token_times` belong to the last attempt."""

    request: Request
    began_at: float
    attempts: int = 0
    attempt_began_at: float = 0.0
    first_token_at: float | None = None
    ended_at: float = 0.0
    ending: Ending = Ending.NO_ANSWER
    error: str = ""
    token_times: list[float] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)

    def begin_attempt(self, now: float) -> None:
        self.attempts += 1
        self.attempt_began_at = now
        self.first_token_at = None
        self.token_times = []

    def token(self, now: float) -> None:
        if self.first_token_at is None:
            self.first_token_at = now
        self.token_times.append(now)

    def refuse(self, kind: str, now: float, headers: Mapping[str, str]) -> None:
        asked = asked_seconds(headers)
        is_promise = asked is not None and asked <= LONGEST_PROMISE_SECONDS
        is_promise &= headers.get("x-should-retry") != "false"
        self._refused(Refusal(kind, now - self.attempt_began_at, promised_seconds=asked if is_promise else None))

    def break_off(self, kind: str, now: float) -> None:
        self._refused(Refusal(kind, now - self.attempt_began_at, is_in_stream=True), Ending.BROKEN)

    def leave(self) -> None:
        self.ending = Ending.LEFT_WAITING if self.first_token_at is None else Ending.LEFT_READING
        self.error = str(self.ending)

    def _refused(self, refusal: Refusal, ending: Ending = Ending.REFUSED) -> None:
        self.refusals.append(refusal)
        self.ending, self.error = ending, refusal.kind

    def is_in_slo(self, slo: Slo) -> bool:
        if self.ending is not Ending.DONE or self.first_token_at is None:
            return False
        is_early = self.first_token_at - self.began_at <= slo.first_token_seconds
        return is_early and self.ended_at - self.began_at <= slo.total_seconds

    @property
    def came_back_as_promised(self) -> bool:
        """It was refused with a time to come back, and came back."""
        return any(refusal.promised_seconds is not None for refusal in self.refusals[: self.attempts - 1])


@dataclass(slots=True)
class Record:
    """One cell of one round. CPU is in cores; `load_cpu` is the generator's and the emulated server's together."""

    visits: list[Visit]
    seconds: float
    generated_tokens: int = 0
    preemptions: int = 0
    most_waiting: int = 0
    late_p99_seconds: float = 0.0
    arm_cpu: float = 0.0
    load_cpu: float = 0.0


def refusal_kind(status: int, reason: str | None, body: bytes) -> str:
    """`429 queue_full`: the status, and whatever is most telling beside it."""
    if reason:
        return f"{status} {reason}"
    try:
        error = json.loads(body)["error"]
        return f"{status} {error['code'] if isinstance(error.get('code'), str) else error.get('type')}"
    except (ValueError, KeyError, TypeError, AttributeError):
        return str(status)


class StreamReader:
    """Server-sent events of a chat completion, as they come."""

    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        self._rest = b""
        self.is_over = False

    def feed(self, piece: bytes, now: float) -> None:
        """Count the tokens in a piece. `is_over` once [DONE] or an error has come."""
        *events, self._rest = (self._rest + piece).replace(b"\r\n", b"\n").split(b"\n\n")
        for event in events:
            if event.startswith(b"data:") and not self.is_over:
                self._event(event[5:].lstrip(), now)

    def _event(self, data: bytes, now: float) -> None:
        if _IS_ERROR.match(data):
            self.is_over = True
            self._visit.break_off(f"in a 200: {refusal_kind(200, None, data).removeprefix('200 ')}", now)
        elif data.startswith(b"[DONE]"):
            self.is_over = True
            self._visit.ending = Ending.DONE
        elif _SAYS_SOMETHING.search(data):
            self._visit.token(now)
