"""What passes between client and vLLM, and what does not."""

import pytest

from gateway.upstream.headers import answer_headers, request_headers


def to_vllm(*pairs: tuple[bytes, bytes], key: str | None = None) -> list[tuple[str, str]]:
    return request_headers(pairs, request_id="gw-1", upstream_key=key)


def text(*pairs: tuple[bytes, bytes]) -> list[tuple[str, str]]:
    return [(name.decode(), value.decode()) for name, value in pairs]


ALWAYS = [("accept-encoding", "identity"), ("x-request-id", "gw-1")]


def test_end_to_end_headers_pass_in_order() -> None:
    pairs = [
        (b"content-type", b"application/json"),
        (b"x-stainless-retry-count", b"0"),
        (b"user-agent", b"OpenAI/Python"),
        (b"user-agent", b"twice"),
    ]
    assert to_vllm(*pairs) == [*text(*pairs), *ALWAYS]


@pytest.mark.parametrize(
    "name",
    [
        b"connection",
        b"keep-alive",
        b"transfer-encoding",
        b"te",
        b"trailer",
        b"upgrade",
        b"proxy-authorization",
        b"proxy-connection",
        b"host",
        b"content-length",
        b"accept-encoding",
        b"expect",
        b"x-data-parallel-rank",
        b"x-request-id",
        b"x-gateway-resize",
        b"x-gateway-anything",
    ],
)
def test_headers_of_the_hop_and_of_the_gateway_stay_here(name: bytes) -> None:
    assert to_vllm((name, b"client's"), (b"accept", b"*/*")) == [("accept", "*/*"), *ALWAYS]


def test_headers_that_connection_names_stay_here() -> None:
    pairs = [(b"connection", b"close, X-Secret"), (b"x-secret", b"1"), (b"x-open", b"2"), (b"connection", b"x-other")]
    assert to_vllm(*pairs, (b"x-other", b"3")) == [("x-open", "2"), *ALWAYS]


def test_what_a_client_shows_itself_by_stays_here_and_the_upstreams_key_goes_along() -> None:
    pairs = [(b"authorization", b"Bearer sk-client"), (b"x-api-key", b"sk-client")]
    assert to_vllm(*pairs) == ALWAYS
    assert to_vllm(*pairs, key="sk-engine") == [*ALWAYS, ("authorization", "Bearer sk-engine")]


def test_it_goes_on_where_it_is_not_withheld() -> None:
    pairs = [(b"authorization", b"Bearer sk-client"), (b"x-tenant", b"a")]
    sent = request_headers(pairs, request_id="gw-1", upstream_key=None, withheld=frozenset({b"x-tenant"}))
    assert sent == [*text(pairs[0]), *ALWAYS]


def test_a_value_that_is_not_utf8_is_marked_as_such() -> None:
    assert to_vllm((b"x-name", b"caf\xe9")) == [("x-name", "caf\ufffd"), *ALWAYS]


def test_answers_keep_what_is_end_to_end() -> None:
    raw = [
        (b"Content-Type", b"application/json"),
        (b"Content-Length", b"12"),
        (b"endpoint-load-metrics", b"TEXT x"),
        (b"Date", b"now"),
        (b"server", b"uvicorn"),
        (b"Transfer-Encoding", b"chunked"),
        (b"Connection", b"X-Hop"),
        (b"X-Hop", b"1"),
        (b"X-Request-Id", b"gw-1"),
        (b"x-gateway-reason", b"queue_full"),
    ]
    assert answer_headers(raw) == [
        (b"content-type", b"application/json"),
        (b"content-length", b"12"),
        (b"endpoint-load-metrics", b"TEXT x"),
    ]


def test_what_the_gateway_says_itself_takes_the_place_of_what_the_client_says():
    pairs = [(b"x-user-id", b"client's"), (b"x-session-id", b"client's"), (b"accept", b"*/*")]
    own = {"x-user-id": "team-a", "x-session-id": None, "x-gateway-inference-fairness-id": "team-a"}
    headers = request_headers(pairs, request_id="gw-1", upstream_key=None, own_headers=own)
    assert headers == [
        ("accept", "*/*"),
        *ALWAYS,
        ("x-user-id", "team-a"),
        ("x-gateway-inference-fairness-id", "team-a"),
    ]
