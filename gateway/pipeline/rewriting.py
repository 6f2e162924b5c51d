"""Step 8 of the story: the body that vLLM gets, made from the one that came by splicing.

Without a plan and without a fault in the spelling the bytes that came go on as they are.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from gateway.domain.image import ImageInfo
from gateway.domain.named_images import NamedImage
from gateway.domain.request import ImageRef, VisionRequest
from gateway.imaging.workers import Prepared
from gateway.pipeline.exchange import Exchange
from gateway.wire.data_url import DataUrl
from gateway.wire.dialects.table import DIALECTS
from gateway.wire.edits import edit_image_url, keep_image_url, remove_uuid, replace_part_by_text
from gateway.wire.isolated import rename_image, salt_prefixes
from gateway.wire.model_name import name_model
from gateway.wire.splice import Splice, splice
from gateway.wire.usage_event import ask_for_usage


class ImageSource(NamedTuple):
    """An image of the request: where it stands, its URL as read, what its header says, its hash where one is made.

    `is_forwarded`: it was given by an address, which goes on as it came unless the image is encoded anew. `named`: it
    was given by its name alone, for what the server has under another one; then there is no URL.
    """

    ref: ImageRef
    url: DataUrl
    info: ImageInfo
    digest: bytes | None = None
    is_forwarded: bool = False
    named: NamedImage | None = None


class Isolated(NamedTuple):
    """What keeps the tenant apart at the server: `names` of images by ordinal, and the `salt` of its prefixes."""

    names: Mapping[int, str] = {}
    salt: str | None = None


NOT_ISOLATED = Isolated()


def rewrite(
    exchange: Exchange,
    request: VisionRequest,
    sources: Sequence[ImageSource],
    prepared: Mapping[int, Prepared],
    trimmed: Collection[int],
    marker: str,
    isolated: Isolated = NOT_ISOLATED,
    asks_for_usage: bool = False,
) -> list[bytes | bytearray | memoryview]:
    """Segments of the new body, in order; untouched ranges are views of the old one.

    With `asks_for_usage` it asks for that too, unless the client's own words forbid it: `exchange` knows.
    """
    splices: list[Splice] = []
    if asks_for_usage:
        splices = ask_for_usage(exchange.body, has_stream_options=request.has_stream_options)
    exchange.asks_for_usage = bool(splices)
    splices += _edited_fields(exchange, request, isolated)
    for source in sources:
        if source.named is not None:
            continue
        result = prepared.get(source.ref.ordinal)
        if source.is_forwarded and result is None:
            splices += keep_image_url(source.ref)
            continue
        media_type = result.media_type if result else f"image/{source.info.format}"
        splices += edit_image_url(source.ref, source.url, media_type, result.base64 if result else None)
    with_uuid = [source.ref.ordinal for source in sources if source.ref.has_uuid]
    if trimmed or with_uuid:
        parts = exchange.located_parts(request)
        text_type = DIALECTS[exchange.route.kind].text_type
        splices += [replace_part_by_text(parts[ordinal].part, marker, text_type) for ordinal in trimmed]
        for ordinal in with_uuid:
            name = isolated.names.get(ordinal)
            splices += remove_uuid(parts[ordinal]) if name is None else (rename_image(parts[ordinal], name),)
    return list(splice(exchange.body, splices))


def _edited_fields(exchange: Exchange, request: VisionRequest, isolated: Isolated) -> list[Splice]:
    """Those of the body's own fields, beside what it says."""
    splices = [Splice(clamp.span, b"%d" % clamp.number) for clamp in exchange.clamps]
    if exchange.relieved is not None and exchange.relieved.cap is not None:
        splices.append(exchange.relieved.cap.splice)
    if exchange.fallback is not None:
        splices.append(exchange.fallback.splice)
    elif exchange.alias is not None:
        splices.append(name_model(exchange.body, exchange.model_name))
    if isolated.salt is not None:
        splices.append(salt_prefixes(exchange.body, request.salt, isolated.salt))
    return splices


def slim_body(exchange: Exchange, request: VisionRequest, trimmed: Collection[int], marker: str) -> bytes:
    """The body with what the model's template sees: pictures emptied, trimmed ones replaced. A few KB."""
    splices = [Splice(ref.url, b'""') for ref in request.images if ref.ordinal not in trimmed]
    if trimmed:
        parts = exchange.located_parts(request)
        text_type = DIALECTS[exchange.route.kind].text_type
        splices += [replace_part_by_text(parts[ordinal].part, marker, text_type) for ordinal in trimmed]
    return b"".join(splice(exchange.body, splices))
