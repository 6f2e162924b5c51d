"""The tokenizer of the minimal Qwen model: one UTF-8 byte is one token, every special spelling is one token.

Its 512 ids: 0-255 the bytes in the order of byte-level BPE's alphabet, 256-497 syllables that only come out of the
model, 498-511 the special tokens. Token sequences are `array("H")`: two bytes a token, sliced and hashed cheaply.
"""

import re
from array import array
from collections.abc import Iterable
from typing import TypeAlias

Tokens: TypeAlias = "array[int]"

SPECIALS = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>",
    "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>",
    "<|image_pad|>", "<|video_pad|>",
)  # fmt: skip
FIRST_SYLLABLE, FIRST_SPECIAL = 256, 498
SPECIAL_IDS = {spelling: FIRST_SPECIAL + place for place, spelling in enumerate(SPECIALS)}
IM_END, VISION_START, VISION_END = (SPECIAL_IDS[name] for name in ("<|im_end|>", "<|vision_start|>", "<|vision_end|>"))
IMAGE_PAD = SPECIAL_IDS["<|image_pad|>"]
VIDEO_PAD = SPECIAL_IDS["<|video_pad|>"]
VOCABULARY_SIZE = FIRST_SPECIAL + len(SPECIALS)

_SPECIAL_PATTERN = re.compile("(" + "|".join(re.escape(spelling) for spelling in SPECIALS) + ")")


def _byte_alphabet() -> list[int]:
    """Code point that byte-level BPE writes for each byte: printable ones stay, the rest follow from 256 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = [byte for byte in range(256) if byte not in printable]
    return [byte if byte in printable else 256 + hidden.index(byte) for byte in range(256)]


_CODE_POINTS = _byte_alphabet()
_RANKED = sorted(range(256), key=_CODE_POINTS.__getitem__)
_ID_OF_BYTE = bytes(_RANKED.index(byte) for byte in range(256))
_SYLLABLES = [f" {first}{vowel}{last}" for first in "bdfgklmnprstvz" for vowel in "aeiou" for last in "nrs-x"]
_BYTES_OF_ID = (
    [bytes([byte]) for byte in _RANKED]
    + [syllable.encode() for syllable in _SYLLABLES[: FIRST_SPECIAL - FIRST_SYLLABLE]]
    + [spelling.encode() for spelling in SPECIALS]
)
SYLLABLE_TEXTS = [token.decode() for token in _BYTES_OF_ID[FIRST_SYLLABLE:FIRST_SPECIAL]]


def encode(text: str) -> Tokens:
    """Token ids of a text; special spellings inside it are special tokens, as in vLLM."""
    if "<|" not in text:
        return _encode_plain(text)
    tokens = array("H")
    for place, piece in enumerate(_SPECIAL_PATTERN.split(text)):
        if place % 2:
            tokens.append(SPECIAL_IDS[piece])
        else:
            tokens.extend(_encode_plain(piece))
    return tokens


def _encode_plain(text: str) -> Tokens:
    return array("H", list(text.encode("utf-8", "surrogatepass").translate(_ID_OF_BYTE)))


def decode(ids: Iterable[int]) -> str:
    """Text of token ids; bytes that are no UTF-8 become the replacement character. Raises IndexError for other ids."""
    return b"".join(_BYTES_OF_ID[token] for token in ids).decode("utf-8", "replace")


def token_strings(ids: Iterable[int]) -> list[str]:
    """The vocabulary's spelling of each id: bytes in byte-level BPE's alphabet."""
    return [
        _BYTES_OF_ID[token].decode()
        if token >= FIRST_SPECIAL
        else "".join(chr(_CODE_POINTS[byte]) for byte in _BYTES_OF_ID[token])
        for token in ids
    ]
