"""A request as the decisions see it: a few fields, and where each image stands in the body.

Pictures never enter these values, only spans into the body that came.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple

from gateway.domain.media import MediaRef
from gateway.domain.priority import Priority


class Span(NamedTuple):
    """Half-open range of byte offsets into the body as it came."""

    start: int
    end: int


Path = tuple[str | int, ...]
"""Keys and indexes that lead from the top of a body to a value in it."""


class FieldUse(NamedTuple):
    """A field of domain/fields.py that the body has: how much of it, and where a number stands that could be brought
    down. `asked_by` is the field that asks for the same, where it is another one.
    """

    name: str
    amount: int
    span: Span = Span(0, 0)
    asked_by: str = ""


class OwnSalt(NamedTuple):
    """The client's own `cache_salt`, and where it stands; None: null."""

    text: str | None
    span: Span


@dataclass(frozen=True, slots=True)
class ImageRef:
    """One image of the request and where it stands.

    `ordinal` counts the request's images from 0 in the order in which the model sees them; `part` leads to the whole
    part that a text may take the place of, e.g. `("messages", 2, "content", 1)`; `param` is the path for errors, e.g.
    `messages[2].content[1].image_url.url`. `url` spans the JSON string of the URL, quotes included; with `is_base64` it
    is the file itself, in base64, and `media_type` spans the string that says of what kind, None where none stands
    there. `is_bare_string` says that the string stood where vLLM wants an object around it. `has_uuid` says that the
    part carries a `uuid`, which must not reach vLLM as it came; `uuid` is its text, None where it is none.
    `is_named_only`: the image itself is not there, and `url` spans what stands in its place. `is_remote`: its URL is an
    http(s) address.
    In one prompt it stands for sure, and in up to `copies` where the server may pair it with each of several others.
    """

    ordinal: int
    part: Path
    param: str
    url: Span
    detail: str | None = None
    is_bare_string: bool = False
    has_uuid: bool = False
    uuid: str | None = None
    is_named_only: bool = False
    is_remote: bool = False
    is_base64: bool = False
    copies: int = 1
    media_type: Span | None = None


class MessageOutline(NamedTuple):
    """One message: its role, the UTF-8 bytes of text that the template may render, the ordinals of its images.

    Of `text_bytes`, `uncertain_text_bytes` are such that templates also leave out: reasoning, tool calls, names.
    """

    role: str
    text_bytes: int
    images: tuple[int, ...] = ()
    uncertain_text_bytes: int = 0


_SYSTEM_ROLES = frozenset({"system", "developer"})


class VisionRequest(NamedTuple):
    """What admission needs of any request that makes the engine work.

    `include_usage` says that the client asked for usage at the end of its stream, `has_stream_options` that the
    body has the key under which it would. `max_tokens` is the client's bound on the answer (None: the whole
    remainder of the context); `n` answers per prompt, `prompts` prompts, `prompt_token_ids` the number of prompt
    tokens given as ids over all prompts, `extra_text_bytes` text outside messages that the template renders or the
    engine reads (tools, tool choice, response format, plain prompts); of these, `uncertain_extra_bytes` may also be
    left out. `truncate_prompt_tokens` is what vLLM cuts each prompt to: -1 to what the context holds, None not at
    all. `wants_output` is False for embeddings, `needs_engine` for what vLLM's front end answers alone. `priority`
    is what the body asks for, `media` its videos and audio. Where each prompt is a conversation of its own,
    `conversation_lengths` says how many of the `messages` belong to each, in order. `is_stored` says that vLLM may
    keep the answer, `is_background` that it makes it without the client, and `previous_id` names the stored answer
    behind which the conversation goes on. With `pads_prompts` each prompt is made as long as the context. `prompt_name`
    is the field that errors about all of the messages name.
    `fields` are those that domain/fields.py has rules for, `salt` is the `cache_salt` that came.
    """

    model: str | None
    stream: bool = False
    include_usage: bool = False
    has_stream_options: bool = False
    max_tokens: int | None = None
    n: int = 1
    prompts: int = 1
    prompt_token_ids: int = 0
    extra_text_bytes: int = 0
    uncertain_extra_bytes: int = 0
    truncate_prompt_tokens: int | None = None
    pads_prompts: bool = False
    wants_output: bool = True
    needs_engine: bool = True
    priority: Priority | None = None
    messages: tuple[MessageOutline, ...] = ()
    images: tuple[ImageRef, ...] = ()
    media: tuple[MediaRef, ...] = ()
    conversation_lengths: tuple[int, ...] = ()
    is_stored: bool = False
    is_background: bool = False
    previous_id: str | None = None
    fields: tuple[FieldUse, ...] = ()
    salt: OwnSalt | None = None
    prompt_name: str = "messages"

    @property
    def conversations(self) -> Sequence[Sequence[MessageOutline]]:
        """The messages of each, for no image of one is history of another."""
        if not self.conversation_lengths:
            return (self.messages,)
        ends = list(accumulate(self.conversation_lengths))
        return [self.messages[start:end] for start, end in pairwise([0, *ends])]

    @property
    def has_remote_images(self) -> bool:
        return any(image.is_remote for image in self.images)

    @property
    def has_system(self) -> bool:
        """A message that templates which have one of their own write in its place."""
        return any(message.role in _SYSTEM_ROLES for message in self.messages)

    @property
    def text_bytes(self) -> int:
        return self.extra_text_bytes + sum(m.text_bytes for m in self.messages)

    @property
    def uncertain_text_bytes(self) -> int:
        """Those of `text_bytes` that may never reach the prompt: no reason to refuse."""
        return self.uncertain_extra_bytes + sum(m.uncertain_text_bytes for m in self.messages)
