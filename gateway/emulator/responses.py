"""The Responses API of vLLM 0.32: POST /v1/responses, GET /v1/responses/{id}, POST /v1/responses/{id}/cancel.

As vLLM does, it remembers answers only with the store switched on, forgets none, knows no tenants, and lets a request
name its own answer. A fault behind the head of a stream cuts the connection: this route has no event for errors.
"""

import asyncio
import contextlib
import time
import zlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

from gateway.emulator.answers import Usage, Words
from gateway.emulator.engine import Sequence
from gateway.emulator.errors import ApiError, bad_request
from gateway.emulator.exchange import Exchange
from gateway.emulator.generation import (
    check_at_least_one,
    check_requested,
    forced_length,
    new_sequence,
    output_limit,
    prompt_of,
    random_id,
    submit,
)
from gateway.emulator.response_answers import Events, Values, finished, response_of
from gateway.emulator.response_input import Message, messages_of
from gateway.emulator.response_store import ResponseStore
from gateway.emulator.schema import ResponsesRequest, check_sampling, parse_request
from gateway.emulator.server_state import ServerState

PREFIX = "/v1/responses/"
_UNFINISHED = ("queued", "in_progress")


@dataclass(slots=True)
class _Job:
    """One request on its way to its answer."""

    state: ServerState
    sequence: Sequence
    words: Words
    response: Values
    item_id: str
    is_stored: bool

    async def answer(self) -> Values:
        """The finished object. Raises ApiError."""
        try:
            await submit(self.state, [self.sequence]).end()
        finally:
            self.state.driver.abandon([self.sequence])
        return self._finished()

    async def events(self) -> AsyncIterator[bytes]:
        """The stream. Raises ApiError behind its second event."""
        told, state = Events(self.item_id), self.state
        yield told.of_response("created", self.response)
        yield told.of_response("in_progress", self.response)
        try:
            delivery = submit(state, [self.sequence])
            while emissions := await delivery.next():
                for _, place, reason in emissions:
                    for event in told.delta(self._text(place)) if reason != "stop" else ():
                        yield event
                    if place + 1 == state.faults.stream_error_after_tokens:
                        raise bad_request("EngineCore encountered an issue.")
        finally:
            state.driver.abandon([self.sequence])
        response = self._finished()
        for event in told.done(self._whole_text()):
            yield event
        yield told.of_response("completed", response)

    def _text(self, place: int) -> str:
        return self.words.text(0, place + 1, "length")[len(self.words.text(0, place, "length")) :]

    def _whole_text(self) -> str:
        return self.words.text(0, self.sequence.generated, self.sequence.finish_reason)

    def _finished(self) -> Values:
        sequence = self.sequence
        usage = Usage(len(sequence.prompt.tokens), sequence.generated, {"cached_tokens": sequence.cached_tokens})
        response = finished(self.response, self.item_id, self._whole_text(), sequence.finish_reason, usage)
        store = self.state.responses
        if self.is_stored and store.responses.get(response["id"], {}).get("status") != "cancelled":
            store.responses[response["id"]] = response
        return response


async def create_response(state: ServerState, exchange: Exchange, data: Any, body: bytes) -> None:
    """POST /v1/responses."""
    if isinstance(data, dict):
        data.pop("stream_options", None)  # not of this route, like some other fields of chats
    request = parse_request(ResponsesRequest, data).model_copy(update={"n": 1})
    state.check_model(request.model)
    _check_storage(state, request)
    state.check_admission(1)
    job = await _job(state, exchange, request, data, body)
    if request.background:
        await _begin_in_background(job, exchange, is_streamed=bool(request.stream))
    elif request.stream:
        await _stream(exchange, job.events())
    else:
        await exchange.respond_json(200, await job.answer())


def _check_storage(state: ServerState, request: ResponsesRequest) -> None:
    if request.background and not request.store:
        raise bad_request("background can only be used when `store` is true", "background")
    if request.background and not state.config.enable_responses_store:
        message = (
            "This vLLM engine does not support `store=True` and therefore does not support the background mode. To "
            "enable these features, set the environment variable `VLLM_ENABLE_RESPONSES_API_STORE=1` when launching "
            "the vLLM server."
        )
        raise ApiError(400, "invalid_request_error", message, "background")


