"""A body whose answers get fewer tokens: what vLLM then reads, and that nothing else has changed."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.chat import parse_chat
from gateway.wire.completions import parse_completions
from gateway.wire.max_tokens import cap_answer
from gateway.wire.splice import splice

CHAT = ("max_completion_tokens", "max_tokens")
MESSAGES = b'"messages":[{"role":"user","content":"\xc3\xa9 \\"max_tokens\\": 9"}]'


def capped(body: bytes, most_tokens=512, *, is_chat=True) -> tuple[int, bytes] | None:
    """The bound, and the new body."""
    asked = (parse_chat if is_chat else parse_completions)(body).max_tokens
    cap = cap_answer(body, asked, most_tokens, CHAT if is_chat else ("max_tokens",))
    return None if cap is None else (cap.tokens, b"".join(splice(body, [cap.splice])))


@pytest.mark.parametrize(
    ("fields", "new"),
    [
        (b"", b'{"max_tokens":512,%s}'),
        (b'"max_tokens":9000,', b'{"max_tokens":512,%s}'),
        (b'"max_tokens":null,', b'{"max_tokens":512,%s}'),
        (b'"max_tokens":9e3,', b'{"max_tokens":512,%s}'),
        (b'"max_tokens":100,"max_tokens":9000,', b'{"max_tokens":100,"max_tokens":512,%s}'),
        (b'"max_completion_tokens":9000,', b'{"max_completion_tokens":512,%s}'),
        (b'"max_completion_tokens":null,', b'{"max_completion_tokens":512,%s}'),
        (b'"max_tokens":7,"max_completion_tokens":9000,', b'{"max_tokens":7,"max_completion_tokens":512,%s}'),
        (b'"max_completion_tokens":null,"max_tokens":9000,', b'{"max_completion_tokens":null,"max_tokens":512,%s}'),
        (b'"max_\\u0074okens":9000,', b'{"max_\\u0074okens":512,%s}'),
    ],
)
def test_the_bound_is_written_where_vllm_reads_it(fields, new):
    assert capped(b"{" + fields + MESSAGES + b"}") == (512, new % MESSAGES)


@pytest.mark.parametrize(
    "fields", [b'"max_tokens":512,', b'"max_tokens":9000,"max_completion_tokens":1,', b'"max_completion_tokens":511,']
)
def test_a_client_that_asked_for_no_more_keeps_its_body(fields):
    assert capped(b"{" + fields + MESSAGES + b"}") is None


def test_a_body_may_begin_with_blanks():
    assert capped(b" \n{ " + MESSAGES + b" }") == (512, b' \n{"max_tokens":512, ' + MESSAGES + b" }")


def test_it_never_goes_below_the_least_that_was_asked_for():
    assert capped(b'{"min_tokens":600,' + MESSAGES + b"}") == (
        600,
        b'{"max_tokens":600,"min_tokens":600,%s}' % MESSAGES,
    )
    assert capped(b'{"min_tokens":600,"max_tokens":600,' + MESSAGES + b"}") is None
    assert capped(b'{"min_tokens":3,"max_tokens":600,' + MESSAGES + b"}")[0] == 512
    assert capped(b'{"min_tokens":"many",' + MESSAGES + b"}")[0] == 512, "for vLLM to judge"


def test_completions_read_only_max_tokens_and_have_sixteen_without_it():
    assert capped(b'{"prompt":"Hm?","max_completion_tokens":9000}', is_chat=False) is None
    assert capped(b'{"prompt":"Hm?"}', 8, is_chat=False) == (8, b'{"max_tokens":8,"prompt":"Hm?"}')
    newer = b'{"prompt":"Hm?","max_tokens":900,"max_completion_tokens":9000}'
    assert capped(newer, is_chat=False) == (512, newer.replace(b":900,", b":512,"))


LIMITS = st.none() | st.integers(1, 2000)


@given(st.fixed_dictionaries({}, optional={"max_tokens": LIMITS, "max_completion_tokens": LIMITS, "n": LIMITS}))
def test_what_vllm_reads_is_the_smaller_of_both_and_all_else_is_as_it_was(fields):
    request = {"messages": [{"role": "user", "content": "Hm?"}]} | fields
    body = json.dumps(request).encode()
    asked = parse_chat(body).max_tokens
    after = capped(body)
    new = body if after is None else after[1]
    assert parse_chat(new).max_tokens == min(asked or 512, 512)
    limits = {"max_tokens", "max_completion_tokens"}
    assert {k: v for k, v in json.loads(new).items() if k not in limits} == {
        k: v for k, v in request.items() if k not in limits
    }
    assert cap_answer(new, parse_chat(new).max_tokens, 512, CHAT) is None
