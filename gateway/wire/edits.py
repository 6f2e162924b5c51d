"""The splices of a request: another image in an image's place, a text in its place, its uuid taken out.

They are the same on every route: how an image stands there says its ImageRef.

What is not edited stays as it was spelled. Where a key stands twice, vLLM reads the last one, and that one is edited.
"""

from dataclasses import dataclass

import msgspec

from gateway.domain.request import ImageRef, Span, VisionRequest
from gateway.wire.data_url import DataUrl
from gateway.wire.parts import RawParts
from gateway.wire.read import decode_body
from gateway.wire.spans import SpanFinder
from gateway.wire.splice import Splice

_members_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


@dataclass(frozen=True, slots=True)
class PartSpans:
    """Where the part of an image stands, and the values of its keys: of duplicate keys the last, as vLLM reads it.

    Of an image without a uuid only the part: nothing needs the others.
    """

    part: Span
    values: dict[str, Span]


def locate_parts(body: bytes | bytearray, request: VisionRequest) -> dict[int, PartSpans]:
    """The whole parts of the request's images, by ordinal. A second pass over the body: only where it is needed."""
    raw_parts = RawParts(body)
    spans = SpanFinder(body)
    return {ref.ordinal: _locate(spans, raw_parts, ref) for ref in request.images}


def _locate(spans: SpanFinder, raw_parts: RawParts, ref: ImageRef) -> PartSpans:
    part = raw_parts.part(ref.part)
    members = decode_body(_members_decoder, part) if ref.has_uuid else {}
    return PartSpans(spans.span_of(part), {key: spans.span_of(value) for key, value in members.items()})


def edit_image_url(
    ref: ImageRef, data_url: DataUrl, media_type: str, encoded_base64: bytes | None = None
) -> tuple[Splice, ...]:
    """Splices that make the image one that vLLM reads as `media_type`; none where it is one already.

    `encoded_base64` is the new file, in strict base64; None keeps the file that came. A bare string becomes an object.
    """
    if ref.is_base64:
        return _base64(ref, data_url, media_type, encoded_base64)
    if encoded_base64 is None and _is_right(ref, data_url, media_type):
        return ()
    header = f"data:{media_type};base64,".encode()
    return (*_url(ref, data_url, header, encoded_base64), *_object_around(ref))


def keep_image_url(ref: ImageRef) -> tuple[Splice, ...]:
    """Splices that leave the URL as it came and make a bare string an object."""
    return _object_around(ref)


def _url(ref: ImageRef, data_url: DataUrl, header: bytes, encoded_base64: bytes | None) -> tuple[Splice, ...]:
    if data_url.header is None or data_url.payload is None:
        payload = data_url.file.padded() if encoded_base64 is None else encoded_base64
        return (Splice(Span(ref.url.start + 1, ref.url.end - 1), header + payload),)
    if encoded_base64 is None:
        return (Splice(data_url.header, header),)
    return (Splice(data_url.header, header), Splice(data_url.payload, encoded_base64))


def _base64(ref: ImageRef, data_url: DataUrl, media_type: str, encoded_base64: bytes | None) -> tuple[Splice, ...]:
    """The file stands alone, and beside it of what kind it is."""
    splices = []
    if encoded_base64 is not None or data_url.needs_respelling:
        payload = data_url.file.padded() if encoded_base64 is None else encoded_base64
        splices.append(Splice(Span(ref.url.start + 1, ref.url.end - 1), payload))
    if ref.media_type is None:
        splices.append(Splice(Span(ref.url.end, ref.url.end), b',"media_type":' + msgspec.json.encode(media_type)))
    elif data_url.media_type != media_type:
        splices.append(Splice(ref.media_type, msgspec.json.encode(media_type)))
    return tuple(splices)


def _is_right(ref: ImageRef, data_url: DataUrl, media_type: str) -> bool:
    return not data_url.needs_respelling and not ref.is_bare_string and data_url.media_type == media_type


def _object_around(ref: ImageRef) -> tuple[Splice, ...]:
    if not ref.is_bare_string:
        return ()
    return (Splice(Span(ref.url.start, ref.url.start), b'{"url":'), Splice(Span(ref.url.end, ref.url.end), b"}"))


def remove_uuid(spans: PartSpans) -> tuple[Splice, ...]:
    """Splices that leave the part without `uuid`, however often and however spelled it stands there.

    Only what stands between the values that stay is written anew, so edits of the values may go along.
    """
    kept = sorted((span, key) for key, span in spans.values.items() if key != "uuid")
    splices = []
    end, opening = spans.part.start, b"{"
    for span, key in kept:
        splices.append(Splice(Span(end, span.start), opening + msgspec.json.encode(key) + b":"))
        end, opening = span.end, b","
    return (*splices, Splice(Span(end, spans.part.end), b"}"))


def replace_part_by_text(part: Span, text: str, text_type: str = "text") -> Splice:
    """A text part, of the type that the route has for it, in the place of a whole part."""
    return Splice(part, msgspec.json.encode({"type": text_type, "text": text}))
