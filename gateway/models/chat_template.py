"""Chat templates: where a checkpoint keeps them, which one applies, what content format it wants, and rendering.

Needs jinja2, so only `exact_text` imports this, once it is asked for. Follows transformers 5.19
`utils/chat_template_utils.py` (environment, rendering) and vLLM 0.32 `renderers/hf.py` (choice and format detection).
"""

import copy
import datetime as dt
import json
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import jinja2.ext
import jinja2.nodes
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from gateway.models.conversation import ContentFormat, Message, UncountableError
from gateway.models.processor_config import read_json

_CONTINUE_TAG = "CONTINUE_FINAL_MESSAGE_TAG "
"""Marks where an open-ended last message stops; cut off again together with what the template writes after it."""


class _GenerationTag(jinja2.ext.Extension):
    """`{% generation %}` marks answers for training; for a prompt its body counts as it is."""

    tags = {"generation"}  # noqa: RUF012 - jinja2's own interface

    def parse(self, parser: Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def find_templates(folder: Path, tokenizer_config: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """The template for requests without tools, and the one for requests with tools; None where there is none.

    Without tools vLLM asks the processor: chat_template.json, then chat_template.jinja. With tools, or where the
    processor has none, the tokenizer: chat_template.jinja and its additional files, then tokenizer_config.json.
    """
    jinja_file = folder / "chat_template.jinja"
    named = {file.stem: file.read_text() for file in sorted((folder / "additional_chat_templates").glob("*.jinja"))}
    if jinja_file.exists():
        named["default"] = jinja_file.read_text()
    legacy = folder / "chat_template.json"
    of_processor = read_json(legacy).get("chat_template") if legacy.exists() else named.get("default")
    of_tokenizer = named or _named(tokenizer_config.get("chat_template"))
    default = of_tokenizer.get("default")
    return of_processor or default, of_tokenizer.get("tool_use", default)


def _named(templates: object) -> dict[str, str]:
    if isinstance(templates, str):
        return {"default": templates}
    return {entry["name"]: entry["template"] for entry in templates} if isinstance(templates, list) else {}


class ChatTemplate:
    """One compiled template. Raises jinja2.TemplateError for a text that is none."""

    def __init__(self, text: str) -> None:
        self.text = text
        environment = _environment()
        self._compiled = environment.from_string(text)
        self.content_format = _content_format(environment.parse(text))
        self.has_developer_role = '"developer"' in text or "'developer'" in text

    @property
    def wants_system_first(self) -> bool:
        """It refuses a system message behind another message, as vLLM tries it: without the functions of templates."""
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols]
        )
        roles = ("system", "user", "system", "user")
        conversation = [{"role": role, "content": "t"} for role in roles]
        try:
            environment.from_string(self.text).render(messages=conversation, add_generation_prompt=False)
        except Exception:  # noqa: BLE001 - a template is a program: it may fail in any way
            return True
        return False

    def render(
        self, messages: Sequence[Message], tools: object, variables: Mapping[str, Any], *, continue_final_message: bool
    ) -> str:
        """The prompt as text. Raises UncountableError with the template's own reason."""
        final_text = ""
        if continue_final_message:
            messages, final_text = _with_tag(messages)
        try:
            rendered = self._compiled.render(messages=messages, tools=tools, **variables)
        except Exception as refused:  # a template is a program: it may fail in any way
            raise UncountableError(f"the chat template refused the request: {refused}") from refused
        return _cut_at_tag(rendered, final_text) if continue_final_message else rendered


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Without the HTML escapes of jinja2's own filter."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _strftime_now(pattern: str) -> str:
    return dt.datetime.now().strftime(pattern)  # noqa: DTZ005 - local time, as the model's server has it


def _with_tag(messages: Sequence[Message]) -> tuple[list[Message], str]:
    """The conversation with the tag after its last text, and that text."""
    tagged = copy.deepcopy(list(messages))
    content = tagged[-1]["content"]
    if isinstance(content, str):
        tagged[-1]["content"] = content + _CONTINUE_TAG
        return tagged, content
    for part in reversed(content):
        if "text" in part:
            text: str = part["text"]
            part["text"] = text + _CONTINUE_TAG
            return tagged, text
    raise UncountableError("the last message has no text to continue")


