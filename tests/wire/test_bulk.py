"""What parsing a body may take, counted before it is parsed."""

import tracemalloc

import pytest

from gateway.domain.errors import Code, GatewayError
from gateway.wire.bulk import MOST_COMMAS, MOST_CONTAINERS, MOST_QUOTES, count_pieces
from gateway.wire.chat import parse_chat

LIMITS = [(b"{", MOST_CONTAINERS), (b"[", MOST_CONTAINERS), (b'"', MOST_QUOTES), (b",", MOST_COMMAS)]


@pytest.mark.parametrize("make_body", [bytes, bytearray])
@pytest.mark.parametrize(("character", "most"), LIMITS)
def test_up_to_the_limit_and_not_beyond(character, most, make_body):
    spread = b"x" * 100_000
    count_pieces(make_body(spread + character * most + spread))
    with pytest.raises(GatewayError, match=f"{most + 1} .* at most {most} ") as refused:
        count_pieces(make_body(spread + character * most + spread + character))
    assert (refused.value.code, refused.value.status) == (Code.INVALID_REQUEST, 400)


def test_lists_and_objects_count_together():
    with pytest.raises(GatewayError, match="100002 opening brackets"):
        count_pieces(b"[{" * (MOST_CONTAINERS // 2 + 1))


def test_all_pieces_are_counted():
    assert count_pieces(b'{"a": [1, 2], "b": "c,"}' + b"x" * 200_000) == 2 + 6 + 3


def joined(head, item, count, tail):
    return head + b",".join([item] * count) + tail


ONE_MESSAGE = b'{"messages":[{"role":"user"}],"n":'
WORST = {
    "empty parts": joined(b'{"messages":[{"role":"user","content":[', b"{}", 99_000, b"]}]}"),
    "short messages": joined(b'{"messages":[', b'{"role":"u"}', 99_000, b"]}"),
    "objects where anything may stand": joined(ONE_MESSAGE + b"[", b'{"ab":1}', 99_000, b"]}"),
    "lists where anything may stand": joined(ONE_MESSAGE + b"[", b"[1]", 99_000, b"]}"),
    "short strings": joined(b'{"messages":[{"role":"user","content":[', b'"ab"', 249_000, b"]}]}"),
    "numbers": joined(ONE_MESSAGE + b"[", b"999", 990_000, b"]}"),
}


@pytest.mark.parametrize("name", WORST)
def test_the_worst_that_is_let_through_takes_little_memory(name):
    tracemalloc.start()
    try:
        refusal = None
        try:
            parse_chat(WORST[name])
        except GatewayError as error:
            refusal = error.message
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 45e6
    assert refusal is None or "are read" not in refusal  # not for its bulk


def test_a_huge_honest_conversation_passes():
    # 2,000 turns of five parts, and tool results of a million characters of JSON.
    part = b'{"type":"text","text":"What about this one, and that?"}'
    turn = joined(b'{"role":"user","content":[', part, 5, b"]}")
    found = b'{\\"id\\": 17, \\"box\\": [100, 200, 300, 400], \\"label\\": \\"a parked car\\"},' * 15_000
    tool = b'{"role":"tool","content":"' + found + b'"}'
    assert len(parse_chat(joined(b'{"messages":[' + tool + b",", turn, 2_000, b"]}")).messages) == 2_001
