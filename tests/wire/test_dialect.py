"""A body says by its own fields which route it is for."""

import pytest

from gateway.domain.errors import GatewayError
from gateway.wire.dialect import dialect_of, invoked_kind
from gateway.wire.routes import Kind


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b'{"messages": []}', Kind.CHAT),
        (b'{"prompt": "x"}', Kind.COMPLETIONS),
        (b'{"prompt": null}', Kind.COMPLETIONS),
        (b'{"pro\\u006dpt": [1]}', Kind.COMPLETIONS),
        (b'{"prompt": "x", "messages": []}', Kind.CHAT),
        (b'{"extra": {"prompt": "x"}}', Kind.CHAT),
        (b'{"input": "x"}', Kind.RESPONSES),
        (b'{"input": "x", "messages": []}', Kind.CHAT),
        (b"{}", Kind.CHAT),
    ],
)
def test_by_the_field_that_each_must_have(body, kind):
    assert dialect_of(body) is kind


@pytest.mark.parametrize(("body", "code"), [(b"{", "invalid_json"), (b"", "invalid_json"), (b"[]", "invalid_request")])
def test_what_is_neither(body, code):
    with pytest.raises(GatewayError) as caught:
        dialect_of(body)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b'{"messages": [], "documents": []}', Kind.CHAT),
        (b'{"prompt": "x"}', Kind.COMPLETIONS),
        (b'{"input": "x"}', Kind.EMBEDDINGS),
        (b'{"qu\\u0065ry": "x", "documents": []}', Kind.RERANK),
        (b'{"queries": "x", "documents": []}', Kind.SCORE),
        (b'{"data_1": "x", "data_2": []}', Kind.SCORE),
        (b'{"text_1": "x", "text_2": []}', Kind.SCORE),
    ],
)
def test_what_is_invoked(body, kind):
    assert invoked_kind(body) is kind


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b'{"model": "m"}',
        b'{"messages": [], "prompt": null}',
        b'{"input": "a", "messages": null}',
        b'{"query": "a", "text_1": "b"}',
        b'{"data": 1}',
        b'{"messages": [], "data": null}',
        b'{"requestType": "NEW_SESSION"}',
        b'{"messages": [], "requestType": "CLOSE"}',
    ],
)
def test_what_could_be_for_several_or_for_none(body):
    with pytest.raises(GatewayError) as caught:
        invoked_kind(body)
    assert caught.value.code == "invalid_request"
