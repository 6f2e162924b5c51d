"""Addresses of videos and audio, which go on to vLLM as they came: nothing in them is repaired.

So only what vLLM 0.32 (multimodal/media/connector.py, media/video.py) and this module are sure to read alike passes:
data URLs with a strict header, and plain http(s) addresses whose host every reader finds in the same place. What vLLM
would fetch itself is told by its host; whom it may ask is domain/media.py's.
"""

import re
from typing import NamedTuple

import msgspec

from gateway.domain.errors import Code, GatewayError

_MOST_HEADER_BYTES = 1024
_MOST_ADDRESS_BYTES = 8192
_WINDOW_BYTES = 64 * 1024
_STRICT_HEADER = re.compile(r"data:([!-+\--~]*);base64,", re.IGNORECASE)
# No user, no blank, no backslash, no bracket in the host: readers of addresses differ over these.
_ADDRESS = re.compile(r"https?://([a-z0-9][a-z0-9.-]*)(?::[0-9]{1,5})?(?:[/?#][!-\[\]-~]*)?", re.IGNORECASE | re.ASCII)
_FRAMES_TYPE = "video/jpeg"
"""Of a video that is a list of JPEG files in base64, with commas between them."""

_string_decoder = msgspec.json.Decoder(str)


class MediaUrl(NamedTuple):
    """`host` is whom vLLM would ask, None for data; `frames` how many there are at most, None where the file tells."""

    host: str | None = None
    frames: int | None = None


def read_media_url(url: memoryview, param: str) -> MediaUrl:
    """What a JSON string, with its quotes, leads to. Raises GatewayError invalid_content_part."""
    if bytes(url[1:6]).lower() == b"data:":
        return _read_data_url(url, param)
    if len(url) <= _MOST_ADDRESS_BYTES:
        found = _ADDRESS.fullmatch(_text(url))
        if found is not None:
            return MediaUrl(host=found[1].lower())
    raise _refusal(
        param,
        "must be a data URL (data:video/mp4;base64,...) or a plain http(s) address without a user, of at most "
        f"{_MOST_ADDRESS_BYTES} bytes.",
    )


def _read_data_url(url: memoryview, param: str) -> MediaUrl:
    head, comma, _ = bytes(url[1 : _MOST_HEADER_BYTES + 1]).partition(b",")
    strict = _STRICT_HEADER.fullmatch(_text(b'"%b%b"' % (head, comma)))
    # vLLM wants the word itself in lower case.
    if strict is None or not strict[0].endswith(";base64,"):
        raise _refusal(
            param,
            f"must begin as data:video/mp4;base64, does: a media type, `base64` and a comma, without blanks and within "
            f"{_MOST_HEADER_BYTES} bytes.",
        )
    if strict[1].partition(";")[0].lower() != _FRAMES_TYPE:
        return MediaUrl()
    return MediaUrl(frames=_frames(url[len(head) + 2 : -1]))


def _frames(payload: memoryview) -> int | None:
    """Files between commas; None where a comma could be escaped. Window by window, for nothing need be copied whole."""
    frames = 1
    for start in range(0, len(payload), _WINDOW_BYTES):
        window = bytes(payload[start : start + _WINDOW_BYTES])
        if b"\\" in window:
            return None
        frames += window.count(b",")
    return frames


def _text(string: bytes | memoryview) -> str:
    """Of a JSON string, or of the beginning of one; empty where it is cut inside an escape."""
    try:
        return _string_decoder.decode(string)
    except msgspec.DecodeError:
        return ""


def _refusal(param: str, sentence: str) -> GatewayError:
    return GatewayError(Code.INVALID_CONTENT_PART, f"`{param}` {sentence}", param=param)
