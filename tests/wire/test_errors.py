import json

import pytest

from gateway.domain.errors import Code, GatewayError
from gateway.domain.outcome import Reason
from gateway.wire.errors import anthropic_error_body, error_body, error_headers, error_status


def headers_of(error, jitter=0.0):
    headers = dict(error_headers(error, error_body(error), jitter))
    assert headers.pop(b"content-type") == b"application/json"
    assert headers.pop(b"content-length") == str(len(error_body(error))).encode()
    assert headers.pop(b"x-gateway-reason") == error.reason.value.encode()
    return headers


def test_the_body_has_openais_shape():
    error = GatewayError(Code.IMAGE_TOO_LARGE, 'too "large"', param="messages[0].content[1]")
    assert json.loads(error_body(error)) == {
        "error": {
            "message": 'too "large"',
            "type": "invalid_request_error",
            "param": "messages[0].content[1]",
            "code": "image_too_large",
        }
    }


@pytest.mark.parametrize(
    ("code", "type_"),
    [
        (Code.INVALID_REQUEST, "invalid_request_error"),
        (Code.METHOD_NOT_ALLOWED, "invalid_request_error"),
        (Code.INVALID_API_KEY, "authentication_error"),
        (Code.PERMISSION_DENIED, "permission_error"),
        (Code.MODEL_NOT_FOUND, "not_found_error"),
        (Code.REQUEST_TOO_LARGE, "request_too_large"),
        (Code.RATE_LIMIT_EXCEEDED, "rate_limit_error"),
        (Code.INTERNAL_ERROR, "api_error"),
        (Code.SERVER_IS_OVERLOADED, "overloaded_error"),
    ],
)
def test_anthropics_shape(code, type_):
    error = json.loads(anthropic_error_body(GatewayError(code, "It is so.")))
    assert error == {"type": "error", "error": {"type": type_, "message": "It is so."}}


@pytest.mark.parametrize("message", ["too large", "`messages[0].content[1]`: too large"])
def test_anthropics_shape_has_no_field_for_the_path_so_the_message_names_it(message):
    error = GatewayError(Code.IMAGE_TOO_LARGE, message, param="messages[0].content[1]")
    assert json.loads(anthropic_error_body(error))["error"]["message"].count("messages[0].content[1]") == 1


@pytest.mark.parametrize(
    ("code", "type_"),
    [
        (Code.INVALID_API_KEY, "invalid_request_error"),
        (Code.NOT_FOUND, "invalid_request_error"),
        (Code.RATE_LIMIT_EXCEEDED, "rate_limit_error"),
        (Code.UPSTREAM_ERROR, "server_error"),
        (Code.SERVER_IS_OVERLOADED, "server_error"),
    ],
)
def test_types(code, type_):
    body = json.loads(error_body(GatewayError(code, "x")))["error"]
    assert (body["type"], body["param"], body["code"]) == (type_, None, code)


@pytest.mark.parametrize(
    ("seconds", "jitter", "retry_after", "retry_after_ms"),
    [
        (0.25, 0.0, b"1", b"250"),
        (0.0, 0.0, b"1", b"1"),
        (3.0, 0.0, b"3", b"3000"),
        (3.0, 0.5, b"4", b"3375"),
        (59.0, 0.99, b"60", b"60000"),
        (500.0, 0.0, b"60", b"60000"),
    ],
)
def test_a_promise_names_its_time_and_is_never_brought_forward(seconds, jitter, retry_after, retry_after_ms):
    error = GatewayError(Code.RATE_LIMIT_EXCEEDED, "x", retry_after_seconds=seconds, is_promise=True)
    assert headers_of(error, jitter) == {b"retry-after": retry_after, b"retry-after-ms": retry_after_ms}


@pytest.mark.parametrize("seconds", [None, 60.0, 5.0])
@pytest.mark.parametrize("code", [Code.RATE_LIMIT_EXCEEDED, Code.SERVER_IS_OVERLOADED])
def test_without_a_promise_coming_back_is_discouraged(code, seconds):
    error = GatewayError(code, "x", retry_after_seconds=seconds)
    assert headers_of(error, 0.5) == {b"retry-after": b"60", b"x-should-retry": b"false"}


def test_what_the_client_must_fix_is_not_retried():
    assert headers_of(GatewayError(Code.INVALID_JSON, "x")) == {b"x-should-retry": b"false"}
    assert headers_of(GatewayError(Code.TOO_MANY_IMAGES, "x")) == {b"x-should-retry": b"false"}


def test_an_upstream_that_will_be_back_says_when():
    error = GatewayError(Code.UPSTREAM_UNAVAILABLE, "x", retry_after_seconds=4.2)
    assert headers_of(error) == {b"retry-after": b"5"}
    draining = GatewayError(Code.SERVER_IS_OVERLOADED, "x", reason=Reason.DRAINING, retry_after_seconds=1.0)
    assert headers_of(draining) == {b"retry-after": b"1"}
    assert headers_of(GatewayError(Code.UPSTREAM_ERROR, "x")) == {}


@pytest.mark.parametrize(
    ("error", "plain", "overridden"),
    [
        (GatewayError(Code.RATE_LIMIT_EXCEEDED, "x"), 429, 529),
        (GatewayError(Code.SERVER_IS_OVERLOADED, "x"), 503, 529),
        (GatewayError(Code.RATE_LIMIT_EXCEEDED, "x", reason=Reason.TENANT_QUOTA), 429, 429),
        (GatewayError(Code.SERVER_IS_OVERLOADED, "x", reason=Reason.DRAINING), 503, 503),
        (GatewayError(Code.UPSTREAM_UNAVAILABLE, "x"), 503, 503),
        (GatewayError(Code.INVALID_JSON, "x"), 400, 400),
    ],
)
def test_only_overload_takes_another_status(error, plain, overridden):
    assert error_status(error) == plain
    assert error_status(error, 529) == overridden
