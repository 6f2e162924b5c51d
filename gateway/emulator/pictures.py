"""Pictures as vLLM loads them: data URL, base64, Pillow open, EXIF transpose, RGB. Finds sizes; keeps no pixels.

Follows `multimodal/media/connector.py`, `image.py` and `multimodal/image.py`. No URL is ever fetched. Decoding blocks,
so the caller runs `load` in a thread; `PictureCache` is touched from the event loop only.
"""

import contextlib
import hashlib
import io
from collections import OrderedDict
from dataclasses import dataclass
from urllib.parse import urlsplit

import pybase64
from PIL import Image, ImageOps

from gateway.emulator.errors import ApiError, bad_request, internal_error

_DENIED_FORMATS = ("EPS", "WMF", "BUFR", "GRIB", "HDF5", "MPEG")
_MAX_PIXELS = 178_956_970
_FRAMES_TYPE = "video/jpeg"
_MOST_FRAMES = 32
Image.init()
_ALLOWED_FORMATS = tuple(name for name in sorted(Image.OPEN) if name not in _DENIED_FORMATS)


@dataclass(frozen=True, slots=True)
class Picture:
    """Size in pixels after orientation, and the identity that vLLM's caches know it by (hash of the bytes). A video has
    `frames` of that size, an image none.
    """

    width: int
    height: int
    identity: bytes
    frames: int = 0

    @property
    def pixels(self) -> int:
        return self.width * self.height * max(1, self.frames)


def load(url: str) -> Picture:
    """Decode the picture behind a URL completely. Raises ApiError with vLLM's answer for what cannot be loaded."""
    return _picture(_bytes_behind(url))


def load_video(url: str) -> Picture:
    """A list of JPEG files, which vLLM takes for a video; nothing here decodes any other. Raises ApiError."""
    if url[:5].lower() != "data:":
        _bytes_behind(url)
    media_type, payload = _split_data_url(url)
    if media_type.lower() != _FRAMES_TYPE:
        raise bad_request("Could not open video stream")
    frames = [_picture(_decoded(frame)) for frame in payload.split(",", _MOST_FRAMES)[:_MOST_FRAMES]]
    if len({(frame.width, frame.height) for frame in frames}) > 1:
        raise bad_request("all input arrays must have the same shape")
    identity = hashlib.blake2b(payload.encode(), digest_size=16).digest()
    return Picture(frames[0].width, frames[0].height, identity, len(frames))


def _picture(data: bytes) -> Picture:
    width, height = _decoded_size(data)
    return Picture(width, height, hashlib.blake2b(data, digest_size=16).digest())


def _bytes_behind(url: str) -> bytes:
    if url[:5].lower() == "data:":
        return _decoded(_split_data_url(url)[1])
    try:
        scheme = urlsplit(url).scheme
    except ValueError:
        scheme = ""
    if scheme.startswith("http"):
        raise _connection_refused(url)
    if scheme == "file":
        raise internal_error("Cannot load local files without `--allowed-local-media-path`.")
    raise bad_request("The URL must be either a HTTP, data or file URL.")


def _split_data_url(url: str) -> tuple[str, str]:
    """Media type and payload."""
    head, comma, payload = url[5:].partition(",")
    if not comma:
        raise bad_request(f"Invalid data URL {url[:32]!r}: missing ',' separator.")
    media_type, semicolon, encoding = head.rpartition(";")
    if not semicolon or encoding != "base64":
        raise ApiError(501, "NotImplementedError", "Only base64 data URLs are supported for now.")
    return media_type.partition(";")[0], payload


def _decoded(payload: str) -> bytes:
    try:
        return pybase64.b64decode(payload, validate=True)
    except ValueError as problem:
        raise bad_request(str(problem)) from problem


def _connection_refused(url: str) -> ApiError:
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    reason = "Name or service not known" if host.endswith(".invalid") else f"Connect call failed ('{host}', {port})"
    return internal_error(f"Cannot connect to host {host}:{port} ssl:default [{reason}]")


def _decoded_size(data: bytes) -> tuple[int, int]:
    try:
        with Image.open(io.BytesIO(data), formats=_ALLOWED_FORMATS) as opened:
            _check_pixels(opened.width * opened.height)
            picture: Image.Image = opened
            with contextlib.suppress(Exception):  # vLLM suppresses it too: damaged EXIF is no reason to refuse
                picture = ImageOps.exif_transpose(opened)
            picture.load()
            return picture.convert("RGB").size
    except ApiError:
        raise
    except OSError as problem:
        raise bad_request(f"Failed to load image: {_without_address(str(problem))}") from problem
    except (ValueError, TypeError, OverflowError) as problem:
        raise bad_request(str(problem)) from problem
    except Exception as problem:  # vLLM answers 500 to whatever else its image library raises
        raise internal_error(str(problem)) from problem


def _check_pixels(pixels: int) -> None:
    """Pillow's limit at vLLM's setting, whatever this process has made of Pillow's own."""
    if pixels > _MAX_PIXELS:
        raise internal_error(
            f"Image size ({pixels} pixels) exceeds limit of {_MAX_PIXELS} pixels, "
            "could be decompression bomb DOS attack."
        )


def _without_address(message: str) -> str:
    head, found, _ = message.partition(" at 0x")
    return f"{head}>" if found else message


class PictureCache:
    """vLLM's processor cache: what was processed before costs no preprocessing, and answers a lone uuid."""

    def __init__(self, capacity_pictures: int = 4_096) -> None:
        self._pictures: OrderedDict[bytes, Picture] = OrderedDict()
        self._capacity_pictures = capacity_pictures
        self.queries = 0
        self.hits = 0

    def look_up(self, key: bytes) -> Picture | None:
        """The picture kept under a content hash or uuid; counts as vLLM's mm_cache metrics do."""
        self.queries += 1
        picture = self._pictures.get(key)
        if picture is not None:
            self.hits += 1
            self._pictures.move_to_end(key)
        return picture

    def clear(self) -> None:
        """As vLLM's `/reset_mm_cache`."""
        self._pictures.clear()

    def keep(self, key: bytes, picture: Picture) -> None:
        self._pictures[key] = picture
        if len(self._pictures) > self._capacity_pictures:
            self._pictures.popitem(last=False)
