"""The chat of a Responses body, message by message as vLLM makes it."""

import json

import pytest

from gateway.wire.dialects.responses import RESPONSES
from gateway.wire.response_chat import chat_of_responses


def chat_of(request_input, **fields):
    return json.loads(chat_of_responses(json.dumps({"input": request_input} | fields).encode()))


def messages_of(request_input, **fields):
    return chat_of(request_input, **fields)["messages"]


def test_a_text_is_the_users():
    assert messages_of("Hm?", instructions="Look.") == [
        {"role": "system", "content": "Look."},
        {"role": "user", "content": "Hm?"},
    ]


def test_thoughts_words_and_calls_join():
    items = [
        {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}], "summary": []},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "ab"}, {"text": "c"}]},
        {"type": "function_call", "call_id": "1", "name": "f", "namespace": "n", "arguments": "{}"},
        {"type": "custom_tool_call", "call_id": "2", "name": "g", "input": "x"},
        {"type": "function_call_output", "call_id": "1", "output": "done"},
        {"type": "reasoning", "summary": []},
    ]
    assert messages_of(items) == [
        {
            "role": "assistant",
            "reasoning": "hm",
            "content": "ab",
            "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "n__f", "arguments": "{}"}},
                {"id": "2", "type": "function", "function": {"name": "g", "arguments": '{"input":"x"}'}},
            ],
        },
        {"role": "tool", "content": "done", "tool_call_id": "1"},
        {"role": "assistant", "reasoning": ""},
    ]


def test_a_second_word_begins_a_message_of_its_own():
    said = [{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}]
    assert messages_of(said) == said


def test_tools_are_shown_as_those_of_a_chat():
    own = {"type": "function", "name": "f", "parameters": {"type": "object"}}
    spaced = {"type": "namespace", "name": "n", "tools": [own, {"type": "custom", "name": "h"}]}
    free = {"type": "custom", "name": "g", "description": "d"}
    tools = chat_of("Hm?", tools=[own, spaced, free, {"type": "web_search"}])["tools"]
    assert [tool["function"]["name"] for tool in tools] == ["f", "n__f", "g"]
    assert tools[0] == {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    assert tools[2]["function"]["parameters"]["required"] == ["input"]


def test_settings_of_the_template_go_along():
    kwargs = {"enable_thinking": False}
    chat = chat_of("Hm?", reasoning={"effort": "low"}, chat_template_kwargs=kwargs, temperature=1)
    assert chat.keys() == {"messages", "reasoning_effort", "chat_template_kwargs"}


def test_an_unfinished_message_is_continued():
    items = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "status": "incomplete"}]
    chat = chat_of(items)
    assert (chat["add_generation_prompt"], chat["continue_final_message"]) == (False, True)
    assert "continue_final_message" not in chat_of(items[:1])


BAD = [
    {"input": [{"type": "function_call"}]},
    {"input": "a", "tools": [5]},
    {"input": "a", "reasoning": "low"},
    {"input": [{"type": "reasoning", "content": ["a"]}]},
    {"input": []},
    {"input": [{"role": "assistant", "content": [{"text": "a", "annotations": [{"type": "odd"}]}, {"text": "b"}]}]},
]


@pytest.mark.parametrize("body", [b"", *(json.dumps(each).encode() for each in BAD)])
def test_what_vllm_would_refuse_is_no_chat(body):
    assert RESPONSES.chats(body, None) == [b""]


def test_the_record_makes_one_chat():
    assert len(RESPONSES.chats(b'{"input":"a"}', None)) == 1
