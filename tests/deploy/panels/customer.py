"""A client that knows what it asked for: it sends, checks that what it wanted happened, and notes what it saw."""

import asyncio
import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.deploy.panels.tally import Picture, Range, Seen, Tally
from tests.support.live_gateway import CHAT, chat

AT_ONCE = Range(0.0, 0.02)
"""What a request waits for that finds room; longer on no machine that is worth a look."""
JITTER = 1.25
"""A time to come back is told up to so many times as late, to spread clients."""
CLOCK_SECONDS = 0.5
"""What the client's own time from sending to reading has more than the gateway's, at most."""


@dataclass
class Visit:
    """One request under way, and what has come of it so far. Of a stream `events` are its data."""

    body_bytes: int
    begun: float
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    answer: Any = None
    events: list[dict[str, Any]] = field(default_factory=list)
    first_event_at: float | None = None
    ended_at: float = math.inf

    @property
    def seconds(self) -> float:
        return self.ended_at - self.begun

    @property
    def tokens(self) -> int:
        """Of the answer, that came so far: the emulator sends one with each event but the first."""
        return sum(1 for event in self.events if event.get("choices")) - 1

    @property
    def usage(self) -> dict[str, int] | None:
        """As the engine reported it."""
        told = [*self.events, *([self.answer] if isinstance(self.answer, dict) else [])]
        return next((each["usage"] for each in reversed(told) if each.get("usage")), None)

    @property
    def error(self) -> dict[str, Any] | None:
        told = [*self.events, *([self.answer] if isinstance(self.answer, dict) else [])]
        return next((each["error"] for each in told if "error" in each), None)

    @property
    def first_token(self) -> Range | None:
        """From arrival; only of streams that the engine began."""
        if self.first_event_at is None:
            return None
        seconds = self.first_event_at - self.begun
        return Range(max(0.0, seconds - CLOCK_SECONDS), seconds)

    @property
    def retry_after(self) -> Range | None:
        """What the refusal was told before it was spread and rounded up to be told here."""
        if "retry-after-ms" in self.headers:
            seconds = int(self.headers["retry-after-ms"]) / 1000
            return Range((seconds - 0.001) / JITTER, seconds)
        if "retry-after" not in self.headers:
            return None
        seconds = float(self.headers["retry-after"])
        return Range.exactly(60.0) if seconds == 60.0 else Range((seconds - 1) / JITTER, seconds)

    @property
    def prompt_tokens(self) -> int:
        """As they were predicted."""
        return int(self.headers["x-gateway-prompt-tokens"])

    def waited(self) -> Range:
        """As the answer says, to the millisecond."""
        told = int(self.headers["x-gateway-queue-ms"]) / 1000
        return Range(max(0.0, told - 0.0006), told + 0.0006)


_NOTED = ("code", "outcome", "as_model", "endpoint", "priority", "tenant", "wait", "sent_seconds")


class Customer:
    """Of one gateway."""

    def __init__(self, http: httpx.AsyncClient, tally: Tally) -> None:
        self._http = http
        self.tally = tally

    def begin(
        self, *content: Any, headers: Mapping[str, str] | None = None, **fields: Any
    ) -> tuple[Visit, "asyncio.Task[None]"]:
        """A chat that is sent now; the task ends with its answer."""
        body = fields.pop("body", None) or chat(*content, **{"model": "tiny", "max_tokens": 4} | fields)
        if body.get("stream"):
            body |= {"stream_options": {"include_usage": True}}
        return self.post(CHAT, json.dumps(body).encode(), headers)

    def post(
        self, path: str, body: bytes, headers: Mapping[str, str] | None = None
    ) -> tuple[Visit, "asyncio.Task[None]"]:
        visit = Visit(len(body), time.monotonic())
        headers = {"content-type": "application/json"} | dict(headers or {})
        return visit, asyncio.create_task(self._follow(visit, path, body, headers))

    async def _follow(self, visit: Visit, path: str, body: bytes, headers: Mapping[str, str]) -> None:
        async with self._http.stream("POST", path, content=body, headers=headers) as answer:
            visit.status = answer.status_code
            visit.headers.update(answer.headers)
            if answer.headers.get("content-type", "").startswith("text/event-stream"):
                async for line in answer.aiter_lines():
                    _note_line(visit, line)
            else:
                text = await answer.aread()
                visit.answer = json.loads(text) if text else None
        visit.ended_at = time.monotonic()

    async def is_served(
        self, *content: Any, pictures: Sequence[Picture] = (), tenant: str = "default", **fields: Any
    ) -> Visit:
        """A chat that must be answered in full."""
        visit, task = self.begin(*content, **fields)
        await task
        self.note_served(visit, model=fields.get("model", "tiny"), pictures=pictures, tenant=tenant)
        return visit

    def note_served(
        self, visit: Visit, *, model: str = "tiny", pictures: Sequence[Picture] = (), tenant: str = "default"
    ) -> None:
        assert (visit.status, visit.error) == (200, None), (visit.status, visit.answer, visit.error)
        assert visit.usage is not None
        self.tally.seen.append(
            Seen(
                "finished",
                model=model,
                tenant=tenant,
                wait=visit.waited(),
                first_token=visit.first_token,
                sent_seconds=visit.seconds,
                tokens=(visit.prompt_tokens, visit.usage["prompt_tokens"]),
                answer_tokens=visit.usage["completion_tokens"],
                pictures=tuple(pictures),
            )
        )

    async def is_refused(self, reason: str, *content: Any, **fields: Any) -> Visit:
        """A chat that must be refused for that reason. `as_model` is the label where no model was found for it; further
        names are those of `note_refused`.
        """
        noted = {name: fields.pop(name) for name in _NOTED if name in fields}
        visit, task = self.begin(*content, **fields)
        await task
        model = noted.pop("as_model", fields.get("model", "tiny"))
        self.note_refused(visit, reason, model=model, **noted)
        return visit

    def note_refused(self, visit: Visit, reason: str, *, code: str | None = None, **seen: Any) -> None:
        """`code` is looked at, and counts where the refusal was for an image."""
        assert visit.headers.get("x-gateway-reason") == reason, (visit.status, visit.headers, visit.answer)
        error = visit.error
        assert error is not None
        assert code in (None, error["code"]), error
        image_error = error["code"] if reason == "bad_image" else None
        self.tally.seen.append(
            Seen(
                seen.pop("outcome", "refused"),
                reason=reason,
                image_error=image_error,
                retry_after=visit.retry_after,
                **seen,
            )
        )


def _note_line(visit: Visit, line: str) -> None:
    if line.startswith(": ") and (told := line.removeprefix(": ").partition(": "))[1]:
        visit.headers[told[0]] = told[2]
    elif line.startswith("data: {"):
        event = json.loads(line.removeprefix("data: "))
        if visit.first_event_at is None and "error" not in event:
            visit.first_event_at = time.monotonic()
        visit.events.append(event)
