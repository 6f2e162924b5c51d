import pytest

from gateway.models.conversation import ContentFormat, UncountableError, convert_messages

PICTURE = {"type": "image_url", "image_url": {"url": "data:..."}}
PLACEHOLDER = "<start><pad><end>"


def text(words, **extra):
    return {"type": "text", "text": words} | extra


def converted(*messages, form=ContentFormat.OPENAI, has_developer_role=True, placeholder=PLACEHOLDER):
    return convert_messages(list(messages), form, placeholder, has_developer_role=has_developer_role)


def content(*parts, form=ContentFormat.OPENAI, role="user"):
    given = parts[0] if len(parts) == 1 else list(parts)
    [message] = converted({"role": role, "content": given}, form=form)
    return message["content"]


def as_text(*parts):
    return content(list(parts), form=ContentFormat.STRING)


def test_text_becomes_a_part_or_stays_text():
    assert content("hi") == [text("hi")]
    assert content("hi", form=ContentFormat.STRING) == "hi"
    assert content(None) == []
    assert content(None, form=ContentFormat.STRING) == ""


@pytest.mark.parametrize(
    ("part", "seen"),
    [
        ("bare", text("bare")),
        (text("a"), text("a")),
        ({"type": "input_text", "text": "a"}, text("a")),
        ({"type": "output_text", "text": "a"}, text("a")),
        ({"type": "refusal", "refusal": "no"}, text("no")),
        ({"type": "thinking", "thinking": "hm", "closed": True}, text("hm")),
        (text("a", cache_control={"type": "ephemeral"}), text("a", cache_control={"type": "ephemeral"})),
        ({"type": "tool_reference", "name": "f"}, {"type": "tool_reference", "name": "f"}),
        (PICTURE, {"type": "image"}),
        ({"image_url": "data:..."}, {"type": "image"}),
        ({"type": "input_image", "image_url": "data:...", "detail": "low"}, {"type": "image", "detail": "low"}),
        ({"type": "text", "text": "a", "uuid": "u", "image_url": None}, {"type": "image"}),
        ({"uuid": "u", "image_embeds": ""}, {"type": "image"}),
    ],
)
def test_parts_as_the_template_sees_them(part, seen):
    assert content([part]) == [seen]


def test_text_and_refusal_without_content_are_skipped():
    assert content([{"type": "text"}, {"type": "refusal", "refusal": None}, text("a")]) == [text("a")]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "thinking"},
        {"type": "text", "text": 5},
        {"type": "video_url", "video_url": {"url": ""}},
        {"type": "tool_reference"},
        {"text": "no type"},
        {"type": 5},
        {"type": ["text"]},
        7,
    ],
)
def test_other_parts_are_not_counted(part):
    with pytest.raises(UncountableError):
        content([part])


def test_as_text_parts_are_lines_and_pictures_come_first():
    assert as_text(text("a"), PICTURE, text(""), text("b"), PICTURE) == f"{PLACEHOLDER}\n{PLACEHOLDER}\na\nb"
    assert as_text(PICTURE) == PLACEHOLDER
    assert as_text(text("a"), {"type": "tool_reference", "name": "f"}) == "a\nf"


def test_a_placeholder_typed_out_takes_its_picture():
    assert as_text(text(f"see {PLACEHOLDER}"), PICTURE) == f"see {PLACEHOLDER}"
    with pytest.raises(UncountableError, match="more placeholders than"):
        as_text(text(PLACEHOLDER * 2), PICTURE)


def test_names_and_tasks_stay():
    [message] = converted({"role": "user", "content": "a", "name": "bob", "task": "t", "other": 1})
    assert message == {"role": "user", "content": [text("a")], "name": "bob", "task": "t"}
    [message] = converted({"role": "user", "content": "a", "name": 5})
    assert "name" not in message


@pytest.mark.parametrize("key", ["reasoning", "reasoning_content"])
def test_reasoning_has_two_names(key):
    [message] = converted({"role": "assistant", "content": "a", key: "hm"})
    assert (message["reasoning"], message["reasoning_content"]) == ("hm", "hm")


@pytest.mark.parametrize(
    ("arguments", "parsed"),
    [
        ('{"a": 1.50}', {"a": 1.5}),
        ({"a": 1}, {"a": 1}),
        ("", {}),
        ("[" * 100_000, {}),
        (None, {}),
        ("broken", {}),
        ("[1]", {}),
        ([1], {}),
    ],
)
def test_arguments_of_tool_calls_become_objects(arguments, parsed):
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    [message] = converted({"role": "assistant", "content": None, "tool_calls": [call]})
    assert message["tool_calls"] == [{"id": "c", "type": "function", "function": {"name": "f", "arguments": parsed}}]


@pytest.mark.parametrize("calls", [None, []])
def test_no_tool_calls_are_no_key(calls):
    assert converted({"role": "assistant", "content": "a", "tool_calls": calls}) == [
        {"role": "assistant", "content": [text("a")]}
    ]


@pytest.mark.parametrize("call", ["f", {"type": "custom", "function": {}}, {"type": "function", "function": "f"}])
def test_calls_of_another_kind_are_not_counted(call):
    with pytest.raises(UncountableError, match="no function call"):
        converted({"role": "assistant", "tool_calls": [call]})


def test_answers_of_tools_are_text_unless_they_hold_more():
    answer = {"role": "tool", "tool_call_id": "c", "content": [text("a"), text("b")]}
    assert converted(answer) == [{"role": "tool", "content": "a\nb", "tool_call_id": "c"}]
    assert content([text("a"), PICTURE], role="tool") == [text("a"), {"type": "image"}]
    assert content([], role="tool") == ""


def test_one_clients_billing_line_is_left_out_of_system_text():
    line = "x-anthropic-billing-header: cch=1"
    assert content([text(line), text(f"{line}\nbe kind"), text("and brief")], role="system") == [
        text("be kind"),
        text("and brief"),
    ]
    assert content([PICTURE, text("a")], role="system") == [{"type": "image"}, text("a")]
    assert content(line) == [text(line)]


def test_developer_messages_keep_their_tools_where_the_template_knows_them():
    developer = {"role": "developer", "content": "be kind", "tools": [1]}
    assert converted(developer) == [{"role": "developer", "content": [text("be kind")], "tools": [1]}]


def test_otherwise_they_are_one_system_message_at_the_front():
    developer = {"role": "developer", "content": "be kind", "tools": [1]}
    user = {"role": "user", "content": "hi"}
    seen_user = {"role": "user", "content": [text("hi")]}
    assert converted(developer, user, has_developer_role=False) == [
        {"role": "system", "content": [text("be kind")]},
        seen_user,
    ]
    system = {"role": "system", "content": ["a", PICTURE, "b"]}
    assert converted(system, user, developer, {**developer, "content": ""}, has_developer_role=False) == [
        {"role": "system", "content": "a\nb\n\nbe kind"},
        seen_user,
    ]
    [merged, _] = converted(user, developer, form=ContentFormat.STRING, has_developer_role=False)
    assert merged == {"role": "system", "content": "be kind"}


@pytest.mark.parametrize("messages", [None, [], "hi", {}, ["hi"], [{"content": "no role"}], [{"role": 5}]])
def test_what_is_no_conversation_is_not_counted(messages):
    with pytest.raises(UncountableError):
        convert_messages(messages, ContentFormat.OPENAI, None, has_developer_role=True)


def test_content_of_another_type_is_not_counted():
    with pytest.raises(UncountableError, match="neither text nor a list"):
        content({"type": "text"})
