"""Bodies of /v1/responses: what each item is in the chat that vLLM makes, and every way to hide an image there."""

import json

import pytest

from gateway.domain.errors import Code, GatewayError
from gateway.domain.request import FieldUse, MessageOutline
from gateway.wire.dialects.responses import RESPONSES, parse_responses
from gateway.wire.max_tokens import cap_answer
from gateway.wire.splice import splice

URL = "data:image/png;base64,AAAA"
IMAGE = {"type": "input_image", "image_url": URL}
TEXT = {"type": "input_text", "text": "Hm?"}
USER = {"role": "user", "content": "Hm?"}
CALL = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}
THOUGHT = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}


def parsed(request_input="Hm?", **fields):
    return parse_responses(json.dumps({"input": request_input} | fields).encode())


def refusal(request_input="Hm?", **fields):
    with pytest.raises(GatewayError) as caught:
        parsed(request_input, **fields)
    assert caught.value.status == 400
    return caught.value


def roles(request):
    return [message.role for message in request.messages]


class TestFields:
    def test_all_that_admission_needs(self):
        request = parsed(
            model="m",
            stream=True,
            max_output_tokens=7,
            priority=-1,
            tools=[{}],
            text={"format": {"type": "text"}},
            truncation="auto",
            previous_response_id="resp_1",
            background=True,
        )
        assert (request.model, request.stream, request.max_tokens, request.n) == ("m", True, 7, 1)
        assert request.extra_text_bytes == len('[{}]{"format": {"type": "text"}}')
        assert (request.truncate_prompt_tokens, request.include_usage) == (-1, True)
        assert (request.is_stored, request.is_background, request.previous_id) == (True, True, "resp_1")

    def test_what_is_left_out(self):
        request = parsed()
        assert (request.truncate_prompt_tokens, request.is_background, request.previous_id) == (None, False, None)
        assert request.messages == (MessageOutline("user", 3),)

    @pytest.mark.parametrize(("store", "is_stored"), [(None, True), (True, True), (False, False)])
    def test_answers_are_stored_unless_the_client_does_not_want_it(self, store, is_stored):
        assert parsed(store=store).is_stored is is_stored

    def test_null_truncates_as_auto_does(self):
        assert parsed(truncation=None).truncate_prompt_tokens == -1

    def test_instructions_are_a_system_message(self):
        request = parsed([USER], instructions="Be brief.")
        assert roles(request) == ["system", "user"]
        assert request.has_system

    def test_empty_instructions_are_none(self):
        assert roles(parsed(instructions="")) == ["user"]

    def test_its_format_is_a_schema_like_a_chats(self):
        text = {"format": {"type": "json_schema", "schema": {}}}
        assert parsed(text=text).fields == (FieldUse("response_format", len(json.dumps(text)), asked_by="text"),)

    def test_a_name_for_the_answer_is_refused(self):
        assert refusal(request_id="resp_1").param == "request_id"

    def test_ids_in_place_of_the_prompt_are_refused(self):
        assert refusal(kv_transfer_params={"prompt_token_ids": [1]}).param == "kv_transfer_params.prompt_token_ids"

    @pytest.mark.parametrize("request_input", [[], None, 5, {}, [5], ["hi"]])
    def test_an_input_that_is_none_is_refused(self, request_input):
        assert refusal(request_input).code is Code.INVALID_REQUEST

    def test_many_images_are_told_by_the_name_of_the_input(self):
        assert refusal([{"role": "user", "content": [IMAGE] * 4097}]).param == "input"


