"""A body says by its own fields which route it is for."""

import pytest

from gateway.domain.errors import GatewayError
from gateway.wire.dialect import dialect_of
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