def _cut_at_tag(rendered: str, final_text: str) -> str:
    tag = _CONTINUE_TAG.strip()
    if final_text.strip() not in rendered or tag not in rendered:
        raise UncountableError("the chat template leaves out the message to continue")
    at = rendered.rindex(tag)
    # A template that trims its messages took the tag's own space away: then the text's spaces went as well.
    is_kept = rendered[at : at + len(_CONTINUE_TAG)] == _CONTINUE_TAG
    return rendered[:at] if is_kept else rendered[:at].rstrip()


def _content_format(template: jinja2.nodes.Template) -> ContentFormat:
    """A template that loops over the content of a message wants parts, any other wants text."""
    try:
        return ContentFormat.OPENAI if any(True for _ in _content_loops(template)) else ContentFormat.STRING
    except _NotANameError:
        return ContentFormat.STRING


class _NotANameError(ValueError):
    """A loop or assignment over messages into something else than a name: vLLM gives up there, and so do we."""


def _name(node: jinja2.nodes.Node) -> str:
    if not isinstance(node, jinja2.nodes.Name):
        raise _NotANameError
    return node.name


def _is_variable(node: jinja2.nodes.Node | None, name: str) -> bool:
    return isinstance(node, jinja2.nodes.Name) and node.ctx == "load" and node.name == name


def _reads(node: jinja2.nodes.Node | None, name: str, key: str | None = None) -> bool:
    """Whether the expression is the variable, or its `key`, perhaps filtered, tested or sliced."""
    if isinstance(node, jinja2.nodes.Filter | jinja2.nodes.Test):
        return _reads(node.node, name, key)
    if isinstance(node, jinja2.nodes.Getitem) and isinstance(node.arg, jinja2.nodes.Slice):
        return _reads(node.node, name, key)
    if key is None:
        return _is_variable(node, name)
    if isinstance(node, jinja2.nodes.Getitem):
        return _is_variable(node.node, name) and isinstance(node.arg, jinja2.nodes.Const) and node.arg.value == key
    return isinstance(node, jinja2.nodes.Getattr) and _is_variable(node.node, name) and node.attr == key


def _aliases(template: jinja2.nodes.Template, name: str) -> list[str]:
    """The variable and all that it is assigned to, directly or in steps."""
    found, waiting = [name], deque([name])
    while waiting:
        source = waiting.popleft()
        for assignment in template.find_all(jinja2.nodes.Assign):
            if _reads(assignment.node, source):
                target = _name(assignment.target)
                if target not in found:
                    found.append(target)
                    waiting.append(target)
    return found


def _message_names(template: jinja2.nodes.Template) -> list[str]:
    """Loop variables over messages."""
    sources = _aliases(template, "messages")
    return [
        _name(loop.target)
        for loop in template.find_all(jinja2.nodes.For)
        if any(_reads(loop.iter, source) for source in sources)
    ]


def _content_loops(template: jinja2.nodes.Template) -> Iterator[jinja2.nodes.For]:
    """Loops over a message's content: itself, a macro's argument that receives it, or a variable named `content`."""
    messages = _message_names(template)
    arguments: dict[int, set[str]] = {}
    for macro in template.find_all(jinja2.nodes.Macro):
        received = _arguments_with_content(template, macro, messages)
        for loop in macro.find_all(jinja2.nodes.For):
            arguments[id(loop)] = received or arguments.get(id(loop), set())
    for loop in template.find_all(jinja2.nodes.For):
        names = arguments.get(id(loop), {"content"})
        is_named = isinstance(loop.iter, jinja2.nodes.Name) and loop.iter.name in names
        if is_named or any(_reads(loop.iter, message, "content") for message in messages):
            _name(loop.target)
            yield loop


def _arguments_with_content(
    template: jinja2.nodes.Template, macro: jinja2.nodes.Macro, messages: Sequence[str]
) -> set[str]:
    names = [argument.name for argument in macro.args]
    received = set()
    for call in template.find_all(jinja2.nodes.Call):
        if isinstance(call.node, jinja2.nodes.Name) and call.node.name == macro.name:
            by_name = [(keyword.key, keyword.value) for keyword in call.kwargs]
            for name, value in [*zip(names, call.args, strict=False), *by_name]:
                if name in names and any(_reads(value, message, "content") for message in messages):
                    received.add(name)
    return received
