"""A GatewayError as the client sees it: OpenAI's error shape, and the headers that say whether to come back.

The only place that turns errors into bytes of a response. When to come back is decided in the domain; here it is
only spelled.
"""

import math

import msgspec

from gateway.domain.errors import Code, GatewayError
from gateway.domain.outcome import Reason

_LONGEST_SECONDS = 60.0
# A promise is never brought forward, only spread behind its time by at most this share.
_JITTER_SHARE = 0.25
# https://docs.claude.com/en/api/errors
_ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
_TENANT_REASONS = {Reason.TENANT_QUOTA, Reason.TENANT_CONCURRENCY}


def error_body(error: GatewayError) -> bytes:
    """`{"error": {"message", "type", "param", "code"}}` as UTF-8 JSON."""
    return msgspec.json.encode(
        {
            "error": {
                "message": error.message,
                "type": openai_type(error.status),
                "param": error.param,
                "code": error.code.value,
            }
        }
    )


def anthropic_error_body(error: GatewayError) -> bytes:
    """`{"type": "error", "error": {"type", "message"}}`: the shape has no `param`, so the message begins with it."""
    message = error.message
    if error.param is not None and error.param not in message:
        message = f"{error.param}: {message}"
    return msgspec.json.encode({"type": "error", "error": {"type": anthropic_type(error.status), "message": message}})


def anthropic_type(status: int) -> str:
    """Anthropic's `type` strings."""
    return _ANTHROPIC_TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")


def openai_type(status: int) -> str:
    """OpenAI's `type` strings."""
    if status == 429:
        return "rate_limit_error"
    return "server_error" if status >= 500 else "invalid_request_error"


def error_status(error: GatewayError, overload_status: int | None = None) -> int:
    """The HTTP status; `overload_status` (429, 503 or 529) replaces it where this gateway is full.

    A tenant over its own quota stays 429 whatever is set: the gateway has room, the tenant has not.
    """
    if overload_status is None or error.reason in _TENANT_REASONS or not _is_overload(error):
        return error.status
    return overload_status


def _is_overload(error: GatewayError) -> bool:
    return error.status == 429 or error.reason is Reason.DEADLINE_PASSED


def error_headers(error: GatewayError, body: bytes, jitter: float) -> list[tuple[bytes, bytes]]:
    """Headers of the error's response with its `body`. `jitter` in [0, 1) spreads clients told the same time."""
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"x-gateway-reason", error.reason.value.encode()),
    ]
    if error.code is Code.INVALID_API_KEY:
        headers.append((b"www-authenticate", b"Bearer"))
    return headers + retry_headers(error, jitter)


def retry_headers(error: GatewayError, jitter: float) -> list[tuple[bytes, bytes]]:
    """Those that say when to come back, or that it is of no use."""
    if error.status == 400:
        return [(b"x-should-retry", b"false")]
    if _is_overload(error) and not error.is_promise and error.reason is not Reason.TENANT_CONCURRENCY:
        return [(b"retry-after", b"60"), (b"x-should-retry", b"false")]
    if error.retry_after_seconds is None:
        return []
    seconds = min(error.retry_after_seconds * (1 + _JITTER_SHARE * jitter), _LONGEST_SECONDS)
    headers = [(b"retry-after", str(max(1, math.ceil(seconds))).encode())]
    if error.is_promise:
        headers.append((b"retry-after-ms", str(max(1, round(seconds * 1000))).encode()))
    return headers