async def _job(state: ServerState, exchange: Exchange, request: ResponsesRequest, data: Values, body: bytes) -> _Job:
    """The last checks, then the sequence. Raises ApiError."""
    history, requested = None, request.max_output_tokens
    if request.previous_response_id is not None:
        history = _history(state.responses, request.previous_response_id)
    messages = messages_of(request.instructions, request.input, history)
    check_requested(state, "max_output_tokens", requested)
    prompt = await prompt_of(state, messages)
    limit = output_limit(state, prompt, requested)
    check_sampling(request)
    check_at_least_one(limit)
    seed = zlib.crc32(body)
    sequence = new_sequence(state, request, prompt, limit, requested, forced_length(exchange, request), seed)
    response_id = request.request_id or f"resp_{random_id()}"
    status = "queued" if request.background else "in_progress"
    response = response_of(response_id, int(time.time()), state.config.model, data, limit, status)
    is_stored = bool(request.store) and state.config.enable_responses_store
    if is_stored:
        state.responses.messages[response_id] = messages
    return _Job(state, sequence, Words(seed), response, f"msg_{random_id()}", is_stored)


def _history(store: ResponseStore, response_id: str) -> list[Message]:
    """What was said until then, and its answer. Raises ApiError."""
    answer = store.get(response_id)
    said = [{"role": "assistant", "content": part["text"]} for item in answer["output"] for part in item["content"]]
    return store.messages[response_id] + said


async def _begin_in_background(job: _Job, exchange: Exchange, *, is_streamed: bool) -> None:
    store, response_id = job.state.responses, job.response["id"]
    store.responses[response_id] = job.response
    if is_streamed:
        store.events[response_id] = []
    task = asyncio.get_running_loop().create_task(_run_in_background(job, is_streamed=is_streamed))
    store.tasks[response_id] = task
    task.add_done_callback(lambda _: store.tasks.pop(response_id, None))
    if is_streamed:
        await _stream(exchange, store.events_from(response_id, 0))
    else:
        await exchange.respond_json(200, job.response)


async def _run_in_background(job: _Job, *, is_streamed: bool) -> None:
    store, response_id = job.state.responses, job.response["id"]
    try:
        if is_streamed:
            async for event in job.events():
                store.tell(response_id, event)
        else:
            await job.answer()
    except ApiError:
        store.responses[response_id] = store.responses[response_id] | {"status": "failed"}


async def _stream(exchange: Exchange, events: AsyncIterator[bytes]) -> None:
    await exchange.start_events()
    try:
        async for event in events:
            await exchange.event(event)
    except (ApiError, KeyError):
        exchange.cut()
        return
    await exchange.end_events()


async def stored_response(state: ServerState, exchange: Exchange) -> None:
    """GET /v1/responses/{id}, and POST /v1/responses/{id}/cancel. Raises ApiError."""
    response_id = exchange.path.removeprefix(PREFIX).removesuffix("/cancel")
    query = parse_qs(exchange.query)
    is_cancel = exchange.path.endswith("/cancel")
    response = await cancelled(state.responses, response_id) if is_cancel else state.responses.get(response_id)
    if query.get("stream", ["false"])[0] in {"true", "1"}:
        after = int(query.get("starting_after", ["-1"])[0])
        await _stream(exchange, state.responses.events_from(response_id, after + 1))
    else:
        await exchange.respond_json(200, response)


async def cancelled(store: ResponseStore, response_id: str) -> Values:
    """Raises ApiError."""
    response = store.get(response_id)
    if response["status"] not in _UNFINISHED:
        raise ApiError(400, "BadRequestError", "Cannot cancel a synchronous response.", "response_id")
    store.responses[response_id] = response = response | {"status": "cancelled"}
    task = store.tasks.get(response_id)
    if task is not None:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    return response
