"""From messages to the tokens the engine works on: chat template, image placeholders, length checks. Pure.

The template is that of a minimal Qwen model: a default system turn, ChatML around every turn, each image as start
marker, placeholders, end marker. The role runs straight into the content: Jinja strips the newline between them.
"""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

from gateway.emulator.content import ImageRef, parts_of
from gateway.emulator.errors import bad_request, text_too_long, too_many
from gateway.emulator.pictures import Picture
from gateway.emulator.tokens import IMAGE_PAD, VISION_END, VISION_START, Tokens, encode
from gateway.emulator.vision import AspectRatioError, Family

_DEFAULT_SYSTEM_TURN = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>"
_GENERATION_PROMPT = "<|im_start|>assistant\n"


@lru_cache(maxsize=64)
def _template_tokens(text: str) -> Tokens:
    return encode(text)


@dataclass(frozen=True, slots=True)
class ImageSpan:
    """Where an image's placeholders stand: `start` is the first, `length` their number = its embeddings."""

    start: int
    length: int
    identity: bytes

    @property
    def end(self) -> int:
        return self.start + self.length


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the engine sees of one request: expanded token ids and the images in them, in order."""

    tokens: Tokens
    images: tuple[ImageSpan, ...] = ()

    @property
    def image_tokens(self) -> int:
        return sum(image.length for image in self.images)


Rendered: TypeAlias = "list[Tokens | ImageRef]"


def render_chat(messages: Sequence[dict[str, Any]], *, add_generation_prompt: bool, image_limit: int) -> Rendered:
    """Template applied, text tokenised; images still stand as references. Raises ApiError."""
    if not messages:
        raise bad_request("Cannot apply chat template to an empty conversation. Provide at least one message.")
    rendered: Rendered = []
    if messages[0]["role"] != "system":
        rendered.append(_template_tokens(_DEFAULT_SYSTEM_TURN))
    images = 0
    for message in messages:
        rendered.append(_template_tokens(f"<|im_start|>{message['role']}"))
        for part in parts_of(message.get("content")):
            rendered.append(encode(part) if isinstance(part, str) else part)
            images += isinstance(part, ImageRef)
            if images > image_limit:
                raise too_many("image", image_limit)
        rendered.append(_template_tokens("<|im_end|>\n"))
    if add_generation_prompt:
        rendered.append(_template_tokens(_GENERATION_PROMPT))
    return rendered


def image_refs(rendered: Rendered) -> list[ImageRef]:
    return [piece for piece in rendered if isinstance(piece, ImageRef)]


def check_text_length(rendered: Rendered, max_model_len: int) -> None:
    """The first of vLLM's length checks: before images are expanded, when each counts as three tokens. Raises ApiError.

    Its tokenizer stops one token past the limit, so the message can only say "at least".
    """
    tokens = sum(3 if isinstance(piece, ImageRef) else len(piece) for piece in rendered)
    if tokens > max_model_len:
        text_too_long(max_model_len, max_model_len + 1, at_least=True)


def expand(rendered: Rendered, pictures: Iterable[Picture], family: Family) -> Prompt:
    """Put each picture's placeholders in place of its reference. Raises ApiError for a shape no processor takes."""
    tokens: Tokens = array("H")
    spans: list[ImageSpan] = []
    upcoming = iter(pictures)
    for piece in rendered:
        if not isinstance(piece, ImageRef):
            tokens.extend(piece)
            continue
        picture = next(upcoming)
        length = visual_tokens(picture, family)
        tokens.append(VISION_START)
        spans.append(ImageSpan(len(tokens), length, picture.identity))
        tokens.extend(array("H", [IMAGE_PAD]) * length)
        tokens.append(VISION_END)
    return Prompt(tokens, tuple(spans))


def visual_tokens(picture: Picture, family: Family) -> int:
    """Placeholders of one picture. Raises ApiError, which does not say that the aspect ratio is the reason."""
    try:
        return family.visual_tokens(picture.width, picture.height)
    except AspectRatioError as problem:
        raise bad_request(
            f"Failed to apply {family.processor} on data={{'images': [<PIL.Image.Image image mode=RGB "
            f"size={picture.width}x{picture.height}>]}} with kwargs={{'do_normalize': False, 'do_rescale': False, "
            "'return_tensors': 'pt'}"
        ) from problem
