"""FastAPI's document of its own routes, and beside them those that are answered past it."""

from typing import Any

from gateway.server.openapi.answers import errors_of, path_parameters, request_headers, responses_of
from gateway.server.openapi.operations import OPERATIONS, UNDESCRIBED, Operation
from gateway.server.openapi.schemas import SCHEMAS, ref
from gateway.server.preflight_route import preflight_docs
from gateway.wire.routes import PREFLIGHT_PATH, classify, open_routes
from gateway.wire.voices import ANTHROPIC, voice_of

_KEYS: list[dict[str, list[str]]] = [{"bearer": []}, {"key": []}, {}]
_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
}
_TEXT = (
    "Admission control in front of vLLM. What is not described of a body goes on as it comes. Routes of vLLM that are "
    "not listed are closed (403) or unknown (404)."
)


def complete(document: dict[str, Any]) -> None:
    """Adds every open route, in place."""
    document["info"]["description"] = _TEXT
    components = document.setdefault("components", {})
    components.setdefault("schemas", {}).update(SCHEMAS)
    components["securitySchemes"] = _SCHEMES
    paths = document["paths"]
    for path, operation in _open().items():
        paths[path] = {operation.method: _described(path, operation)}
    _add_preflight(document)


def _open() -> dict[str, Operation]:
    known = {path: each for path, each in OPERATIONS.items() if classify(each.method.upper(), path).refusal is None}
    others = {route.path for route in open_routes()} - known.keys() - {PREFLIGHT_PATH}
    return known | dict.fromkeys(sorted(others), UNDESCRIBED)


def _described(path: str, operation: Operation) -> dict[str, Any]:
    described: dict[str, Any] = {
        "summary": operation.summary,
        "description": operation.description,
        "operationId": f"{operation.method}{path.replace('/', '_').replace('{', '').replace('}', '')}",
        "tags": ["gateway" if path.startswith("/gateway/") else "vLLM"],
        "security": _KEYS,
        "parameters": [*path_parameters(path), *request_headers()],
        "responses": responses_of(operation, is_anthropic=voice_of(path) is ANTHROPIC),
    }
    if operation.request is not None:
        schema = ref(operation.request) if operation.request else {"type": "string", "format": "binary"}
        content = {operation.media_type: {"schema": schema}}
        described["requestBody"] = {"required": True, "content": content}
    return described


def _add_preflight(document: dict[str, Any]) -> None:
    """Its answers are described by their own types."""
    item, components = preflight_docs()
    operation = item["post"]
    operation["requestBody"]["content"]["application/json"]["schema"] = ref("PreflightRequest")
    operation["responses"] = operation["responses"] | errors_of() | {"200": operation["responses"]["200"]}
    operation |= {"parameters": request_headers(), "security": _KEYS, "tags": ["gateway"]}
    document["paths"][PREFLIGHT_PATH] = item
    document["components"]["schemas"].update(components)
