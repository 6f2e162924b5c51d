import json
import re

import pytest

from gateway.models.chat_template import ChatTemplate
from gateway.models.conversation import ContentFormat, UncountableError


def render(template, content="hello", *, tools=None, continues=False, **variables):
    messages = [{"role": "user", "content": content}]
    return ChatTemplate(template).render(messages, tools, variables, continue_final_message=continues)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{% for m in messages %}\n  {% if true %}\na\n  {% endif %}\n{% endfor %}\n", "a\n"),
        ("{{ tools | tojson }}", '{"a": "<é>"}'),
        ("{{ tools | tojson(indent=1) }}", '{\n "a": "<é>"\n}'),
        ("{% generation %}{{ messages[0].content }}{% endgeneration %}!", "hello!"),
        ("{% for n in range(9) %}{% if n > 2 %}{% break %}{% endif %}{{ n }}{% endfor %}", "012"),
        ("{{ mood }}{{ unknown }}", "calm"),
    ],
)
def test_templates_are_read_as_transformers_reads_them(template, expected):
    assert render(template, tools={"a": "<é>"}, mood="calm") == expected


def test_templates_can_ask_for_the_date():
    assert re.fullmatch(r"\d{4}-\d\d", render("{{ strftime_now('%Y-%m') }}"))


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("{{ raise_exception('only one image') }}", "only one image"),
        ("{{ messages.append(1) }}", "unsafe|not safe"),
        ("{{ messages[0].content + 1 }}", "str"),
    ],
)
def test_a_template_that_refuses_says_why(template, why):
    with pytest.raises(UncountableError, match=f"the chat template refused the request: .*({why})"):
        render(template)


LAST = "<{{ messages[-1].content }}>tail"
TRIMMED = "<{{ messages[-1].content | trim }}>tail"
PARTS = "{% for p in messages[-1].content %}{{ p.text }}{% endfor %}>tail"


@pytest.mark.parametrize(
    ("template", "content", "expected"),
    [
        (LAST, "one two ", "<one two "),
        (TRIMMED, "one two ", "<one two"),
        (PARTS, [{"type": "text", "text": "a"}, {"type": "text", "text": "b "}, {"type": "image"}], "ab "),
    ],
)
def test_an_open_ended_message_ends_where_its_text_ends(template, content, expected):
    before = json.dumps(content)
    assert render(template, content, continues=True) == expected
    assert json.dumps(content) == before


@pytest.mark.parametrize(
    ("template", "content", "why"),
    [
        (LAST, [{"type": "image"}], "no text to continue"),
        ("nothing of it", "text", "leaves out the message"),
        ("text", "text", "leaves out the message"),
    ],
)
def test_what_cannot_be_continued_is_refused(template, content, why):
    with pytest.raises(UncountableError, match=why):
        render(template, content, continues=True)


LOOP = "{% for m in messages %}{% for p in m.content %}{% endfor %}{% endfor %}"
MACRO = "{% macro show(a, it) %}{% for p in it %}{% endfor %}{% endmacro %}{% for m in messages %}CALL{% endfor %}"


@pytest.mark.parametrize(
    "template",
    [
        LOOP,
        LOOP.replace("m.content", "m['content']"),
        LOOP.replace("m.content", "m['content'] | list").replace("messages", "messages[1:]"),
        "{% set a = messages %}{% set b = a %}{% set a = b %}" + LOOP.replace("messages", "b"),
        "{% for m in messages %}{% set content = m.content %}{% for p in content %}{% endfor %}{% endfor %}",
        MACRO.replace("CALL", "{{ show(1, m.content) }}"),
        MACRO.replace("CALL", "{{ show(1, it=m.content) }}"),
    ],
)
def test_a_template_that_loops_over_content_gets_parts(template):
    assert ChatTemplate(template).content_format is ContentFormat.OPENAI


@pytest.mark.parametrize(
    "template",
    [
        "{% for m in messages %}{{ m.content }}{% endfor %}",
        LOOP.replace("content", "tool_calls"),
        LOOP.replace("messages", "others"),
        LOOP.replace("m.content", "m[content]"),
        MACRO.replace("it", "content").replace("CALL", "{{ show(1, m.role) }}{{ other(m.content) }}"),
        MACRO.replace("in it", "in other").replace("CALL", "{{ show(1, m.content, m.content) }}{{ show(it=m.role) }}"),
        "{% set ns = namespace() %}{% set ns.all = messages %}" + LOOP,
        LOOP.replace("for m", "for m, n"),
    ],
)
def test_any_other_template_gets_text(template):
    assert ChatTemplate(template).content_format is ContentFormat.STRING


@pytest.mark.parametrize(("template", "has"), [("'developer'", True), ('"developer"', True), ("developer", False)])
def test_whether_a_template_knows_the_developer_role(template, has):
    assert ChatTemplate(template).has_developer_role is has
