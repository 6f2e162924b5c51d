"""Bodies and stream events of the Responses API, key for key as captured. Pure: values in, bytes out.

There is no `[DONE]`: `response.completed` is the last event, also of an answer that was cut at its bound.
"""

from typing import Any

from gateway.emulator.answers import Usage, dump

Values = dict[str, Any]


def response_of(response_id: str, created: int, model: str, request: Values, max_tokens: int, status: str) -> Values:
    """The object as it is told before there is an answer. `request` is the body as it came."""
    has_tools = bool(request.get("tools"))
    return {
        "id": response_id,
        "created_at": created,
        "incomplete_details": None,
        "instructions": request.get("instructions"),
        "metadata": request.get("metadata"),
        "model": model,
        "object": "response",
        "output": [],
        "parallel_tool_calls": True,
        "temperature": 1.0 if request.get("temperature") is None else request["temperature"],
        "tool_choice": request.get("tool_choice", "auto") if has_tools else "none",
        "tools": request.get("tools", []),
        "top_p": 1.0 if request.get("top_p") is None else request["top_p"],
        "background": bool(request.get("background")),
        "max_output_tokens": max_tokens,
        "max_tool_calls": None,
        "previous_response_id": request.get("previous_response_id"),
        "prompt": None,
        "reasoning": request.get("reasoning"),
        "service_tier": "auto",
        "status": status,
        "text": request.get("text"),
        "top_logprobs": None,
        "truncation": request.get("truncation", "disabled"),
        "usage": None,
        "user": request.get("user"),
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "kv_transfer_params": None,
        "ec_transfer_params": None,
        "input_messages": None,
        "output_messages": None,
    }


def finished(response: Values, item_id: str, text: str, finish_reason: str, usage: Usage) -> Values:
    """The object with its answer."""
    is_cut = finish_reason == "length"
    return response | {
        "output": [_message(item_id, text, "completed")],
        "status": "incomplete" if is_cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
        "usage": _usage(usage),
    }


def _usage(usage: Usage) -> Values:
    cached = (usage.details or {}).get("cached_tokens", 0)
    prompt, output = usage.prompt_tokens, usage.completion_tokens
    turns: Values = {"input_tokens_per_turn": [], "cached_tokens_per_turn": []}
    tools: Values = {"tool_output_tokens": 0, "output_tokens_per_turn": [], "tool_output_tokens_per_turn": []}
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0, **turns},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": 0, **tools},
        "total_tokens": prompt + output,
    }


def _text_part(text: str, logprobs: list[Any] | None) -> Values:
    return {"annotations": [], "text": text, "type": "output_text", "logprobs": logprobs}


def _message(item_id: str, text: str | None, status: str) -> Values:
    content = [] if text is None else [_text_part(text, None)]
    return {"id": item_id, "content": content, "role": "assistant", "status": status, "type": "message", "phase": None}


class Events:
    """The events of one stream, numbered as they are made."""

    def __init__(self, item_id: str) -> None:
        self._item_id = item_id
        self._number = 0
        self._is_open = False

    def of_response(self, name: str, response: Values) -> bytes:
        """`created`, `in_progress` and `completed`."""
        return self._event(name, {"response": response}, {})

    def delta(self, text: str) -> list[bytes]:
        """One piece of the answer; before the first its item and its part are announced."""
        place = {"content_index": 0, "item_id": self._item_id, "output_index": 0}
        opened = [] if self._is_open else self._opened(place)
        self._is_open = True
        where = {"item_id": self._item_id, "logprobs": [], "output_index": 0}
        piece = self._event("output_text.delta", {"content_index": 0, "delta": text, **where}, {})
        return [*opened, piece]

    def done(self, text: str) -> list[bytes]:
        """The answer's end; nothing where it never began."""
        if not self._is_open:
            return []
        where = {"content_index": 0, "item_id": self._item_id}
        part, item = _text_part(text, None), _message(self._item_id, text, "completed")
        return [
            self._event("output_text.done", {**where, "logprobs": [], "output_index": 0}, {"text": text}),
            self._event("content_part.done", {**where, "output_index": 0, "part": part}, {}),
            self._event("output_item.done", {"item": item, "output_index": 0}, {}),
        ]

    def _opened(self, place: Values) -> list[bytes]:
        item = _message(self._item_id, None, "in_progress")
        return [
            self._event("output_item.added", {"item": item, "output_index": 0}, {}),
            self._event("content_part.added", {**place, "part": _text_part("", [])}, {}),
        ]

    def _event(self, name: str, before: Values, after: Values) -> bytes:
        data = {**before, "sequence_number": self._number, **after, "type": f"response.{name}"}
        self._number += 1
        return b"event: response.%s\ndata: %s\n\n" % (name.encode(), dump(data))
