import pytest

from gateway.domain.errors import Code, GatewayError
from gateway.wire.parts import RawParts


def test_parts_are_found_by_message_and_place():
    body = b'{"messages":[{"content":"text"},{"content":["a",{"type":"text"},5]},{"content":null}]}'
    parts = RawParts(body)
    assert [bytes(parts.part(1, index)) for index in range(3)] == [b'"a"', b'{"type":"text"}', b"5"]
    with pytest.raises(AssertionError, match="only lists hold parts"):
        parts.part(0, 0)


def test_a_body_that_cannot_be_read_is_refused():
    with pytest.raises(GatewayError) as refused:
        RawParts(b"{")
    assert refused.value.code is Code.INVALID_JSON
