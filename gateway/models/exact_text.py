"""Exact token counts of text, from the files of the model: its chat template and its tokenizer.

An optional extra (`exact-text`: tokenizers and jinja2). Where it, or the template, is missing, `ExactText.from_folder`
says so, and callers keep to bounds by bytes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gateway.models.conversation import UncountableError, convert_messages
from gateway.models.melting import Melting
from gateway.models.processor_config import read_json

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from gateway.models.chat_template import ChatTemplate

_SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_PICTURE = ("vision_start_token_id", "image_token_id", "vision_end_token_id")
"""Keys of config.json: what Qwen models write for a picture where a template takes text only."""

_EFFORTS = ("low", "medium", "high", "xhigh", "max")

_NOT_FOR_TEMPLATES = frozenset(
    {"conversation", "tokenize", "padding", "truncation", "max_length", "return_tensors", "return_dict"}
    | {"return_assistant_tokens_mask", "tokenizer_kwargs"}
)
"""Arguments of transformers' `apply_chat_template` itself: never variables of a template."""


class ExactTextUnavailableError(Exception):
    """Text of this model cannot be counted exactly here; the text says what is missing."""


@dataclass(frozen=True, slots=True)
class TextCount:
    """`text_tokens` is the whole prompt with each picture as one placeholder token, its markers included, less what
    melts into its pictures.

    So prompt_tokens = text_tokens + the sum over images of (placeholder tokens - 1). `image_placeholders` is None
    where config.json does not name that token.
    """

    text_tokens: int
    image_placeholders: int | None


