import contextlib
import json
import tracemalloc

import pytest

from gateway.domain.errors import Code, GatewayError
from gateway.domain.priority import Priority
from gateway.domain.request import ImageRef, MessageOutline, Span
from gateway.wire.chat import parse_chat
from gateway.wire.data_url import read_data_url

URL = "data:image/png;base64,AAAA"
IMAGE = {"type": "image_url", "image_url": {"url": URL}}


def encode(*messages, **fields):
    return json.dumps({"model": "m", "messages": list(messages), **fields}, ensure_ascii=False).encode()


def user(*parts):
    return {"role": "user", "content": list(parts)}


def refusal(body):
    with pytest.raises(GatewayError) as refused:
        parse_chat(body)
    assert refused.value.status == 400
    return refused.value


def url_of(body, ref):
    return json.loads(body[slice(*ref.url)])


def test_a_plain_text_request():
    request = parse_chat(encode({"role": "user", "content": "grüß"}))

    assert request.model == "m"
    assert request.messages == (MessageOutline("user", 6),)
    assert (request.stream, request.include_usage, request.max_tokens, request.n) == (False, False, None, 1)
    assert (request.prompts, request.prompt_token_ids, request.wants_output, request.images) == (1, 0, True, ())


def test_fields_that_decide_the_cost():
    request = parse_chat(
        encode(user("hi"), stream=True, stream_options={"include_usage": True}, max_tokens=5, n=3, temperature=0)
    )
    assert (request.stream, request.include_usage, request.max_tokens, request.n) == (True, True, 5, 3)


def test_no_more_answers_than_vllm_gives():
    assert parse_chat(encode(user("hi"), n=16_384)).n == 16_384
    for n in (16_385, 10**15):
        error = refusal(encode(user("hi"), n=n))
        assert (error.code, error.param) == (Code.INVALID_REQUEST, "n")
        assert error.message == (
            f"`n` asks for {n} answers, and at most 16384 are given to one request. Ask for fewer."
        )


def test_no_more_images_than_a_body_of_real_ones_could_hold():
    assert len(parse_chat(encode(user(*[IMAGE] * 4096))).images) == 4096
    error = refusal(encode(user(*[IMAGE] * 4000), user(*[IMAGE] * 97)))
    assert (error.code, error.param) == (Code.TOO_MANY_IMAGES, "messages")
    assert "more than 4096 images" in error.message


def test_max_completion_tokens_wins():
    assert parse_chat(encode(user("hi"), max_tokens=5, max_completion_tokens=7)).max_tokens == 7
    assert parse_chat(encode(user("hi"), max_tokens=5, max_completion_tokens=None)).max_tokens == 5


def test_nulls_mean_defaults():
    request = parse_chat(encode(user("hi"), stream=None, stream_options=None, n=None, max_tokens=None, tools=None))
    assert (request.stream, request.include_usage, request.max_tokens, request.n) == (False, False, None, 1)
    assert request.extra_text_bytes == 0


@pytest.mark.parametrize("make_body", [bytes, bytearray], ids=["bytes", "bytearray"])
def test_an_image_and_where_it_stands(make_body):
    body = make_body(encode({"role": "system", "content": "s"}, user({"type": "text", "text": "What?"}, IMAGE)))

    request = parse_chat(body)

    start = body.index(b'"data:')
    assert request.images == (
        ImageRef(
            0, ("messages", 1, "content", 1), "messages[1].content[1].image_url.url", Span(start, start + len(URL) + 2)
        ),
    )
    assert request.messages == (MessageOutline("system", 1), MessageOutline("user", 5, (0,)))


def test_ordinals_follow_the_order_in_which_the_model_sees_the_images():
    roles = ("system", "user", "assistant", "tool", "developer", "anything")
    body = encode(*({"role": role, "content": [IMAGE, "between", IMAGE]} for role in roles))

    request = parse_chat(body)

    assert [ref.ordinal for ref in request.images] == list(range(12))
    assert [ref.part[1::2] for ref in request.images[:3]] == [(0, 0), (0, 2), (1, 0)]
    assert [message.images for message in request.messages[:2]] == [(0, 1), (2, 3)]
    assert [url_of(body, ref) for ref in request.images] == [URL] * 12


def test_images_as_bare_strings():
    body = encode(
        user({"type": "image_url", "image_url": URL, "detail": "low"}, {"image_url": f"{URL}BBBB", "uuid": "u"})
    )

    first, second = parse_chat(body).images

    assert (url_of(body, first), url_of(body, second)) == (URL, f"{URL}BBBB")
    assert (first.is_bare_string, first.has_uuid, first.detail) == (True, False, "low")
    assert (second.is_bare_string, second.has_uuid, second.detail) == (False, True, None)
    assert first.param == "messages[0].content[0].image_url"


