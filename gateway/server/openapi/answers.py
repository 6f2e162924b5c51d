"""Answers and headers of the document, from what the code itself goes by: codes, their guide, and the headers."""

from collections.abc import Iterable, Mapping
from typing import Any

from gateway.domain.error_guide import CODES
from gateway.domain.errors import Code, GatewayError
from gateway.domain.priority import Priority
from gateway.domain.resize import Preset
from gateway.server.openapi.operations import JSON, Operation
from gateway.server.openapi.schemas import ref
from gateway.wire.headers import HEADERS, Carrier

_OF_HTTP = frozenset({"authorization", "x-api-key", "content-type", "content-encoding", "content-length", "expect"})
_SPELLINGS: Mapping[str, Mapping[str, Any]] = {
    "x-gateway-resize": {"enum": ["off", *(preset.value for preset in Preset)]},
    "x-gateway-priority": {"enum": [priority.name.lower() for priority in Priority]},
    "x-gateway-deadline-ms": {"pattern": "^[1-9][0-9]{0,8}$"},
    "x-gateway-tokens": {"enum": ["estimate", "upstream"]},
    "x-stainless-retry-count": {"pattern": "^[0-9]{1,3}$"},
}
_OWN_OVERLOAD = "529"
_STREAM = "text/event-stream"


def responses_of(operation: Operation, *, is_anthropic: bool) -> dict[str, Any]:
    content = {JSON: {"schema": ref(operation.answer)}}
    if operation.streams:
        content[_STREAM] = {"schema": {"description": "Server-sent events, as vLLM writes them."}}
    success = {"description": "vLLM's answer.", "content": content, "headers": headers_of(Carrier.SUCCESS)}
    return {"200": success} | errors_of(is_anthropic=is_anthropic)


def errors_of(*, is_anthropic: bool = False) -> dict[str, Any]:
    """Every status that the gateway or vLLM ends a request with."""
    shape = "AnthropicError" if is_anthropic else "Error"
    schema = {"anyOf": [ref(shape), ref("VllmDetail"), *([ref("Error")] if is_anthropic else [])]}
    content, headers = {JSON: {"schema": schema}}, headers_of(Carrier.REFUSAL)
    return {
        status: {"description": text, "content": content, "headers": headers}
        for status, text in sorted(_meanings().items())
    }


def _meanings() -> dict[str, str]:
    lines: dict[str, list[str]] = {_OWN_OVERLOAD: ["In place of 429 where `server.overload_status` says so."]}
    for code in Code:
        status = str(GatewayError(code, "").status)
        lines.setdefault(status, []).append(f"`{code.value}`: {CODES[code].meaning}")
    return {status: "\n\n".join(each) for status, each in lines.items()}


def headers_of(carrier: Carrier) -> dict[str, Any]:
    return {
        header.name: {"description": header.help, "schema": {"type": "string"}, "example": header.example}
        for header in HEADERS
        if header.carrier is carrier and header.name not in {"connection", "allow"}
    }


def request_headers() -> list[Mapping[str, Any]]:
    """Those that HTTP itself has meant for other places of the document stand there, or nowhere."""
    return [
        {
            "name": header.name,
            "in": "header",
            "description": header.help,
            "schema": {"type": "string", **_SPELLINGS.get(header.name, {})},
            "example": header.example,
        }
        for header in HEADERS
        if header.carrier is Carrier.REQUEST and header.name not in _OF_HTTP
    ]


def path_parameters(path: str) -> Iterable[Mapping[str, Any]]:
    for part in path.split("/"):
        if part.startswith("{"):
            yield {"name": part.strip("{}"), "in": "path", "required": True, "schema": {"type": "string"}}
