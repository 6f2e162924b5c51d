"""What vLLM's refusals tell of its limits, which it states nowhere else.

The texts are those of 0.32 (multimodal/processing/context.py, v1/engine/input_processor.py). A limit that is learned
holds for everybody, and vLLM quotes clients in its errors. So a text teaches only where it is vLLM's sentence from its
first to its last character; a number that no server could work with teaches nothing.
"""

import re
from dataclasses import dataclass

import msgspec

_IMAGE_LIMIT = re.compile(
    r"At most ([1-9][0-9]{0,5}) image\(s\) may be provided in one (?:prompt|request)\.(?: \(parameter=image\))?"
)
_ENCODER_CACHE = re.compile(
    r"The (?:decoder|encoder) prompt contains a\(n\) (?:image|video|audio) item "
    r"with (?:[0-9]{1,9} embedding tokens|length [0-9]{1,9}), "
    r"which exceeds the pre-allocated encoder cache size ([1-9][0-9]{0,8})\. "
    r"Please reduce the input size or increase the encoder cache size by setting --limit-mm-per-prompt at startup\."
)
_CACHE_MISS = re.compile(r"Cache miss for \w{1,20} at index [0-9]{1,9} but data is not provided\..{0,60}")


@dataclass(frozen=True, slots=True)
class LearnedLimits:
    """The limit named in one error; the other is None. Images per prompt, encoder embeddings per item."""

    image_limit: int | None = None
    encoder_cache_size: int | None = None


class _Error(msgspec.Struct, gc=False):
    message: str = ""


class _Body(msgspec.Struct, gc=False):
    error: _Error


_decoder = msgspec.json.Decoder(_Body)


def learn_from_error(status: int, body: bytes) -> LearnedLimits | None:
    """The limit that a 400 of vLLM names; None for every other answer."""
    if status != 400:
        return None
    try:
        return learn_from_message(_decoder.decode(body).error.message)
    except (msgspec.DecodeError, RecursionError):
        return None


def misses_image(status: int, body: bytes) -> bool:
    """A 400 for an image that was only named, and that vLLM does not have."""
    if status != 400:
        return False
    try:
        return bool(_CACHE_MISS.fullmatch(_decoder.decode(body).error.message))
    except (msgspec.DecodeError, RecursionError):
        return False


def learn_from_message(message: str) -> LearnedLimits | None:
    """The limit that an error's text names, which inside a stream is all there is."""
    learned = LearnedLimits(
        image_limit=_number_in(_IMAGE_LIMIT, message), encoder_cache_size=_number_in(_ENCODER_CACHE, message)
    )
    return None if learned == LearnedLimits() else learned


def _number_in(pattern: re.Pattern[str], text: str) -> int | None:
    found = pattern.fullmatch(text)
    return int(found[1]) if found else None
