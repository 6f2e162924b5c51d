"""What vLLM's refusals tell of its limits, which it states nowhere else.

The texts are those of 0.32 (renderers/chat_utils.py, v1/engine/input_processor.py, renderers/params.py).
"""

import re
from dataclasses import dataclass

import msgspec

_IMAGE_LIMIT = re.compile(r"At most (\d+) image\(s\) may be provided")
_ENCODER_CACHE = re.compile(r"exceeds the pre-allocated encoder cache size (\d+)")
_MODEL_LENGTH = re.compile(
    r"maximum context length is (\d+) tokens"
    r"|maximum context length \((\d+)\)"
    r"|cannot be greater than max_model_len=(\d+)"
)


@dataclass(frozen=True, slots=True)
class LearnedLimits:
    """Limits named in one error; the others are None. Images per prompt, encoder embeddings per item, tokens."""

    image_limit: int | None = None
    encoder_cache_size: int | None = None
    max_model_len: int | None = None


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
    except msgspec.DecodeError:
        return None


def learn_from_message(message: str) -> LearnedLimits | None:
    """The limit that an error's text names, which inside a stream is all there is."""
    learned = LearnedLimits(
        _first_number(_IMAGE_LIMIT, message),
        _first_number(_ENCODER_CACHE, message),
        _first_number(_MODEL_LENGTH, message),
    )
    return None if learned == LearnedLimits() else learned


def _first_number(pattern: re.Pattern[str], text: str) -> int | None:
    found = pattern.search(text)
    return int(next(group for group in found.groups() if group is not None)) if found else None
