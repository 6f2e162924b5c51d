import contextlib
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from gateway.models.conversation import UncountableError
from gateway.models.exact_text import ExactText, ExactTextUnavailableError, TextCount
from gateway.models.processor_config import ModelFilesError

RECORDED = json.loads((Path(__file__).parents[1] / "data" / "exact_text.json").read_text())
PLAIN = "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}{% if add_generation_prompt %}>{% endif %}"
HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture
def exact(model_folder):
    return lambda template=PLAIN, **files: ExactText.from_folder(
        model_folder(**{"chat_template.jinja": template}, **files)
    )


@pytest.fixture
def exact_parts(exact):
    return exact(RECORDED["templates"]["parts"])


def counted(exact_text, messages=HELLO, **chat):
    return exact_text.count({"messages": messages, **chat}).text_tokens


@pytest.mark.parametrize("template", RECORDED["templates"])
def test_counts_are_those_of_a_real_vllm(exact, template):
    exact_text = exact(RECORDED["templates"][template])
    cases = [case for case in RECORDED["cases"] if case["template"] == template]
    assert len(cases) >= 8
    for case in cases:
        assert (case["chat"], exact_text.count(case["chat"]).text_tokens) == (case["chat"], case["text_tokens"])


def test_pictures_count_as_one_placeholder_each(exact):
    picture = {"type": "image_url", "image_url": {"url": ""}}
    chat = {"messages": [{"role": "user", "content": [picture, {"type": "text", "text": "ab"}, picture]}]}
    placeholders = 2 * 3 + 2  # a placeholder between its markers, on a line of its own
    assert exact().count(chat) == TextCount(len("user:") + placeholders + len("ab") + len(";>"), 2)


def test_a_placeholder_typed_as_text_is_the_token_that_it_names(exact):
    chat = {"messages": [{"role": "user", "content": "a<|image_pad|>b"}]}
    assert exact().count(chat) == TextCount(len("user:") + 3 + len(";>"), 1)


def test_any_thread_may_count(exact):
    exact_text = exact()
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(lambda _: counted(exact_text), range(20))) == {len("user:hello;>")}


def test_special_tokens_are_variables_of_the_template(exact):
    assert counted(exact("{{ eos_token }}{{ pad_token }}{{ bos_token }}")) == 2


@pytest.mark.parametrize(
    ("chat", "rendered"),
    [
        ({}, "g-"),
        ({"add_generation_prompt": False}, "-"),
        ({"chat_template_kwargs": {"add_generation_prompt": False}}, "g-"),
        ({"chat_template_kwargs": {"mood": "calm"}}, "g-calm"),
        ({"chat_template_kwargs": {"mood": "auto", "padding": "long"}}, "g-"),
        ({"reasoning_effort": "low"}, "g-low:True"),
        ({"reasoning_effort": "none"}, "g-none:False"),
        ({"reasoning_effort": "none", "chat_template_kwargs": {"enable_thinking": True}}, "g-none:True"),
        ({"documents": [{"title": "a", "text": "b"}]}, "g-ab"),
    ],
)
def test_what_a_request_sets_for_its_template(exact, chat, rendered):
    template = (
        "{% if add_generation_prompt %}g{% endif %}-{{ mood }}{{ reasoning_effort }}{{ padding }}"
        "{% if enable_thinking is defined %}:{{ enable_thinking }}{% endif %}"
        "{% for d in documents or [] %}{{ d.title }}{{ d.text }}{% endfor %}"
    )
    assert counted(exact(template), **chat) == len(rendered)


def function(**keys):
    return {"type": "function", "function": {"name": "f"} | keys}


