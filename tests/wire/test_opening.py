import json

import pytest

from gateway.wire.opening import opening_span

SYSTEM = {"role": "system", "content": "Be brief. é"}
USER = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]}
ANSWER = {"role": "assistant", "content": "No."}


def opening(text: str, messages: int) -> str:
    body = text.encode()
    span = opening_span(body, messages)
    return body[span.start : span.end].decode()


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_it_stays_the_same_while_the_history_grows(separators):
    def said(*messages):
        text = json.dumps({"model": "m", "messages": messages}, separators=separators, ensure_ascii=False)
        return opening(text, 2)

    first = said(SYSTEM, USER)
    assert first == said(SYSTEM, USER, ANSWER, USER)
    assert json.loads(f"[{first}]") == [SYSTEM, USER]


def test_one_message_is_enough():
    assert opening(json.dumps({"messages": [ANSWER, USER]}), 1) == json.dumps(ANSWER)


def test_of_two_lists_the_later_one_is_read_as_vllm_reads_it():
    assert opening('{"messages":[{"role":"a"}],"messages":[{"role":"b"}]}', 1) == '{"role":"b"}'