class TestItems:
    def test_an_assistants_thoughts_words_and_calls_are_one_message(self):
        said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I see"}]}
        custom = {"type": "custom_tool_call", "call_id": "d", "name": "g", "input": "ab"}
        request = parsed([USER, THOUGHT, said, CALL, custom, {"role": "assistant", "content": "and"}])
        assert roles(request) == ["user", "assistant", "assistant"]
        assert request.messages[1] == MessageOutline("assistant", 2 + 5 + 6 + 3, (), 16)

    def test_of_an_assistants_parts_all_may_reach_the_model(self):
        parts = [{"type": "output_text", "text": "ab"}, {"type": "output_text", "text": "seldom"}]
        outline = parsed([USER, {"role": "assistant", "content": parts}]).messages[1]
        assert (outline.text_bytes, outline.uncertain_text_bytes) == (8, 8)

    @pytest.mark.parametrize(
        ("item", "text_bytes"),
        [
            ({"role": "assistant", "content": []}, 0),
            ({"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}, 2),
            ({"type": "reasoning", "summary": [{"type": "summary_text", "text": "short"}]}, 5),
            ({"type": "reasoning", "summary": []}, 0),
        ],
    )
    def test_what_an_assistant_may_have_said(self, item, text_bytes):
        assert parsed([USER, item]).messages[1].text_bytes == text_bytes

    def test_what_a_tool_gave_may_be_text_or_parts(self):
        outputs = [
            {"type": "function_call_output", "call_id": "c", "output": "ab"},
            {"type": "custom_tool_call_output", "call_id": "c", "output": [TEXT, IMAGE]},
        ]
        request = parsed([CALL, *outputs])
        assert roles(request) == ["assistant", "tool", "tool"]
        assert [image.param for image in request.images] == ["input[2].output[1].image_url"]

    @pytest.mark.parametrize("role", ["user", "system", "developer"])
    @pytest.mark.parametrize("kind", [{}, {"type": "message"}])
    def test_images_in_messages_of_any_role_but_the_assistants(self, role, kind):
        request = parsed([kind | {"role": role, "content": [TEXT, IMAGE]}])
        assert request.messages[0].images == (0,)
        assert request.images[0].part == ("input", 0, "content", 1)

    def test_a_name_and_a_developers_tools_are_text_too(self):
        request = parsed([{"role": "developer", "content": "a", "name": "bob", "tools": [1]}])
        assert request.messages == (MessageOutline("developer", 1 + 3 + 3, (), 6),)


HIDDEN = {
    "image in a text by its uuid": {"role": "user", "content": [TEXT | {"image_url": URL, "uuid": "u"}]},
    "image known by its uuid": {"role": "user", "content": [{"type": "input_image", "image_url": None, "uuid": "u"}]},
    "image without a url": {"role": "user", "content": [{"type": "input_image", "file_id": "f"}]},
    "url that is an object": {"role": "user", "content": [{"type": "input_image", "image_url": {"url": URL}}]},
    "part of a chat": {"role": "user", "content": [{"type": "image_url", "image_url": {"url": URL}}]},
    "part without a type": {"role": "user", "content": [{"image_url": URL}]},
    "part whose type is none": {"role": "user", "content": [{"type": ["input_image"], "image_url": URL}]},
    "video": {"role": "user", "content": [{"type": "video_url", "video_url": {"url": URL}}]},
    "audio": {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "AA"}}]},
    "embeddings": {"role": "user", "content": [{"type": "image_embeds", "image_embeds": "AA"}]},
    "file": {"role": "user", "content": [{"type": "input_file", "file_data": "data:application/pdf;base64,AA"}]},
    "file of a tool": {"type": "function_call_output", "output": [{"type": "input_file", "file_url": "http://a"}]},
    "no output": {"type": "function_call_output", "call_id": "c"},
    "another type with a role": {"type": "file_search_call", "role": "user", "content": [TEXT]},
    "a type of its own with a role": {"type": "nope", "role": "user", "content": "a"},
    "a type that is null": {"type": None, "role": "user", "content": "a"},
    "tools of a developer": {"type": "additional_tools", "role": "developer", "tools": []},
    "reference": {"type": "item_reference", "id": "msg_1"},
    "screenshot": {"type": "computer_call_output", "output": {"type": "computer_screenshot", "image_url": URL}},
    "generated image": {"type": "image_generation_call", "id": "i", "result": "AAAA"},
    "call of a server's own": {"type": "mcp_call", "id": "i", "arguments": "{}", "output": "o"},
    "image of an assistant": {"role": "assistant", "content": [IMAGE]},
    "image behind an assistant's text": {"role": "assistant", "content": [TEXT, IMAGE]},
    "image in an assistant's text": {"role": "assistant", "content": [TEXT | {"image_url": URL, "uuid": "u"}]},
    "media in thoughts that vLLM takes for a message": THOUGHT
    | {"role": None, "summary": [{"type": "odd"}], "content": [{"type": "reasoning_text", "text": "a", "uuid": "u"}]},
    "a call with a role": CALL | {"role": "user", "content": [IMAGE]},
    "media in thoughts": THOUGHT | {"content": [{"type": "reasoning_text", "text": "a", "uuid": "u"}]},
    "media in a summary": THOUGHT | {"summary": [{"type": "summary_text", "text": "a", "uuid": "u"}]},
    "media behind an assistant's text": {
        "role": "assistant",
        "content": [TEXT, {"type": "output_text", "text": "a", "uuid": "u", "video_url": URL}],
    },
    "content that is an object": {"role": "user", "content": {"type": "input_image"}},
    "an assistant's that is an object": {"role": "assistant", "content": {"type": "input_image"}},
    "no content": {"role": "user"},
    "a role that is none": {"role": "critic", "content": "a"},
    "a role that is a tool's": {"role": "tool", "content": [IMAGE]},
    "no role": {"content": "a"},
    "text that is none": {"role": "user", "content": [{"type": "input_text", "text": 5}]},
}


@pytest.mark.parametrize("how", HIDDEN)
def test_what_is_not_sure_to_be_read_alike_is_refused_by_its_path(how):
    error = refusal([USER, HIDDEN[how]])
    assert error.code in {Code.INVALID_CONTENT_PART, Code.INVALID_REQUEST}
    assert error.param.startswith("input[1]")


class TestTheRecord:
    @pytest.mark.parametrize(
        ("items", "opened"),
        [
            ([USER, THOUGHT, USER], [USER]),
            ([USER, CALL], [USER]),
            ([THOUGHT, USER], [THOUGHT]),
            ([USER, USER], [USER, USER]),
            ("Hm?", "Hm?"),
        ],
    )
    def test_a_conversation_is_known_by_what_came_before_its_first_answer(self, items, opened):
        body = json.dumps({"input": items}).encode()
        span = RESPONSES.opening(body, parse_responses(body))
        expected = json.dumps(opened) if isinstance(opened, str) else json.dumps(opened)[1:-1]
        assert body[span.start : span.end].decode() == expected

    def test_its_answer_is_bounded_where_vllm_looks(self):
        body = json.dumps({"input": "Hm?", "max_output_tokens": 900, "min_tokens": 500}).encode()
        cap = cap_answer(body, 900, 100, keys=RESPONSES.bound_keys, least_of=RESPONSES.least_bound)
        assert json.loads(b"".join(splice(body, [cap.splice])))["max_output_tokens"] == 100