@pytest.mark.parametrize(
    ("tool", "dumped"),
    [
        (function(), '{"type": "function", "function": {"name": "f", "description": null, "parameters": null}}'),
        (
            function(parameters={"é": "<b>"}, description="d", strict=True, junk=1),
            (
                '{"type": "function", "function": {"name": "f", "description": "d", '
                '"parameters": {"é": "<b>"}, "strict": true}}'
            ),
        ),
        (
            function() | {"defer_loading": True},
            (
                '{"type": "function", "function": {"name": "f", "description": null, "parameters": null, '
                '"defer_loading": true}, "defer_loading": true}'
            ),
        ),
        (
            function(defer_loading=False) | {"defer_loading": True},
            (
                '{"type": "function", "function": {"name": "f", "description": null, "parameters": null, '
                '"defer_loading": false}, "defer_loading": true}'
            ),
        ),
    ],
)
def test_tools_are_dumped_with_the_keys_that_vllm_knows(exact, tool, dumped):
    assert counted(exact("{{ tools[0] | tojson }}"), tools=[tool]) == len(dumped.encode())


@pytest.mark.parametrize(
    ("chat", "why"),
    [
        ({"messages": []}, "not a list of messages"),
        ({"chat_template": "{{ 1 }}"}, "a chat template of its own"),
        ({"chat_template_kwargs": {"tokenize": True}}, "only the server may set"),
        ({"chat_template_kwargs": {"messages": []}}, "refused the request"),
        ({"chat_template_kwargs": [1]}, "not an object"),
        ({"messages": [{"role": "user", "content": "\ud83d"}]}, "half of a surrogate pair"),
        ({"continue_final_message": True}, "exclude each other"),
        ({"tools": "f"}, "tools is not a list"),
        ({"tools": [{"type": "custom"}]}, "a tool is no function"),
        ({"tools": ["f"]}, "a tool is no function"),
    ],
)
def test_what_vllm_refuses_is_not_counted(exact, chat, why):
    with pytest.raises(UncountableError, match=why):
        exact().count({"messages": HELLO, **chat})


def test_a_picture_in_a_text_template_needs_known_placeholders(exact):
    picture = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": ""}}]}
    unknown = {"architectures": ["Other"], "image_token_id": 10**6, "vision_start_token_id": 1}
    exact_text = exact(**{"config.json": unknown})
    assert counted(exact_text) == len("user:hello;>")
    with pytest.raises(UncountableError, match="how this model's template marks a picture"):
        counted(exact_text, [picture])


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*"ab", "type", "text", "image_url", "role", "content"]), inner, max_size=4)
    ),
    max_leaves=12,
)
messages = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "tool", "system", "developer"]) | json_values},
        optional={"content": json_values, "tool_calls": json_values, "reasoning": json_values, "name": json_values},
    ),
    max_size=3,
)
chats = st.fixed_dictionaries(
    {"messages": messages | json_values},
    optional=dict.fromkeys(
        ("tools", "chat_template_kwargs", "documents", "reasoning_effort", "continue_final_message"), json_values
    ),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(chats)
def test_whatever_comes_is_counted_or_called_uncountable(exact_parts, chat):
    with contextlib.suppress(UncountableError):
        assert exact_parts.count(chat).text_tokens >= 0


@pytest.mark.parametrize("package", ["tokenizers", "jinja2"])
def test_without_the_extra_it_says_which_one(monkeypatch, model_folder, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ExactTextUnavailableError, match="need the extra exact-text"):
        ExactText.from_folder(model_folder())


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({}, "has no chat template"),
        ({"chat_template.jinja": "{% for %}"}, "the chat template of .* cannot be read"),
        ({"chat_template.jinja": PLAIN, "tokenizer.json": None}, "has no tokenizer.json"),
        ({"chat_template.jinja": PLAIN, "tokenizer.json": "{}"}, "tokenizer.json cannot be read"),
    ],
)
def test_a_folder_without_what_it_takes_says_what_is_missing(model_folder, files, why):
    with pytest.raises(ExactTextUnavailableError, match=why):
        ExactText.from_folder(model_folder(**files))


