"""`POST /gateway/preflight`: would it fit? And how /docs describes the route."""

from typing import Any

from gateway.pipeline import settle
from gateway.pipeline.exchange import Exchange, Parts
from gateway.pipeline.preflight import preflight
from gateway.server.answers import Send, send_whole
from gateway.wire.report import encode_report, json_schema

_COMPONENTS = "#/components/schemas/{name}"


async def answer_preflight(parts: Parts, exchange: Exchange, send: Send) -> None:
    """Raises GatewayError 400 for a body that is not JSON, or a route that is none."""
    body = encode_report(await preflight(parts, exchange))
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send_whole(200, headers, body, exchange, send)
    settle.answered_here(parts, exchange)


def preflight_docs() -> tuple[dict[str, Any], dict[str, Any]]:
    """The path item of the OpenAPI document, and the schemas that it refers to."""
    answer, components = json_schema(_COMPONENTS)
    operation = {
        "summary": "Would it fit?",
        "description": (
            "Takes the body of any route whose bodies are read, which `?route=/v1/messages` names, and says what would "
            "become of it now: admitted, waiting or refused, with what it costs, what is short and what would make it "
            "fit. "
            "Nothing is sent to the model, pixels are not decoded, no place is taken or promised. "
            "`x-gateway-resize` counts as in a request. Without `route` the body of a chat completion (`messages`), a "
            "completion (`prompt`) or a response (`input`) is known by its fields."
        ),
        "operationId": "preflight",
        "parameters": [
            {
                "name": "route",
                "in": "query",
                "description": "The path that the body is for.",
                "schema": {"type": "string"},
                "example": "/v1/messages",
            }
        ],
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": {"type": "object"},
                    "example": {
                        "model": "Qwen/Qwen2.5-VL-7B-Instruct",
                        "messages": [{"role": "user", "content": "What is this?"}],
                    },
                }
            },
        },
        "responses": {
            "200": {
                "description": "The verdict, also that a request would be refused.",
                "content": {"application/json": {"schema": answer}},
            },
            "400": {"description": "The body is not JSON, or `route` names none whose bodies are read."},
            "413": {"description": "The body is too large to be looked at."},
            "429": {"description": "There is no memory for the body just now."},
        },
    }
    return {"post": operation}, components
