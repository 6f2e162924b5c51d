import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.spans import SpanFinder

raw_list = msgspec.json.Decoder(list[msgspec.Raw])


@given(st.lists(st.sampled_from([b'"x"', b'"\\/"', b'{"a": [1]}', b"null", b"12.5", b'""'])), st.booleans())
def test_every_view_is_found_where_it_stands_however_often_its_bytes_occur(values, is_mutable):
    body = b"[" + b" , ".join(values) + b"]"
    body = bytearray(body) if is_mutable else body

    finder = SpanFinder(body)
    spans = [finder.span_of(raw) for raw in raw_list.decode(body)]

    assert [bytes(body[start:end]) for start, end in spans] == values
    assert spans == sorted(set(spans))


def test_a_view_of_another_body_is_a_fault():
    body = b'["x"]'
    other = bytes(bytearray(body))
    (raw,) = raw_list.decode(other)

    with pytest.raises(AssertionError, match="no view of this body"):
        SpanFinder(body).span_of(raw)