def test_a_folder_that_is_none_names_the_file(tmp_path):
    with pytest.raises(ModelFilesError, match=r"tokenizer_config.json: cannot be read"):
        ExactText.from_folder(tmp_path)


def test_a_tokenizer_file_saved_with_truncation_counts_in_full(exact, model_folder):
    made = Tokenizer.from_file(str(model_folder() / "tokenizer.json"))
    made.enable_truncation(4)
    made.enable_padding(length=100)
    assert counted(exact(**{"tokenizer.json": made.to_str()})) == len("user:hello;>")


TOOLS = [function()]


@pytest.mark.parametrize(
    ("files", "without_tools", "with_tools"),
    [
        ({"chat_template.jinja": "1"}, 1, 1),
        ({"tokenizer_config.json": {"chat_template": "22"}}, 2, 2),
        ({"chat_template.jinja": "1", "tokenizer_config.json": {"chat_template": "22"}}, 1, 1),
        ({"chat_template.jinja": "1", "additional_chat_templates__tool_use.jinja": "333"}, 1, 3),
        ({"chat_template.json": {"chat_template": "4444"}, "chat_template.jinja": "1"}, 4, 1),
        (
            {
                "tokenizer_config.json": {
                    "chat_template": [{"name": "default", "template": "1"}, {"name": "tool_use", "template": "22"}]
                }
            },
            1,
            2,
        ),
    ],
)
def test_which_template_applies(model_folder, files, without_tools, with_tools):
    exact_text = ExactText.from_folder(model_folder(**files))
    assert (counted(exact_text), counted(exact_text, tools=TOOLS)) == (without_tools, with_tools)


def test_a_processors_template_alone_takes_no_tools(model_folder):
    exact_text = ExactText.from_folder(model_folder(**{"chat_template.json": {"chat_template": "4444"}}))
    assert counted(exact_text) == 4
    with pytest.raises(UncountableError, match="no chat template for tools"):
        counted(exact_text, tools=TOOLS)


def test_tokens_of_a_prompt_and_how_they_are_spelled(exact):
    exact_text = exact()
    ids = exact_text.encode("ab<|im_end|>", adds_special_tokens=True)
    assert exact_text.strings(ids) == ["a", "b", "<|im_end|>"]
    assert exact_text.strings([10**6]) == [""]
    assert len(exact_text.encode_chat({"messages": HELLO})) == len("user:hello;>")


@pytest.mark.parametrize(
    ("template", "is_so"),
    [
        (PLAIN, False),
        ("{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('no') }}", True),
        ("{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ 1 + m.content }}", True),
        ("{{ messages[2].role | upper }}{% for m in messages[:0] %}", False),
    ],
)
def test_templates_that_want_the_system_first(exact, template, is_so):
    ends = "{% endif %}" * template.count("{% if m.role") + "{% endfor %}" * (not template.endswith("{% endfor %}"))
    assert exact(template if template == PLAIN else template + ends).merges_inline_system is is_so


def test_one_of_two_templates_is_enough(exact):
    first = "{% for m in messages %}{{ m.content }}{% endfor %}"
    strict = "{% if messages[2].role == 'system' %}{{ raise_exception('no') }}{% endif %}" + first
    config = {"chat_template": [{"name": "default", "template": first}, {"name": "tool_use", "template": strict}]}
    assert exact(None, **{"tokenizer_config.json": config}).merges_inline_system


@pytest.mark.parametrize(
    ("template", "effort"),
    [
        (PLAIN, "low"),
        (PLAIN + "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}", "none"),
        (PLAIN + "{% if reasoning_effort == 'none' %}{{ raise_exception('no') }}{% endif %}", "low"),
        (PLAIN + "{{ 'min' if reasoning_effort in ('none', 'low') else reasoning_effort }}", "low"),
    ],
)
def test_how_thinking_is_switched_off(exact, template, effort):
    assert exact(template).disabled_thinking_effort == effort
