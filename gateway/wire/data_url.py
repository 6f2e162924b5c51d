r"""Data URLs of images: where header and payload stand, and whether vLLM would read them as they are spelled.

vLLM 0.32 (multimodal/media/connector.py `_load_data_url`, media/image.py `load_base64`) takes `data:` in any case,
wants exactly `;base64` before the first comma, ignores the media type and decodes strictly: no blanks, full padding.
The gateway repairs what has one meaning only (case, blanks, line breaks, missing padding) and refuses the rest.
A header is at most 1,024 bytes long, blanks before it included; vLLM takes any.
A strict URL is read without copying its payload; one whose slashes alone are escaped (`\/`, as PHP writes them) is
copied once, at memory speed.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from gateway.domain.errors import Code, GatewayError
from gateway.domain.request import ImageRef, Span
from gateway.wire.encoded_file import EncodedFile
from gateway.wire.read import decode_body

_BLANKS = " \t\r\n\f\v"
_REMOTE_SCHEME = re.compile(r"https?:", re.IGNORECASE)
_OTHER_ESCAPE = re.compile(rb"\\[^/]")
_WINDOW_BYTES = 64 * 1024
_MOST_HEADER_BYTES = 1024  # one of megabytes holds every thread up for a third of a second (measured)
_STRICT_HEADER = re.compile(rb"data:[!-~]*;base64,")
_string_decoder = msgspec.json.Decoder(str)


@dataclass(frozen=True, slots=True)
class DataUrl:
    """A data URL in a body, or base64 without one.

    `media_type` as declared, lower case, "" where there is none. `header` spans the body from after the opening
    quote to the comma inclusive, `payload` from there to before the closing quote; both are None where the string
    has escapes, blanks or lacks padding, so that only the whole URL can be written anew. `needs_respelling` says
    that vLLM would refuse or misread the spelling, so the URL must not go on as it came. `copied_bytes` is what `file`
    holds beside the body, 0 where it is a view of it.
    """

    media_type: str
    header: Span | None
    payload: Span | None
    file: EncodedFile
    needs_respelling: bool
    copied_bytes: int = 0


def is_remote(url: memoryview, param: str) -> bool:
    """Whether a JSON string, with its quotes, is an http(s) address and not a data URL.

    Raises GatewayError invalid_image_url for what is neither.
    """
    if bytes(url[1:6]).lower() == b"data:":
        return False
    text = decode_body(_string_decoder, msgspec.Raw(url))[:_MOST_HEADER_BYTES].lstrip(_BLANKS)
    if text[:5].lower() == "data:":
        return False
    if _REMOTE_SCHEME.match(text):
        return True
    raise _invalid_url(
        "An image must be a data URL (data:image/png;base64,...) or an http(s) address; no other scheme is read.", param
    )


def read_data_url(body: bytes | bytearray, ref: ImageRef) -> DataUrl:
    """The data URL at `ref.url`. Raises GatewayError invalid_image_url or invalid_base64_image.

    The payload may be a view of `body`. Characters outside the alphabet show only when it is decoded.
    """
    return read_in_place(body, ref) or read_spelled(body, ref)


def read_in_place(body: bytes | bytearray, ref: ImageRef) -> DataUrl | None:
    """What `read_data_url` gives, where no byte need be copied or changed; None elsewhere."""
    start, end = ref.url.start + 1, ref.url.end - 1
    if not _is_plain(body, start, end):
        return None
    if ref.is_base64:
        return _alone(body, ref, memoryview(body)[start:end])
    return _read_in_place(body, start, end, ref.param)


def read_spelled(body: bytes | bytearray, ref: ImageRef) -> DataUrl:
    """What `read_data_url` gives, where there are escapes or blanks: two milliseconds or more for each megabyte."""
    start, end = ref.url.start + 1, ref.url.end - 1
    if not _has_other_escape(body, start, end):
        url = _without_backslashes(body, start, end)
        if b" " not in url:
            return _alone(body, ref, url) if ref.is_base64 else _read_copy(url, ref.param)
    text = decode_body(_string_decoder, msgspec.Raw(memoryview(body)[ref.url.start : ref.url.end]))
    return _read_alone(body, ref, text) if ref.is_base64 else _read_text(text, ref.param)


def _alone(body: bytes | bytearray, ref: ImageRef, payload: memoryview | bytes) -> DataUrl:
    """Base64 without a URL around it, as it stands or with its slashes unescaped."""
    file = EncodedFile(payload, ref.param)
    _refuse_empty(file)
    copied_bytes = len(payload) if isinstance(payload, bytes) else 0
    return DataUrl(_declared(body, ref), None, None, file, bool(len(payload) % 4), copied_bytes)


def _read_alone(body: bytes | bytearray, ref: ImageRef, text: str) -> DataUrl:
    payload = _without_blanks(text)
    file = EncodedFile(payload, ref.param)
    _refuse_empty(file)
    is_strict = len(payload) == len(text) and not len(payload) % 4
    return DataUrl(_declared(body, ref), None, None, file, not is_strict, len(payload))


def _declared(body: bytes | bytearray, ref: ImageRef) -> str:
    """What stands beside base64 without a URL; "" where nothing does."""
    if ref.media_type is None:
        return ""
    start, end = ref.media_type
    return decode_body(_string_decoder, msgspec.Raw(memoryview(body)[start:end])).lower()


def _is_plain(body: bytes | bytearray, start: int, end: int) -> bool:
    """No escape and no blank: what stands between the quotes is the URL itself."""
    return body.find(b"\\", start, end) < 0 and body.find(b" ", start, end) < 0


def _has_other_escape(body: bytes | bytearray, start: int, end: int) -> bool:
    """Window by window, which overlap by a byte: between them other threads get their turn."""
    windows = range(start, end, _WINDOW_BYTES)
    return any(_OTHER_ESCAPE.search(body, at, min(at + _WINDOW_BYTES + 1, end)) for at in windows)


def _without_backslashes(body: bytes | bytearray, start: int, end: int) -> bytes:
    """Where every backslash stands before a slash, this unescapes."""
    return _without(b"\\", (body[at : min(at + _WINDOW_BYTES, end)] for at in range(start, end, _WINDOW_BYTES)))


def _without(characters: bytes, pieces: Iterable[bytes | bytearray]) -> bytes:
    """Piece by piece: pieces stay in the processor's cache, which makes it twice as fast, and between them other
    threads get their turn.
    """
    return b"".join([piece.translate(None, characters) for piece in pieces])


def _without_blanks(text: str, start: int = 0) -> bytes:
    pieces = (text[at : at + _WINDOW_BYTES].encode() for at in range(start, len(text), _WINDOW_BYTES))
    return _without(_BLANKS.encode(), pieces)


def _read_in_place(body: bytes | bytearray, start: int, end: int, param: str) -> DataUrl:
    comma = body.find(b",", start, min(start + _MOST_HEADER_BYTES, end))
    header = bytes(body[start : comma + 1])
    media_type = _media_type(header.decode(errors="replace"), param)
    file = EncodedFile(memoryview(body)[comma + 1 : end], param)
    _refuse_empty(file)
    if len(file.payload) % 4:
        return DataUrl(media_type, None, None, file, needs_respelling=True)
    strict = _STRICT_HEADER.fullmatch(header) is not None
    return DataUrl(media_type, Span(start, comma + 1), Span(comma + 1, end), file, needs_respelling=not strict)


def _read_copy(url: bytes, param: str) -> DataUrl:
    comma = url.find(b",", 0, _MOST_HEADER_BYTES)
    media_type = _media_type(url[: comma + 1].decode(errors="replace"), param)
    file = EncodedFile(memoryview(url)[comma + 1 :], param)
    _refuse_empty(file)
    strict = _STRICT_HEADER.fullmatch(url, 0, comma + 1) is not None and not len(file.payload) % 4
    return DataUrl(media_type, None, None, file, needs_respelling=not strict, copied_bytes=len(url))


def _read_text(text: str, param: str) -> DataUrl:
    comma = text.find(",", 0, _MOST_HEADER_BYTES)
    header = text[: comma + 1].lstrip(_BLANKS)
    media_type = _media_type(header, param)
    file = EncodedFile(_without_blanks(text, comma + 1), param)
    _refuse_empty(file)
    # Blanks around the whole, blanks in the payload, and missing padding each show in a length.
    is_plain = text.isascii() and len(text) == len(header) + len(file.payload) and not len(file.payload) % 4
    strict = is_plain and _STRICT_HEADER.fullmatch(header.encode()) is not None
    return DataUrl(media_type, None, None, file, needs_respelling=not strict, copied_bytes=len(file.payload))


def _media_type(header: str, param: str) -> str:
    """The declared media type of `data:image/png;charset=utf-8;base64,`."""
    if not header.endswith(","):
        raise _invalid_url(
            f"The first {_MOST_HEADER_BYTES} bytes of the data URL have no comma, with which its header ends. "
            "Write data:image/png;base64,...",
            param,
        )
    media_type, separator, encoding = header[len("data:") : -1].rpartition(";")
    if not separator or encoding.strip(_BLANKS).lower() != "base64":
        raise _invalid_url("Only base64 data URLs are read (data:image/png;base64,...).", param)
    return media_type.partition(";")[0].strip(_BLANKS).lower()


def _refuse_empty(file: EncodedFile) -> None:
    if not len(file.payload):
        raise GatewayError(Code.INVALID_BASE64_IMAGE, "The image's base64 is empty.", param=file.param)


def _invalid_url(sentence: str, param: str) -> GatewayError:
    return GatewayError(Code.INVALID_IMAGE_URL, f"`{param}`: {sentence}", param=param)
