"""Lines of the request log, read back."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from gateway.domain.cost import EngineLimits
from gateway.domain.outcome import Fate, Outcome, Reason
from gateway.domain.quantities import Bounds
from gateway.telemetry.request_log import Picture

_RECHECKED = frozenset(
    {
        Reason.QUEUE_FULL,
        Reason.QUEUE_BYTES,
        Reason.WOULD_MISS_DEADLINE,
        Reason.DEADLINE_PASSED,
        Reason.KV_BUDGET,
        Reason.ENCODER_BUDGET,
        Reason.PREPROCESS_BUDGET,
        Reason.SHED_PRIORITY,
        Reason.UPSTREAM_BACKPRESSURE,
        Reason.NEVER_FITS_CONTEXT,
        Reason.NEVER_FITS_KV,
        Reason.NEVER_FITS_ENCODER,
        Reason.NEVER_FITS_SEQUENCES,
    }
)
"""Refusals that other settings, or another load, may turn into something else."""

_MOST_EXAMPLES = 3


class Line(msgspec.Struct, kw_only=True, gc=False):
    """What replay needs of a line of the request log; the names are those of `RequestRecord`."""

    arrived: float
    outcome: Outcome
    endpoint: str
    tenant: str = "default"
    tenant_id: str | None = None
    asked_priority: str | None = None
    asked_resize: str | None = None
    deadline_ms: float | None = None
    is_return: bool = False
    model: str | None = None
    upstream: str | None = None
    reason: Reason | None = None
    upstream_status: int | None = None
    is_streaming: bool = False
    body_bytes: int = 0
    prompts: int = 1
    answers: int = 1
    max_tokens: int | None = None
    prompt_tokens: int | None = None
    text_tokens: Bounds | None = None
    prompt_token_ids: int = 0
    truncate_prompt_tokens: int | None = None
    text_bytes: int = 0
    messages: int = 0
    images: int = 0
    images_changed: str = ""
    pictures: list[Picture | None] = msgspec.field(default_factory=list)
    new_images: int = 0
    media_tokens: int = 0
    limits: EngineLimits | None = None
    capacity: tuple[int | None, ...] | None = None
    actual_output_tokens: int | None = None
    counted_output_tokens: int | None = None
    offered_ms: float | None = None
    queue_ms: float = 0.0
    first_event_ms: float | None = None
    total_ms: float = 0.0
    shadow: Fate | None = None
    shadow_reason: Reason | None = None
    shadow_wait_ms: float = 0.0
    shadow_images: str = ""

    @property
    def output_tokens(self) -> int:
        """Of all its answers, as reported or counted; 0 where neither was possible."""
        return self.actual_output_tokens or self.counted_output_tokens or 0

    @property
    def offered(self) -> float:
        """When it asked for a place; what was refused before that had only arrived."""
        return self.arrived + (self.offered_ms or 0.0) / 1000

    @property
    def sent(self) -> float:
        return self.offered + self.queue_ms / 1000

    @property
    def ended(self) -> float:
        return self.arrived + self.total_ms / 1000

    @property
    def flow(self) -> str:
        """Whose turn it takes."""
        return self.tenant_id or self.tenant

    def digest(self, ordinal: int) -> bytes:
        """Tells its picture from others; one of which no hash was made is like no other."""
        picture = self.pictures[ordinal]
        return (picture.digest if picture and picture.digest else f"{self.arrived} {ordinal}").encode()

    @property
    def is_priced(self) -> bool:
        """It can be decided again: all of it was known, and it was not refused for a fault of its own."""
        is_open = self.offered_ms is not None if self.reason is None else self.reason in _RECHECKED
        return is_open and self.text_tokens is not None and self.limits is not None

    @property
    def is_unread(self) -> bool:
        """Refused for the load before its body was read, so that nobody knows what it would have cost."""
        return self.text_tokens is None and self.reason in _RECHECKED

    @property
    def was_sent(self) -> bool:
        """It was the engine's for a while."""
        return self.is_priced and self.reason is None and self.upstream_status is not None


@dataclass(slots=True)
class Unusable:
    """Lines that say nothing about a request, by why: how many, and the numbers of the first."""

    counts: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[int]] = field(default_factory=dict)

    def note(self, why: str, number: int) -> None:
        self.counts[why] = self.counts.get(why, 0) + 1
        examples = self.examples.setdefault(why, [])
        if len(examples) < _MOST_EXAMPLES:
            examples.append(number)


class LineReader:
    """Reads line by line; what cannot be used is counted, never fatal."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.unusable = Unusable()
        self._decoder = msgspec.json.Decoder(Line)
        self.line_count = 0

    def feed(self, texts: Iterable[bytes]) -> None:
        """More lines of the same log, with or without their ends."""
        for text in texts:
            self.line_count += 1
            if not text.isspace():
                self._take(text)

    def _take(self, text: bytes) -> None:
        try:
            self.lines.append(self._decoder.decode(text))
        except msgspec.ValidationError as error:
            self.unusable.note(_why(str(error)), self.line_count)
        except (msgspec.DecodeError, RecursionError):
            self.unusable.note("not JSON", self.line_count)

    def in_order(self) -> list[Line]:
        """As they asked for their places; the log has them as they ended."""
        return sorted(self.lines, key=lambda line: line.offered)


def _why(error: str) -> str:
    if "missing required field" in error:
        return "no line of this gateway's request log, or of a version that did not write what replay needs"
    return f"a field that is none of the request log's ({error})"
