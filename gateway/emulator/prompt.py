"""From messages to the tokens the engine works on: chat template, image placeholders, length checks. Pure.

The template is that of a minimal Qwen model: a default system turn, ChatML around every turn, each image as start
marker, placeholders, end marker, and videos likewise. The role runs straight into the content: Jinja strips the newline
between them.
"""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeAlias

from gateway.emulator.content import ImageRef, VideoRef, parts_of
from gateway.emulator.errors import bad_request, text_too_long, too_many
from gateway.emulator.pictures import Picture
from gateway.emulator.tokens import IMAGE_PAD, VIDEO_PAD, VISION_END, VISION_START, Tokens, encode
from gateway.emulator.vision import PATCH_FRAMES, AspectRatioError, Family, TooShortError

_DEFAULT_SYSTEM_TURN = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>"
_GENERATION_PROMPT = "<|im_start|>assistant\n"


@lru_cache(maxsize=64)
def _template_tokens(text: str) -> Tokens:
    return encode(text)


@dataclass(frozen=True, slots=True)
class ImageSpan:
    """Where an image's placeholders stand: `start` is the first, `length` their number = its embeddings.

    Videos whose frames have text between them have one for each patch in time.
    """

    start: int
    length: int
    identity: bytes
    is_video: bool = False

    @property
    def end(self) -> int:
        return self.start + self.length


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the engine sees of one request: expanded token ids and the images in them, in order. Only prompts with the
    same `salt` share a prefix.
    """

    tokens: Tokens
    images: tuple[ImageSpan, ...] = ()
    salt: str | None = None

    @property
    def image_tokens(self) -> int:
        return sum(image.length for image in self.images if not image.is_video)

    @property
    def video_tokens(self) -> int:
        return sum(image.length for image in self.images if image.is_video)


Rendered: TypeAlias = "list[Tokens | ImageRef]"


def render_chat(
    messages: Sequence[dict[str, Any]], *, add_generation_prompt: bool, image_limit: int, video_limit: int
) -> Rendered:
    """Template applied, text tokenised; images and videos still stand as references. Raises ApiError."""
    if not messages:
        raise bad_request("Cannot apply chat template to an empty conversation. Provide at least one message.")
    rendered: Rendered = []
    if messages[0]["role"] != "system":
        rendered.append(_template_tokens(_DEFAULT_SYSTEM_TURN))
    images = videos = 0
    for message in messages:
        rendered.append(_template_tokens(f"<|im_start|>{message['role']}"))
        for part in parts_of(message.get("content")):
            rendered.append(encode(part) if isinstance(part, str) else part)
            videos += isinstance(part, VideoRef)
            images += isinstance(part, ImageRef) and not isinstance(part, VideoRef)
            if images > image_limit:
                raise too_many("image", image_limit)
            if videos > video_limit:
                raise too_many("video", video_limit)
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
        if picture.frames:
            _add_video(tokens, spans, picture, family)
        else:
            _add(tokens, spans, ImageSpan(0, visual_tokens(picture, family), picture.identity))
    return Prompt(tokens, tuple(spans))


def _add(tokens: Tokens, spans: list[ImageSpan], span: ImageSpan) -> None:
    """Placeholders between their markers; the span's start is where that is."""
    tokens.append(VISION_START)
    spans.append(replace(span, start=len(tokens)))
    tokens.extend(array("H", [VIDEO_PAD if span.is_video else IMAGE_PAD]) * span.length)
    tokens.append(VISION_END)


def _add_video(tokens: Tokens, spans: list[ImageSpan], video: Picture, family: Family) -> None:
    """Frames of a list of pictures are a second apart. Raises ApiError."""
    patches, units = _grid_of_video(video, family)
    if not family.has_timestamps:
        _add(tokens, spans, ImageSpan(0, patches * units, video.identity, is_video=True))
        return
    tokens.append(VISION_START)
    for patch in range(patches):
        first, last = PATCH_FRAMES * patch, min(PATCH_FRAMES * patch + 1, video.frames - 1)
        tokens.extend(encode(f"<{(first + last) / 2:.1f} seconds>"))
        _add(tokens, spans, ImageSpan(0, units, video.identity + patch.to_bytes(2), is_video=True))
    tokens.append(VISION_END)


def _grid_of_video(video: Picture, family: Family) -> tuple[int, int]:
    """Patches in time, and the placeholders of each. Raises ApiError."""
    try:
        return family.video_grid(video.frames, video.width, video.height)
    except (AspectRatioError, TooShortError) as problem:
        raise bad_request(f"Failed to apply {family.processor} on data={{'videos': [...]}}") from problem


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