def test_all_text_that_a_template_renders_counts():
    request = parse_chat(
        encode(
            {"role": "system", "content": ["bare", {"type": "input_text", "text": "1234"}], "name": "ann"},
            {
                "role": "assistant",
                "content": None,
                "reasoning": "think",
                "reasoning_content": "not rendered beside the newer field",
                "tool_calls": [
                    {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}},
                    {"id": "d", "type": "function", "function": {"name": "gg", "arguments": None}},
                    {"id": "e", "function": None},
                ],
            },
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}], "reasoning_content": "old"},
            {"role": "developer", "content": "x", "tools": [{"a": 1}]},
            {"role": "user", "content": "x", "tools": [{"a": 1}]},
            {"role": "user"},
        )
    )
    assert [message.text_bytes for message in request.messages] == [4 + 4 + 3, 5 + 1 + 7 + 2, 2 + 3, 1 + 10, 1, 0]
    assert [message.uncertain_text_bytes for message in request.messages] == [3, 5 + 1 + 7 + 2, 2 + 3, 10, 0, 0]


def test_only_what_every_template_prints_is_certain():
    request = parse_chat(
        encode(
            user("question"),
            {"role": "assistant", "content": "<think>long</think>", "reasoning": "long"},
            {"role": "tool", "content": "found", "name": "search"},
            tools=[{"a": 1}],
            response_format={"type": "text"},
        )
    )
    assert request.text_bytes - request.uncertain_text_bytes == len("question") + len("found")


@pytest.mark.parametrize(("sent", "expected"), [(None, None), (1000, 1000), (0, 0), (-1, -1)])
def test_truncation(sent, expected):
    assert parse_chat(encode(user("a"), truncate_prompt_tokens=sent)).truncate_prompt_tokens == expected


@pytest.mark.parametrize(
    ("fields", "expected"), [({}, None), ({"priority": -3}, Priority.INTERACTIVE), ({"priority": 0}, Priority.DEFAULT)]
)
def test_what_the_body_says_of_its_priority(fields, expected):
    assert parse_chat(encode(user("a"), **fields)).priority is expected


def test_text_outside_the_messages_counts_as_it_was_sent():
    tools = [{"type": "function", "function": {"name": "f"}}]
    choice = {"type": "function", "function": {"name": "f"}}
    fields = {
        "tools": tools,
        "tool_choice": choice,
        "response_format": {"type": "text"},
        "structured_outputs": {"regex": "a+"},
        "documents": [{"text": "long"}],
        "chat_template_kwargs": {"thinking": True},
    }
    request = parse_chat(encode(user("hi"), **fields))
    assert request.extra_text_bytes == sum(len(json.dumps(value)) for value in fields.values())
    assert request.text_bytes == request.extra_text_bytes + 2


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"kv_transfer_params": {"prompt_token_ids": [1, 2]}}, "kv_transfer_params.prompt_token_ids"),
        ({"max_tokens": "16"}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"truncate_prompt_tokens": -2}, "truncate_prompt_tokens"),
        ({"max_tokens": "16", "max_completion_tokens": 4}, "max_tokens"),
        ({"n": 0}, "n"),
        ({"n": 1.5}, "n"),
        ({"stream": "true"}, "stream"),
        ({"stream_options": {"include_usage": "yes"}}, "stream_options.include_usage"),
        ({"stream_options": 5}, "stream_options"),
        ({"model": 5}, "model"),
    ],
)
def test_fields_that_hide_cost_or_cannot_be_read_are_refused_by_name(fields, param):
    error = refusal(encode(user(IMAGE), **fields))
    assert (error.code, error.param) == (Code.INVALID_REQUEST, param)
    assert param in error.message


HAVE_RULES = {
    "mm_processor_kwargs": {"max_pixels": 1},
    "media_io_kwargs": {"image": {"image_mode": None}},
    "chat_template": "{{ messages }}",
    "kv_transfer_params": {"a": 1},
    "use_beam_search": "on",
    "prompt_logprobs": 0,
}


@pytest.mark.parametrize("name", HAVE_RULES)
def test_fields_with_rules_are_left_to_those(name):
    request = parse_chat(encode(user(IMAGE), **{name: HAVE_RULES[name]}, cache_salt="s"))
    assert [use.name for use in request.fields] == [name]
    assert request.salt.text == "s"


def test_empty_overrides_change_nothing_and_pass():
    empty = {"mm_processor_kwargs": {}, "media_io_kwargs": None, "kv_transfer_params": {}}
    assert parse_chat(encode(user("hi"), **empty)) == parse_chat(encode(user("hi")))


