"""Collects the images of one body in the order in which the model sees them, and beside them its videos and audio.

Every route's reader hands in what it finds; how an image is written there is noted, for whoever edits it.
"""

import msgspec

from gateway.domain.errors import Code, GatewayError
from gateway.domain.media import MediaRef
from gateway.domain.request import ImageRef, Path
from gateway.wire import read
from gateway.wire.content import ImagePart, MediaPart
from gateway.wire.data_url import is_remote
from gateway.wire.media_url import MediaUrl, read_media_url
from gateway.wire.parts import RawParts
from gateway.wire.read import ABSENT
from gateway.wire.spans import SpanFinder

# Those that are left out of the history are among them. A body of 32 MiB has so many if each is of 8 KB.
_MOST_IMAGES = 4096


class Images:
    """`found` and `media` are what was noted; `param` names the whole in the error that they are too many."""

    def __init__(self, body: bytes | bytearray, param: str = "messages") -> None:
        self.found: list[ImageRef] = []
        self.media: list[MediaRef] = []
        self._body = body
        self._param = param
        self._spans: SpanFinder | None = None
        self._raw_parts: RawParts | None = None

    def add(
        self,
        part: Path,
        param: str,
        url: msgspec.Raw,
        detail: str | None = None,
        *,
        is_bare_string: bool = False,
        has_uuid: bool = False,
        uuid: str | None = None,
        is_named_only: bool = False,
    ) -> int:
        """Note an image by its URL, a JSON string, or with `is_named_only` by what stands in its place; returns its
        ordinal. Raises GatewayError.
        """
        self._refuse_too_many()
        self._spans = self._spans or SpanFinder(self._body)
        self.found.append(
            ImageRef(
                ordinal=len(self.found),
                part=part,
                param=param,
                url=self._spans.span_of(url),
                detail=detail,
                is_bare_string=is_bare_string,
                has_uuid=has_uuid,
                uuid=uuid,
                is_named_only=is_named_only,
                is_remote=not is_named_only and is_remote(memoryview(url), param),
            )
        )
        return len(self.found) - 1

    def add_base64(self, part: Path, param: str, data: msgspec.Raw, media_type: msgspec.Raw = ABSENT) -> int:
        """Note an image by its file alone, and by what stands beside it of its kind. Raises GatewayError."""
        self._refuse_too_many()
        spans = self._spans = self._spans or SpanFinder(self._body)
        said = spans.span_of(media_type) if memoryview(media_type) else None
        self.found.append(ImageRef(len(self.found), part, param, spans.span_of(data), is_base64=True, media_type=said))
        return len(self.found) - 1

    def add_part(self, image: ImagePart, part: Path, path: str) -> int:
        """Note the image of a chat's part, which stands at `path`. Raises GatewayError."""
        if image.url is None:
            param, url = f"{path}.image_url", self._bare_url(part)
        else:
            param, url = f"{path}.image_url.url", image.url
        return self.add(
            part,
            param,
            url,
            image.detail,
            is_bare_string=image.is_bare_string,
            has_uuid=image.has_uuid,
            uuid=image.uuid,
            is_named_only=image.is_named_only,
        )

    def add_media(self, media: MediaPart, path: str) -> None:
        """Note a video or audio. Raises GatewayError."""
        self._refuse_too_many()
        param = f"{path}.{media.key}"
        host, frames = MediaUrl() if media.is_data else read_media_url(memoryview(media.url), param)
        self.media.append(MediaRef(media.kind, path, param, host, frames))

    def _refuse_too_many(self) -> None:
        if len(self.found) + len(self.media) == _MOST_IMAGES:
            raise GatewayError(
                Code.TOO_MANY_IMAGES,
                f"The request has more than {_MOST_IMAGES} images, those of earlier turns included. Send fewer.",
                param=self._param,
            )

    def _bare_url(self, part: Path) -> msgspec.Raw:
        """A string that stands beside an object in the type is decoded by msgspec; its place needs a second look."""
        self._raw_parts = self._raw_parts or RawParts(self._body)
        return read.decode_body(_bare_decoder, self._raw_parts.part(part)).image_url


class _BarePart(msgspec.Struct):
    image_url: msgspec.Raw


_bare_decoder = msgspec.json.Decoder(_BarePart)
