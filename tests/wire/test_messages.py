"""What vLLM makes of Anthropic's messages, in the words of a chat: expected values are of vLLM 0.32's conversion."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.errors import Code, GatewayError
from gateway.wire.chat import parse_chat
from gateway.wire.dialects.anthropic import parse_message_tokens
from gateway.wire.messages import Rendering, chat_of_messages

IN_PLACE = Rendering(merges_inline_system=False, disabled_thinking_effort="low")
PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGVsbG8="}}
SEEN = {"type": "image_url", "image_url": {"url": ""}}


def encoded(*messages, **fields):
    return json.dumps({"model": "tiny", "messages": list(messages)} | fields).encode()


def converted(*messages, rendering=IN_PLACE, **fields):
    return chat_of_messages(encoded(*messages, **fields), rendering)


def paths(*messages):
    return [image.param for image in parse_message_tokens(encoded(*messages)).images]


def chat(*messages, **more):
    return json.loads(converted(*messages, **more))


def told(*messages, **more):
    return chat(*messages, **more)["messages"]


def user(*blocks):
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks):
    return {"role": "assistant", "content": list(blocks)}


def text(words):
    return {"type": "text", "text": words}


def result(content, **more):
    return {"type": "tool_result", "tool_use_id": "t1", "content": content} | more


class TestTurns:
    def test_text_stays_text(self):
        assert told({"role": "user", "content": "hi"}) == [{"role": "user", "content": "hi"}]

    def test_a_single_text_block_becomes_plain_text_and_several_stay_parts(self):
        assert told(user(text("a")), user(text("a"), text("b"))) == [
            {"role": "user", "content": "a"},
            {"role": "user", "content": [text("a"), text("b")]},
        ]

    def test_empty_texts_are_dropped_and_with_them_a_user_who_says_nothing_else(self):
        assert told(user(text("")), user(), user(text("x"), text(""))) == [{"role": "user", "content": "x"}]

    def test_an_assistant_who_says_nothing_keeps_its_turn(self):
        assert told(assistant()) == [{"role": "assistant"}]

    def test_a_picture_keeps_its_place_and_has_the_clients_path(self):
        assert told(user(text("a"), PICTURE)) == [{"role": "user", "content": [text("a"), SEEN]}]
        assert paths(user(text("a"), PICTURE)) == ["messages[0].content[1].source.data"]

    def test_so_has_a_picture_by_data_url(self):
        picture = {"type": "image", "source": {"type": "url", "url": "data:image/png;base64,aGVsbG8="}}
        assert told(user(picture)) == [{"role": "user", "content": [SEEN]}]
        assert paths(user(picture)) == ["messages[0].content[0].source.url"]

    def test_thoughts_are_joined_and_hidden_ones_left_out(self):
        blocks = [{"type": "thinking", "thinking": "a"}, {"type": "redacted_thinking", "data": "x"}]
        assert told(assistant(*blocks, {"type": "thinking", "thinking": "b"}, text("c"))) == [
            {"role": "assistant", "reasoning": "ab", "content": "c"}
        ]

    def test_the_reader_of_chats_understands_what_is_made(self):
        request = parse_chat(converted(user(text("a")), assistant(text("b"))))
        assert ([message.role for message in request.messages], request.model) == (["user", "assistant"], "tiny")


class TestTools:
    def test_a_call_and_its_result(self):
        call = {"type": "tool_use", "id": "t1", "name": "f", "input": {"x": 1, "y": {"z": "ä"}}}
        asked, answered = told(assistant(text("a"), call), user(result("42")))
        assert asked["content"] == "a"
        [made] = asked["tool_calls"]
        assert (made["id"], made["type"], made["function"]["name"]) == ("t1", "function", "f")
        assert json.loads(made["function"]["arguments"]) == call["input"]
        assert answered == {"role": "tool", "tool_call_id": "t1", "content": "42"}

    def test_a_call_without_anything(self):
        [asked] = told(assistant({"type": "tool_use"}))
        assert asked == {
            "role": "assistant",
            "tool_calls": [{"id": "", "type": "function", "function": {"name": "", "arguments": "{}"}}],
        }

    def test_results_come_before_what_the_user_says_and_their_pictures_behind_them(self):
        asked = user(PICTURE, text("and?"), result([text("a"), PICTURE, text("b"), PICTURE]))
        assert told(asked) == [
            {"role": "tool", "tool_call_id": "t1", "content": "a\nb"},
            {"role": "user", "content": [SEEN, SEEN]},
            {"role": "user", "content": [SEEN, text("and?")]},
        ]
        results = [f"messages[0].content[2].content[{at}].source.data" for at in (1, 3)]
        assert paths(asked) == [*results, "messages[0].content[0].source.data"]

    @pytest.mark.parametrize("nothing", [None, "", []])
    def test_a_result_of_nothing(self, nothing):
        assert told(user(result(nothing))) == [{"role": "tool", "tool_call_id": "t1", "content": ""}]

    def test_a_result_that_names_tools(self):
        named = [{"type": "tool_reference", "tool_name": "f"}, {"type": "tool_reference"}, {"type": "document"}]
        assert told(user(result(named))) == [
            {"role": "tool", "tool_call_id": "t1", "content": ""},
            {"role": "tool", "tool_call_id": "t1", "content": [{"type": "tool_reference", "name": "f"}]},
        ]

    def test_an_assistants_own_result_is_told(self):
        assert told(assistant(result("42"), result(None))) == [
            {"role": "assistant", "content": [text("Tool result: 42"), text("Tool result: ")]}
        ]

    def test_tools_get_the_shape_of_a_chat_and_a_type(self):
        tools = [
            {"name": "f", "input_schema": {"properties": {"x": {"type": "number"}}}},
            {"name": "g", "description": "d", "input_schema": {"type": "object"}, "strict": True, "cache_control": {}},
        ]
        assert chat(user(text("a")), tools=tools)["tools"] == [
            {
                "type": "function",
                "function": {
                    "name": "f",
                    "description": None,
                    "parameters": {"properties": {"x": {"type": "number"}}, "type": "object"},
                },
            },
            {
                "type": "function",
                "function": {"name": "g", "description": "d", "parameters": {"type": "object"}, "strict": True},
            },
        ]

    @pytest.mark.parametrize("choice", [None, {"type": "auto"}, {"type": "none"}, {"type": "tool", "name": "f"}])
    def test_the_choice_of_a_tool_is_not_in_the_prompt(self, choice):
        assert chat(user(text("a")), tool_choice=choice) == chat(user(text("a")))


class TestSystem:
    def test_blocks_are_joined_without_the_line_that_changes_with_every_request(self):
        system = [text("x-anthropic-billing-header: 1"), text("a"), text("b"), text("")]
        assert told(user(text("c")), system=system)[0] == {"role": "system", "content": "ab"}
        assert told(user(text("c")), system="a")[0] == {"role": "system", "content": "a"}

    @pytest.mark.parametrize("nothing", ["", [], None, [text("x-anthropic-billing-header")]])
    def test_no_system_prompt(self, nothing):
        assert [message["role"] for message in told(user(text("c")), system=nothing)] == ["user"]

    def test_in_between_it_stays_where_the_template_takes_it_there(self):
        messages = [user(text("a")), {"role": "system", "content": "b"}, user(text("c"))]
        assert [message["content"] for message in told(*messages, system="s")] == ["s", "a", "b", "c"]

    def test_and_goes_to_the_head_where_the_template_does_not(self):
        messages = [user(text("a")), {"role": "system", "content": [text("b")]}, user(text("c"))]
        assert [m["content"] for m in told(*messages, system="s", rendering=Rendering())] == ["sb", "a", "c"]

    @pytest.mark.parametrize("content", ["x-anthropic-billing-header: 1", [text("")], ""])
    @pytest.mark.parametrize("rendering", [IN_PLACE, Rendering()])
    def test_one_without_words_is_none(self, content, rendering):
        said = told(user(text("a")), {"role": "system", "content": content}, rendering=rendering)
        assert [message["role"] for message in said] == ["user"]


class TestThinking:
    def test_effort_is_what_the_output_config_says(self):
        assert chat(user(text("a")), output_config={"effort": "high"})["reasoning_effort"] == "high"
        assert "reasoning_effort" not in chat(user(text("a")), output_config={}, thinking={"type": "adaptive"})

    def test_thinking_that_is_switched_off_has_the_effort_that_does_so(self):
        off = {"thinking": {"type": "disabled"}, "output_config": {"effort": "high"}}
        assert chat(user(text("a")), **off)["reasoning_effort"] == "low"

    def test_words_for_the_template_are_passed_on(self):
        assert chat(user(text("a")), chat_template_kwargs={"mood": [1]})["chat_template_kwargs"] == {"mood": [1]}


def test_a_picture_by_address_is_one_to_be_fetched():
    body = encoded(user({"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}))
    assert [image.is_remote for image in parse_message_tokens(body).images] == [True]


class TestRefused:
    @pytest.mark.parametrize(
        ("block", "path", "code"),
        [
            ({"type": "document"}, "messages[0].content[0]", Code.INVALID_CONTENT_PART),
            ({}, "messages[0].content[0]", Code.INVALID_CONTENT_PART),
            ({"type": ["text"]}, "messages[0].content[0]", Code.INVALID_CONTENT_PART),
            ({"type": "tool_addition", "tool": {}}, "messages[0].content[0]", Code.INVALID_CONTENT_PART),
            ({"type": "image"}, "messages[0].content[0]", Code.INVALID_CONTENT_PART),
            ({"type": "image", "source": {}}, "messages[0].content[0].source.data", Code.INVALID_CONTENT_PART),
            (
                {"type": "image", "source": {"type": "file", "file_id": "x"}},
                "messages[0].content[0].source.data",
                Code.INVALID_CONTENT_PART,
            ),
            ({"type": "image", "source": {"data": 5}}, "messages[0].content[0].source.data", Code.INVALID_CONTENT_PART),
            (
                {"type": "image", "source": {"data": "aaaa", "media_type": "image/png;base64,x"}},
                "messages[0].content[0].source.media_type",
                Code.UNSUPPORTED_IMAGE_MEDIA_TYPE,
            ),
            (
                {"type": "image", "source": {"data": "aaaa", "media_type": None}},
                "messages[0].content[0].source.media_type",
                Code.UNSUPPORTED_IMAGE_MEDIA_TYPE,
            ),
            (
                {"type": "image", "source": {"type": "url"}},
                "messages[0].content[0].source.url",
                Code.INVALID_CONTENT_PART,
            ),
            (
                result([{"type": "image", "source": {"type": "url", "url": "file:///etc/passwd"}}]),
                "messages[0].content[0].content[0].source.url",
                Code.INVALID_IMAGE_URL,
            ),
        ],
    )
    def test_a_block_with_its_path(self, block, path, code):
        with pytest.raises(GatewayError) as refused:
            parse_message_tokens(encoded(user(block)))
        assert (refused.value.param, refused.value.code) == (path, code)
        assert path in refused.value.message

    def test_a_picture_in_an_assistants_result(self):
        with pytest.raises(GatewayError, match="must be text") as refused:
            converted(assistant(result([PICTURE])))
        assert refused.value.param == "messages[0].content[0]"

    @pytest.mark.parametrize(
        ("fields", "path"),
        [
            ({"model": ""}, "model"),
            ({"model": None}, "model"),
            ({"messages": "hi"}, "messages"),
            ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
            ({"messages": [{"content": "x"}]}, "messages[0].role"),
            ({"messages": [{"role": "user"}]}, "messages[0]"),
            ({"tools": [{"name": "f"}]}, "tools[0]"),
            ({"tools": [{"name": "f", "input_schema": []}]}, "tools[0].input_schema"),
            ({"tool_choice": {"type": "required"}}, "tool_choice.type"),
            ({"tool_choice": {"type": "tool"}}, "tool_choice.name"),
            ({"thinking": {}}, "thinking.type"),
            ({"output_config": {"effort": "none"}}, "output_config.effort"),
        ],
    )
    def test_what_has_another_shape(self, fields, path):
        with pytest.raises(GatewayError) as refused:
            parse_message_tokens(encoded(**fields))
        assert (refused.value.param or "").replace("...", "0") == path
        assert refused.value.status == 400

    def test_what_is_no_json(self):
        with pytest.raises(GatewayError) as refused:
            chat_of_messages(b"{", IN_PLACE)
        assert refused.value.code is Code.INVALID_JSON


WORDS = st.none() | st.booleans() | st.integers(-1, 9) | st.text(max_size=6)
SOURCES = st.fixed_dictionaries(
    {}, optional={"type": st.sampled_from(["base64", "url", "file"]), "data": WORDS, "url": WORDS, "media_type": WORDS}
)
KINDS = st.sampled_from(
    ["text", "image", "thinking", "redacted_thinking", "tool_use", "tool_result", "tool_reference", "document"]
)


def blocks(inner):
    fields = {"text": WORDS, "thinking": WORDS, "name": WORDS, "id": WORDS, "tool_use_id": WORDS, "source": SOURCES}
    more = {"input": st.dictionaries(st.text(max_size=3), WORDS, max_size=2), "content": inner}
    return st.lists(st.fixed_dictionaries({"type": KINDS}, optional=fields | more), max_size=3)


CONTENTS = st.text(max_size=6) | blocks(st.text(max_size=6) | blocks(WORDS))
TURNS = st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant", "system"]), "content": CONTENTS})


@given(st.lists(TURNS, max_size=4), st.none() | CONTENTS, st.booleans())
def test_whatever_comes_is_refused_as_the_clients_fault_or_makes_a_chat(turns, system, merges):
    """And the chat has as many pictures as were found in the messages."""
    try:
        found = len(parse_message_tokens(encoded(*turns, system=system)).images)
        said = converted(*turns, system=system, rendering=Rendering(merges, "none"))
    except GatewayError as error:
        refused = error.status
    else:
        refused = None
        assert said.count(b'"image_url":{') == found
    assert refused in {None, 400}
