"""What an image is, from its header alone: format, size as the model will see it, reasons for encoding it anew.

No pixel is decoded here. A refused request costs one look at the first kilobyte of each image's base64. `glance` is for
the event loop and gives up where a header takes more than that; `probe` takes what it needs and belongs in a thread.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Protocol

from gateway.domain.errors import Code, GatewayError
from gateway.domain.image import ImageFormat, ImageInfo, Why
from gateway.imaging.header.base import BrokenHeaderError, Header, ShortHeaderError, Steps, TooManyStepsError
from gateway.imaging.header.gif import read_gif
from gateway.imaging.header.jpeg import read_jpeg
from gateway.imaging.header.opened import read_opened
from gateway.imaging.header.png import SIGNATURE, read_png
from gateway.imaging.header.webp import read_webp
from gateway.imaging.limits import ImageLimits, worst_job_bytes
from gateway.imaging.pillow import DECODABLE
from gateway.wire.encoded_file import EncodedFile

__all__ = ["ImageLimits", "glance", "probe", "recognise"]

_FIRST_READ_BYTES = 1024
_SECOND_READ_BYTES = 64 << 10
_GROWTH = 8
_TAIL_CHARACTERS = 4 << 10
_SWAPS_SIDES = 5  # EXIF orientations from 5 on lay the picture on its side

_AVIF_BRANDS = frozenset({b"avif", b"avis"})
_HEIC_BRANDS = frozenset({b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis"})
_CONTAINER_BRANDS = frozenset({b"mif1", b"msf1"})
_TIFF_STARTS = (b"II*\x00", b"MM\x00*", b"II+\x00", b"MM\x00+")
_STARTS: tuple[tuple[bytes, ImageFormat], ...] = (
    (b"\xff\xd8\xff", ImageFormat.JPEG),
    (SIGNATURE, ImageFormat.PNG),
    (b"GIF87a", ImageFormat.GIF),
    (b"GIF89a", ImageFormat.GIF),
    (b"BM", ImageFormat.BMP),
    (b"\x00\x00\x01\x00", ImageFormat.ICO),
    *((start, ImageFormat.TIFF) for start in _TIFF_STARTS),
)
_FOREIGN = (
    (re.compile(rb"\s*%PDF-"), "a PDF document; send its pages as images"),
    (re.compile(rb"(?s).{0,512}<svg[\s>]"), "an SVG drawing; send it as PNG"),
    (re.compile(rb"(?is)\s*<(!doctype html|html)"), "an HTML page, perhaps an error page of a download"),
    (re.compile(rb"[\x09\x0a\x0d\x20-\x7e]+\Z"), "text"),
)


class _Parser(Protocol):
    def __call__(self, data: bytes, steps: Steps) -> Header: ...


_PARSERS: dict[ImageFormat, _Parser] = {
    ImageFormat.JPEG: read_jpeg,
    ImageFormat.WEBP: read_webp,
    ImageFormat.GIF: read_gif,
}


def glance(file: EncodedFile, limits: ImageLimits, param: str) -> ImageInfo | None:
    """What `probe` says, where it takes at most about two milliseconds; None where only `probe` can tell.

    None is every BMP, TIFF and AVIF, and a header that is longer than 64 KB, made of very many parts, or in part
    Pillow's to read (PNG text). Raises as `probe` does.
    """
    with _about(param):
        head, image_format = _recognised(file, limits)
        parser = _parser(file, image_format)
        if parser is None:
            return None
        try:
            return _judged(_read_briefly(file, head, parser), file, limits)
        except (ShortHeaderError, TooManyStepsError):
            return None
        except BrokenHeaderError as error:
            raise _damaged(image_format, error) from error


def probe(file: EncodedFile, limits: ImageLimits, param: str) -> ImageInfo:
    """Its time and memory grow with the bytes of the file, whatever is in them.

    Raises GatewayError (status 400, `param` named): EMPTY_IMAGE_FILE, UNSUPPORTED_IMAGE_MEDIA_TYPE, IMAGE_TOO_LARGE,
    IMAGE_PARSE_ERROR, INVALID_IMAGE_DIMENSIONS, and INVALID_BASE64_IMAGE from reading the file.
    """
    with _about(param):
        head, image_format = _recognised(file, limits)
        parser = _parser(file, image_format)
        try:
            header = _read_growing(file, head, parser) if parser else read_opened(file.decode(), image_format)
        except BrokenHeaderError as error:
            raise _damaged(image_format, error) from error
        return _judged(header, file, limits)


def recognise(head: bytes) -> ImageFormat | None:
    """The format that the first bytes name; None for all that is no image of a known format."""
    for start, image_format in _STARTS:
        if head.startswith(start):
            return image_format
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return ImageFormat.WEBP
    return _recognise_boxes(head) if head[4:8] == b"ftyp" else None


@contextmanager
def _about(param: str) -> Iterator[None]:
    """Names the part in errors that do not name one."""
    try:
        yield
    except GatewayError as error:
        raise error if error.param else GatewayError(error.code, error.message, param=param) from error


def _recognised(file: EncodedFile, limits: ImageLimits) -> tuple[bytes, ImageFormat]:
    """The first kilobyte, and what it is."""
    _check_bytes(file.file_bytes, limits)
    head = file.prefix(_FIRST_READ_BYTES)
    return head, _accepted_format(head, limits)


def _recognise_boxes(head: bytes) -> ImageFormat | None:
    major = head[8:12]
    box_end = min(int.from_bytes(head[:4], "big"), len(head))
    brands = {head[start : start + 4] for start in range(16, box_end - 3, 4)}
    if major in _AVIF_BRANDS or (major in _CONTAINER_BRANDS and brands & _AVIF_BRANDS):
        return ImageFormat.AVIF
    if major in _HEIC_BRANDS | _CONTAINER_BRANDS:
        return ImageFormat.HEIC
    return None


def _check_bytes(file_bytes: int, limits: ImageLimits) -> None:
    if not file_bytes:
        raise GatewayError(Code.EMPTY_IMAGE_FILE, "The image is empty: its data URL carries no bytes.")
    if file_bytes > limits.max_bytes:
        raise GatewayError(
            Code.IMAGE_TOO_LARGE,
            f"The image file has {file_bytes} bytes; at most {limits.max_bytes} are allowed. "
            "Send it smaller, or as JPEG.",
        )


def _accepted_format(head: bytes, limits: ImageLimits) -> ImageFormat:
    image_format = recognise(head)
    if image_format is not None and image_format in limits.formats & DECODABLE:
        return image_format
    accepted = ", ".join(sorted(limits.formats & DECODABLE))
    what = f"in the format {image_format}, which is not accepted" if image_format else f"not an image: {_guess(head)}"
    raise GatewayError(
        Code.UNSUPPORTED_IMAGE_MEDIA_TYPE, f"The data is {what}. Accepted formats: {accepted}; the bytes decide."
    )


def _guess(head: bytes) -> str:
    return next((f"it looks like {name}" for pattern, name in _FOREIGN if pattern.match(head)), "its start is unknown")


def _parser(file: EncodedFile, image_format: ImageFormat) -> _Parser | None:
    """None for the formats that Pillow reads."""
    if image_format is ImageFormat.PNG:
        return partial(read_png, tail=_tail(file))
    return _PARSERS.get(image_format)


def _read_briefly(file: EncodedFile, head: bytes, parse: _Parser) -> Header:
    """From 1 KB, then 64 KB."""
    try:
        return parse(head, Steps(Steps.INLINE))
    except ShortHeaderError:
        return parse(file.prefix(_SECOND_READ_BYTES), Steps(Steps.INLINE))


def _read_growing(file: EncodedFile, data: bytes, parse: _Parser) -> Header:
    """1 KB, then 64 KB, then as far as segment lengths point, at least eightfold: all reads cost little more than one.

    Each parse begins anew, so its steps are counted anew.
    """
    while True:
        try:
            return parse(data, Steps())
        except ShortHeaderError as short:
            if len(data) >= file.file_bytes:
                raise BrokenHeaderError(f"the file ends at byte {len(data)}, inside the header") from short
            data = file.prefix(max(short.needed_bytes, _SECOND_READ_BYTES, _GROWTH * len(data)))
        except TooManyStepsError as error:
            raise BrokenHeaderError(f"it is made of more than {Steps.ALL} parts") from error


def _damaged(image_format: ImageFormat, error: BrokenHeaderError) -> GatewayError:
    return GatewayError(
        Code.IMAGE_PARSE_ERROR, f"The {image_format} header is damaged: {error}. Encode the image anew."
    )


def _tail(file: EncodedFile) -> bytes:
    """The end of a file that is longer than the first read, on a boundary of four characters."""
    start = max(0, len(file.payload) - _TAIL_CHARACTERS) // 4 * 4
    return EncodedFile(file.payload[start:], file.param).decode()


def _judged(header: Header, file: EncodedFile, limits: ImageLimits) -> ImageInfo:
    _check_size(header, limits)
    info = _describe(header, file.file_bytes)
    _check_memory(info, limits)
    return info


def _check_size(header: Header, limits: ImageLimits) -> None:
    size = header.stored
    if not size.pixels:
        raise GatewayError(Code.INVALID_IMAGE_DIMENSIONS, f"The image is {size} pixels; no side may be zero.")
    most = limits.pixel_setting(header.format, is_progressive=header.is_progressive)
    if size.pixels > most:
        raise GatewayError(
            Code.IMAGE_TOO_LARGE,
            f"The image is {size} = {size.pixels} pixels; at most {most} are allowed for {_kind(header)}. "
            "Scale it down.",
        )
    if size.aspect_ratio > limits.max_aspect_ratio:
        raise GatewayError(
            Code.INVALID_IMAGE_DIMENSIONS,
            f"The image is {size}: its sides differ {size.aspect_ratio:.0f} times; "
            f"at most {limits.max_aspect_ratio:g} times is allowed. Crop or split it.",
        )


def _kind(image: Header | ImageInfo) -> str:
    return "progressive jpeg" if image.is_progressive else str(image.format)


def _check_memory(info: ImageInfo, limits: ImageLimits) -> None:
    needed_bytes = worst_job_bytes(info)
    if needed_bytes > limits.decode_bytes:
        most = limits.pixel_limit(info.format, is_progressive=info.is_progressive)
        raise GatewayError(
            Code.IMAGE_TOO_LARGE,
            f"The image is {info.stored} = {info.stored.pixels} pixels of {_kind(info)}: decoding it may take "
            f"{needed_bytes} bytes, and this gateway has {limits.decode_bytes} for that (budget.decode_bytes), enough "
            f"for about {most} pixels. Scale it down, or send it as JPEG.",
        )


def _describe(header: Header, file_bytes: int) -> ImageInfo:
    is_turned = header.orientation != 1
    return ImageInfo(
        format=header.format,
        stored=header.stored,
        size=header.stored.transposed if header.orientation >= _SWAPS_SIDES else header.stored,
        orientation=header.orientation,
        frames=header.frames,
        file_bytes=file_bytes,
        is_lossy=header.is_lossy,
        why=header.why | {Why.ORIENTATION} if is_turned else header.why,
        is_progressive=header.is_progressive,
        extra_bytes=header.extra_bytes,
    )
