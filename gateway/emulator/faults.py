"""Faults that a test switches on, as attributes of `Emulator.faults` or by `POST /emulator/faults`. All off at first.

The route takes a JSON object with any of these fields, sets them, and answers with all; `DELETE` clears them:

    freeze                      true: the engine stops; /health, /metrics and /v1/models go on with stale gauges
    kill                        true: the engine dies; streams get the error event, others 500, then the server stops
    unavailable_requests        N: the next N generation requests get vLLM's 503
    reset_requests              N: the next N connections are reset before the first byte of the answer
    first_byte_delay_seconds    S: answers to generation requests begin S seconds late
    stream_error_after_tokens   N: every stream breaks with the engine's error event after N tokens
"""

import dataclasses
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Faults:
    """What is broken just now."""

    freeze: bool = False
    kill: bool = False
    unavailable_requests: int = 0
    reset_requests: int = 0
    first_byte_delay_seconds: float = 0.0
    stream_error_after_tokens: int | None = None

    def update(self, changes: dict[str, Any]) -> None:
        """Set the named fields. Raises ValueError for a name that does not exist."""
        names = {field.name for field in dataclasses.fields(self)}
        unknown = sorted(changes.keys() - names)
        if unknown:
            raise ValueError(f"no such fault: {', '.join(unknown)}; there are {', '.join(sorted(names))}")
        for name, value in changes.items():
            setattr(self, name, value)

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def clear(self) -> None:
        self.update(dataclasses.asdict(Faults()))

    def take_unavailable(self) -> bool:
        """Whether this request is one of those that get a 503."""
        if self.unavailable_requests <= 0:
            return False
        self.unavailable_requests -= 1
        return True

    def take_reset(self) -> bool:
        """Whether this connection is one of those that are reset."""
        if self.reset_requests <= 0:
            return False
        self.reset_requests -= 1
        return True
