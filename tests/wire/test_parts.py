import pytest

from gateway.domain.errors import Code, GatewayError
from gateway.wire.parts import RawParts

BODY = b' {"messages":[{"content":"text"},{"content":["a",{"type":"text"},5]}],"images":["x"],"n":1,"n":2}'


@pytest.mark.parametrize(
    ("path", "raw"),
    [
        (("messages", 1, "content", 0), b'"a"'),
        (("messages", 1, "content", 1), b'{"type":"text"}'),
        (("messages", 1, "content", 2), b"5"),
        (("messages", 0), b'{"content":"text"}'),
        (("images", 0), b'"x"'),
        (("n",), b"2"),
    ],
)
def test_parts_are_found_by_keys_and_indexes(path, raw):
    assert bytes(RawParts(BODY).part(path)) == raw


def test_a_second_part_is_found_as_the_first_one_was():
    parts = RawParts(BODY)
    assert [bytes(parts.part(("messages", 1, "content", index))) for index in (2, 0, 2)] == [b"5", b'"a"', b"5"]


def test_a_body_that_cannot_be_read_is_refused():
    with pytest.raises(GatewayError) as refused:
        RawParts(b"{").part(("messages", 0))
    assert refused.value.code is Code.INVALID_JSON