@pytest.mark.parametrize("value", [None, "", {}, {"url": None}, {"url": ""}])
def test_an_image_that_is_only_named(value):
    body = encode(user({"type": "image_url", "image_url": value, "uuid": "u"}, IMAGE))
    named, sent = parse_chat(body).images
    assert (named.uuid, named.is_named_only, named.is_bare_string, named.is_remote) == ("u", True, False, False)
    assert body[named.url.start : named.url.end] == json.dumps(value).encode()
    assert (sent.uuid, sent.is_named_only) == (None, False)


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        (b"", Code.INVALID_JSON, None),
        (b"model=vlm&messages=hi", Code.INVALID_JSON, None),
        (b"[1]", Code.INVALID_REQUEST, None),
        (b'{"model": "m"}', Code.INVALID_REQUEST, None),
        (b'{"messages": "hi"}', Code.INVALID_REQUEST, "messages"),
        (b'{"messages": []}', Code.INVALID_REQUEST, "messages"),
        (b'{"messages": ["hi"]}', Code.INVALID_REQUEST, "messages[0]"),
        (b'{"messages": [{"content": "hi"}]}', Code.INVALID_REQUEST, "messages[0].role"),
        (b'{"messages": [{"role": "user", "content": {"text": "x"}}]}', Code.INVALID_REQUEST, "messages[0].content"),
        (b'{"messages": [{"role": "user", "content": ["a", 5]}]}', Code.INVALID_CONTENT_PART, "messages[0].content[1]"),
        (
            b'{"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": 5}]}]}',
            Code.INVALID_CONTENT_PART,
            "messages[0].content[0].image_url",
        ),
    ],
)
def test_malformed_bodies_are_refused_with_the_path(body, code, param):
    error = refusal(body)
    assert (error.code, error.param) == (code, param)
    assert param is None or param in error.message


@pytest.mark.parametrize(
    ("url", "hint"),
    [
        ("file:///etc/passwd", "no other scheme"),
        ("ftp://example.com/a.png", "no other scheme"),
        ("AAAA", "no other scheme"),
        ("", "no other scheme"),
    ],
)
@pytest.mark.parametrize("is_bare", [False, True])
def test_other_schemes_are_refused(url, hint, is_bare):
    error = refusal(encode(user({"type": "image_url", "image_url": url if is_bare else {"url": url}})))
    assert error.code is Code.INVALID_IMAGE_URL
    assert error.param == "messages[0].content[0].image_url" + ("" if is_bare else ".url")
    assert hint in error.message
    assert error.param in error.message


@pytest.mark.parametrize("url", ["https://example.com/a.png", "  HTTP://example.com/a.png", "h\u0074tp://a.example/b"])
@pytest.mark.parametrize("is_bare", [False, True])
def test_addresses_are_images_to_be_fetched(url, is_bare):
    request = parse_chat(encode(user({"type": "image_url", "image_url": url if is_bare else {"url": url}})))
    assert [image.is_remote for image in request.images] == [True]
    assert request.has_remote_images


def test_blanks_and_escapes_before_the_scheme_do_not_hide_a_data_url():
    body = b'{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"\\t d\\u0061ta:,"}}]}]}'
    request = parse_chat(body)
    assert [image.is_remote for image in request.images] == [False]
    assert not request.has_remote_images


def test_no_picture_is_copied():
    picture_bytes = 4_000_000
    body = bytearray(
        encode(user({"type": "text", "text": "a"}, {**IMAGE, "image_url": {"url": URL + "A" * picture_bytes}}))
    )
    parse_chat(body)

    tracemalloc.start()
    request = parse_chat(body)
    data_url = read_data_url(body, request.images[0])
    size, first = data_url.file.file_bytes, data_url.file.prefix(768)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert (size, first) == (3 + picture_bytes * 3 // 4, b"\0" * 768)
    assert peak_bytes < 50_000


ANY_FIELDS = [
    '{"messages":[{"role":"user","content":"a"}],"FIELD":@}'.replace("FIELD", field)
    for field in (
        "model",
        "stream",
        "max_tokens",
        "max_completion_tokens",
        "n",
        "use_beam_search",
        "mm_processor_kwargs",
        "media_io_kwargs",
        "chat_template",
    )
] + [
    '{"messages":[{"role":"user","content":"a"}],"stream_options":{"include_usage":@}}',
    '{"messages":[{"role":@,"content":"a"}]}',
    '{"messages":[{"role":"user","name":@}]}',
    '{"messages":[{"role":"user","reasoning":@}]}',
    '{"messages":[{"role":"user","reasoning_content":@}]}',
    '{"messages":[{"role":"user","tool_calls":[{"function":{"name":@}}]}]}',
    '{"messages":[{"role":"user","tool_calls":[{"function":{"arguments":@}}]}]}',
    *(
        '{"messages":[{"role":"user","content":[{"type":"text","FIELD":@}]}]}'.replace("FIELD", field)
        for field in ("type", "uuid", "text", "detail", "refusal", "thinking", "name")
    ),
    '{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:,","detail":@}}]}]}',
]


@pytest.mark.parametrize("template", ANY_FIELDS)
def test_no_depth_of_a_field_is_a_fault_of_the_gateway(template):
    for depth in range(850, 1_101):
        body = template.replace("@", "[" * depth + "]" * depth).encode()
        with contextlib.suppress(GatewayError):
            parse_chat(body)
