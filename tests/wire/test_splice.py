import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.request import Span
from gateway.wire.splice import Splice, splice


@st.composite
def bodies_and_splices(draw):
    body = draw(st.binary(max_size=40))
    offsets = sorted(draw(st.sets(st.integers(0, len(body)), max_size=8)))
    spans = [Span(start, end) for start, end in zip(offsets[::2], offsets[1::2], strict=False)]
    spans += [Span(span.start, span.start) for span in draw(st.sets(st.sampled_from(spans)) if spans else st.just(()))]
    return body, [Splice(span, draw(st.binary(max_size=4))) for span in draw(st.permutations(spans))]


@given(bodies_and_splices(), st.booleans())
def test_joined_pieces_equal_the_naive_rebuild(case, is_mutable):
    body, splices = case

    naive = body
    for item in sorted(splices, key=lambda item: item.span, reverse=True):
        naive = naive[: item.span.start] + item.replacement + naive[item.span.end :]

    assert b"".join(splice(bytearray(body) if is_mutable else body, splices)) == naive


def test_untouched_parts_are_views_in_order():
    body = b"0123456789"

    pieces = splice(body, [Splice(Span(8, 9), b"B"), Splice(Span(2, 4), b"A")])

    assert [bytes(piece) for piece in pieces] == [b"01", b"A", b"4567", b"B", b"9"]
    assert [piece.obj is body for piece in pieces if isinstance(piece, memoryview)] == [True] * 3


def test_without_splices_the_body_goes_on():
    (piece,) = splice(b"body", [])
    assert piece == b"body"
    assert splice(b"", []) == []


@pytest.mark.parametrize(
    "spans",
    [
        [Span(0, 3), Span(2, 4)],
        [Span(1, 2), Span(1, 2)],
        [Span(1, 3), Span(2, 2)],
        [Span(2, 2), Span(2, 2)],
        [Span(3, 2)],
        [Span(9, 11)],
        [Span(-1, 2)],
    ],
)
def test_splices_that_contradict_each_other_are_a_fault(spans):
    with pytest.raises(AssertionError):
        splice(b"0123456789", [Splice(span, b"") for span in spans])