class ExactText:
    """Counts one model's prompts as vLLM 0.32 would make them from the same files. Safe to call from any thread.

    Tokenizing costs about 1 microsecond and 150 bytes of memory for each byte of text (measured up to 4 MB, one token a
    byte). It runs without the GIL: call `count` from a thread where the text has more than some KB.
    """

    def __init__(
        self,
        tokenizer: "Tokenizer",
        plain: "ChatTemplate",
        with_tools: "ChatTemplate | None",
        special_tokens: Mapping[str, str],
        picture: tuple[int, str] | None,
        melting: Melting | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._plain = plain
        self._with_tools = with_tools
        self._special_tokens = special_tokens
        self.image_token_id = picture[0] if picture else None
        self._placeholder = picture[1] if picture else None
        self._melting = melting

    @classmethod
    def from_folder(cls, path: Path) -> "ExactText":
        """From a model folder laid out as on the hub. Raises ExactTextUnavailableError, or ModelFilesError."""
        try:
            import jinja2  # noqa: PLC0415 - an optional extra, asked for only here
            from tokenizers import Tokenizer  # noqa: PLC0415 - likewise

            from gateway.models.chat_template import ChatTemplate, find_templates  # noqa: PLC0415 - needs jinja2
        except ImportError as missing:
            raise ExactTextUnavailableError(f"exact text counts need the extra exact-text ({missing})") from missing
        config = read_json(path / "tokenizer_config.json")
        plain, with_tools = find_templates(path, config)
        if plain is None:
            raise ExactTextUnavailableError(f"{path.name} has no chat template")
        tokenizer = _load_tokenizer(Tokenizer, path / "tokenizer.json")
        try:
            templates = ChatTemplate(plain), None if with_tools is None else ChatTemplate(with_tools)
        except jinja2.TemplateError as broken:
            raise ExactTextUnavailableError(f"the chat template of {path.name} cannot be read: {broken}") from broken
        model = read_json(path / "config.json")
        picture, melting = _picture(tokenizer, model), Melting.of(tokenizer, model)
        return cls(tokenizer, *templates, _special_tokens(config), picture, melting)

    def count(self, chat: Mapping[str, Any]) -> TextCount:
        """Tokens of a chat completion request; the bytes of its pictures are not looked at.

        Raises UncountableError where vLLM would refuse the request or the rules followed here end.
        """
        ids = self.encode_chat(chat)
        melted = 0 if self._melting is None else self._melting.lost(ids)
        return TextCount(len(ids) - melted, None if self.image_token_id is None else ids.count(self.image_token_id))

    def encode_chat(self, chat: Mapping[str, Any]) -> Sequence[int]:
        """The tokens that `count` counts. Raises UncountableError."""
        return self.encode(self._render(chat), adds_special_tokens=chat.get("add_special_tokens") is True)

    def encode(self, text: str, *, adds_special_tokens: bool) -> Sequence[int]:
        """Tokens of a text that no template is put around. Raises UncountableError."""
        try:
            [encoding] = self._tokenizer.encode_batch_fast([text], add_special_tokens=adds_special_tokens)
        except TypeError as broken:  # what the library calls text that is not UTF-8
            raise UncountableError("the text holds half of a surrogate pair") from broken
        ids: Sequence[int] = encoding.ids
        return ids

    def strings(self, ids: Iterable[int]) -> list[str]:
        """Each token as the vocabulary spells it, not as text."""
        return [self._tokenizer.id_to_token(each) or "" for each in ids]

    @cached_property
    def merges_inline_system(self) -> bool:
        """The template takes a system message only at its head; vLLM asks that for Anthropic's conversations."""
        templates = [self._plain] if self._with_tools is None else [self._plain, self._with_tools]
        return any(template.wants_system_first for template in templates)

    @cached_property
    def disabled_thinking_effort(self) -> str:
        """The `reasoning_effort` by which vLLM switches thinking off: `low` where `none` makes no difference."""
        none = self._probe("none")
        return "low" if none is None or none in map(self._probe, _EFFORTS) else "none"

    def _probe(self, effort: str) -> str | None:
        try:
            return self._render({"messages": [{"role": "user", "content": "Hi"}], "reasoning_effort": effort})
        except UncountableError:
            return None

    def _render(self, chat: Mapping[str, Any]) -> str:
        if chat.get("chat_template") is not None:
            raise UncountableError("the request brings a chat template of its own")
        variables = _template_variables(chat)
        tools = variables.pop("tools", None)
        template = self._plain if tools is None else self._with_tools
        if template is None:
            raise UncountableError("the model has no chat template for tools")
        messages = convert_messages(
            chat.get("messages"),
            template.content_format,
            self._placeholder,
            has_developer_role=template.has_developer_role,
        )
        is_open_ended = bool(variables.pop("continue_final_message", False))
        return template.render(
            messages, tools, {**self._special_tokens, **variables}, continue_final_message=is_open_ended
        )


def _load_tokenizer(kind: "type[Tokenizer]", path: Path) -> "Tokenizer":
    if not path.exists():
        raise ExactTextUnavailableError(f"{path.parent.name} has no {path.name}")
    try:
        tokenizer = kind.from_file(str(path))
    except Exception as broken:  # the library raises bare Exception
        raise ExactTextUnavailableError(f"{path.name} cannot be read: {broken}") from broken
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """Variables of the template, such as `bos_token`; a token is a string or an object with its `content`."""
    found = {name: config.get(name) for name in _SPECIAL_TOKENS}
    texts = {name: token["content"] if isinstance(token, Mapping) else token for name, token in found.items()}
    return {name: text for name, text in texts.items() if text is not None}


def _picture(tokenizer: "Tokenizer", config: Mapping[str, Any]) -> tuple[int, str] | None:
    """The id of the placeholder token, and the text of one picture with its markers."""
    ids = [config[key] for key in _PICTURE if isinstance(config.get(key), int)]
    tokens = [token for token_id in ids if (token := tokenizer.id_to_token(token_id)) is not None]
    return (config["image_token_id"], "".join(tokens)) if len(tokens) == len(_PICTURE) else None


def _template_variables(chat: Mapping[str, Any]) -> dict[str, Any]:
    """What the request sets for its template, strongest last (vLLM `build_chat_params`, `merge_kwargs`)."""
    own = chat.get("chat_template_kwargs") or {}
    if not isinstance(own, Mapping):
        raise UncountableError("chat_template_kwargs is not an object")
    if {"chat_template", "tokenize"} & own.keys():
        raise UncountableError("chat_template_kwargs sets what only the server may set")
    effort = chat.get("reasoning_effort")
    requested = {
        "add_generation_prompt": chat.get("add_generation_prompt", True),
        "continue_final_message": chat.get("continue_final_message", False),
        "documents": chat.get("documents"),
        "reasoning_effort": effort,
        "enable_thinking": None if effort is None or "enable_thinking" in own else effort != "none",
    }
    if requested["add_generation_prompt"] and requested["continue_final_message"]:
        raise UncountableError("continue_final_message and add_generation_prompt exclude each other")
    merged = {"tools": _tools(chat.get("tools")), "documents": None} | _set(own) | _set(requested)
    return {name: value for name, value in merged.items() if name not in _NOT_FOR_TEMPLATES}


def _set(variables: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in variables.items() if value is not None and value != "auto"}


def _tools(tools: object) -> list[dict[str, Any]] | None:
    """Tools with the keys, and in the order, in which vLLM's own model of them dumps them."""
    if tools is None:
        return None
    if not isinstance(tools, list):
        raise UncountableError("tools is not a list")
    return [_tool(tool) for tool in tools]


def _tool(tool: object) -> dict[str, Any]:
    function = tool.get("function") if isinstance(tool, Mapping) else None
    if not isinstance(tool, Mapping) or not isinstance(function, Mapping):
        raise UncountableError("a tool is no function")
    later = tool.get("defer_loading")
    shown = {key: function.get(key) for key in ("name", "description", "parameters")}
    strict = {"strict": function["strict"]} if function.get("strict") is not None else {}
    deferred = function.get("defer_loading") if function.get("defer_loading") is not None else later
    defer = {} if deferred is None else {"defer_loading": deferred}
    own_defer = {} if later is None else {"defer_loading": later}
    return {"type": "function", "function": shown | strict | defer} | own_defer
