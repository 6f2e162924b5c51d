"""What a server with VLLM_ENABLE_RESPONSES_API_STORE=1 remembers of its answers: for ever, and for everyone."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from gateway.emulator.errors import ApiError
from gateway.emulator.response_answers import Values
from gateway.emulator.response_input import Message


@dataclass(slots=True)
class ResponseStore:
    """What is remembered of answers, by their ids."""

    responses: dict[str, Values] = field(default_factory=dict)
    messages: dict[str, list[Message]] = field(default_factory=dict)
    events: dict[str, list[bytes]] = field(default_factory=dict)
    tasks: dict[str, "asyncio.Task[None]"] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def get(self, response_id: str) -> Values:
        """Raises ApiError 404."""
        if response_id not in self.responses:
            message = f"Response with id '{response_id}' not found."
            raise ApiError(404, "invalid_request_error", message, "response_id")
        return self.responses[response_id]

    def tell(self, response_id: str, event: bytes) -> None:
        self.events.setdefault(response_id, []).append(event)
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()

    async def events_from(self, response_id: str, first: int) -> AsyncIterator[bytes]:
        """Those that are there and those to come, until the answer is complete."""
        while True:
            told = self.events[response_id]
            for event in told[first:]:
                yield event
                if event.startswith(b"event: response.completed"):
                    return
            first = max(first, len(told))
            await self.changed.wait()
