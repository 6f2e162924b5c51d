"""What is known of an image from its header, and what will be done with it."""

from dataclasses import dataclass
from enum import StrEnum

from gateway.domain.geometry import Size


class ImageFormat(StrEnum):
    """Formats that can be recognised; the value is the media subtype and the metric label."""

    JPEG = "jpeg"
    PNG = "png"
    WEBP = "webp"
    GIF = "gif"
    BMP = "bmp"
    TIFF = "tiff"
    AVIF = "avif"
    HEIC = "heic"
    ICO = "ico"


class Why(StrEnum):
    """Why an image is encoded anew (design: only for these reasons, and always in the same way)."""

    ORIENTATION = "orientation"
    ALPHA = "alpha"
    MODE = "mode"
    FRAMES = "frames"
    TRAILING_BYTES = "trailing_bytes"
    TOO_SMALL = "too_small"
    FORMAT = "format"
    RESIZE = "resize"


@dataclass(frozen=True, slots=True)
class ImageInfo:
    """An image as its header describes it.

    `stored` is the size in the file, `size` the one after EXIF orientation: the one that token counts use.
    `file_bytes` counts the decoded file, not its base64. `why` holds the reasons for encoding it anew that the header
    already shows; others (trailing bytes) only show when the file is decoded. `is_lossy` decides the output kind.
    `is_progressive`: decoding takes memory for every stored pixel, at whatever scale. `extra_bytes`: memory that
    decoding takes beside what each pixel of the format takes.
    """

    format: ImageFormat
    stored: Size
    size: Size
    orientation: int
    frames: int
    file_bytes: int
    is_lossy: bool
    why: frozenset[Why] = frozenset()
    is_progressive: bool = False
    extra_bytes: int = 0


class ImageAction(StrEnum):
    """What happened to one image; the metric label of `images_total`."""

    KEPT = "kept"
    NORMALISED = "normalised"
    RESIZED = "resized"
    TRIMMED = "trimmed"


@dataclass(frozen=True, slots=True)
class ImagePlan:
    """What is to be done with one image that stays in the request.

    `target` is the size after the plan (equal to `info.size` where it is left alone), `tokens` its cost then and
    `tokens_before` its cost as it came, both in prompt tokens of the image's placeholder. `resize_reason` names
    the cap that acted, for the headers and the log; None where no cap did.
    """

    ordinal: int
    info: ImageInfo
    target: Size
    tokens: int
    tokens_before: int
    resize_reason: str | None = None

    @property
    def is_resized(self) -> bool:
        return self.target != self.info.size
