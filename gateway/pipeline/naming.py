"""Images with a `uuid`: what is sent under which name, and what a name alone stands for.

The names that leave are domain/isolation.py's, what the server has under them remembers domain/named_images.py.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gateway.domain.errors import Code, GatewayError
from gateway.domain.geometry import Size
from gateway.domain.image import ImageInfo, ImagePlan
from gateway.domain.isolation import may_name_images
from gateway.domain.named_images import NamedImage, Naming
from gateway.domain.request import ImageRef, VisionRequest
from gateway.imaging.render import ENCODER_ID
from gateway.imaging.workers import Prepared
from gateway.pipeline.backend import Backend
from gateway.pipeline.exchange import Exchange, Parts
from gateway.pipeline.rewriting import ImageSource
from gateway.wire.data_url import DataUrl
from gateway.wire.encoded_file import EncodedFile

_NO_FILE = DataUrl("", None, None, EncodedFile(b""), needs_respelling=False)


def recall(exchange: Exchange, ref: ImageRef) -> ImageSource:
    """What its name alone stands for at the exchange's server. Raises GatewayError unknown_image_uuid."""
    assert ref.uuid is not None, "it is named"
    known = exchange.models.engine.named_images.recall(exchange.tenant.name, ref.uuid, exchange.arrived)
    if known is None:
        raise _unknown(ref, "it is not known what the model server has under this name")
    return ImageSource(ref, _NO_FILE, known.info, known.digest, named=known)


def refuse_other_sizes(sources: Sequence[ImageSource], plans: Sequence[ImagePlan]) -> None:
    """What the server has cannot be made smaller any more. Raises GatewayError unknown_image_uuid."""
    for source, image in zip(sources, plans, strict=True):
        if source.named is not None and image.is_resized:
            raise _unknown(
                source.ref, f"the model server has it as {image.info.size}, and it would have to be {image.target} now"
            )


def _unknown(ref: ImageRef, why: str) -> GatewayError:
    return GatewayError(
        Code.UNKNOWN_IMAGE_UUID,
        f"`{ref.param}`: The image is given by its `uuid` alone, and {why}. Send the image again, beside its `uuid`.",
        param=ref.param,
    )


async def with_digests(parts: Parts, sources: Sequence[ImageSource]) -> tuple[ImageSource, ...]:
    """Those with a name hashed, as far as they are not yet: names are made of that."""
    return tuple(
        [
            source
            if source.ref.uuid is None or source.digest is not None
            else source._replace(digest=await parts.images.digest(source.url.file))
            for source in sources
        ]
    )


def name_images(
    parts: Parts,
    exchange: Exchange,
    sources: Sequence[ImageSource],
    plans: Sequence[ImagePlan],
    prepared: Mapping[int, Prepared],
) -> dict[int, str]:
    """The names that the server is to know images by, by ordinal; of a tenant that may have none, none.

    What is remembered once the server has them is noted on the exchange.
    """
    tenant = exchange.tenant.name
    if not may_name_images(tenant):
        return {}
    namings = {}
    for source, image in zip(sources, plans, strict=True):
        uuid, ordinal = source.ref.uuid, source.ref.ordinal
        if uuid is not None:
            named = source.named or _named(parts, tenant, uuid, source, image if ordinal in prepared else None)
            namings[ordinal] = Naming(tenant, uuid, named)
    exchange.namings = tuple(namings.values())
    return {ordinal: naming.image.name for ordinal, naming in namings.items()}


def _named(parts: Parts, tenant: str, uuid: str, source: ImageSource, changed: ImagePlan | None) -> NamedImage:
    """`changed`: another file is sent than the one that came."""
    assert source.digest is not None, "it was hashed for its name"
    treatment = "" if changed is None else f"{ENCODER_ID}|{changed.target}"
    name = parts.policies.isolation.image_name(tenant, uuid, source.digest, treatment)
    info = source.info if changed is None else _made(source.info, changed.target)
    return NamedImage(name, source.digest, info)


def _made(info: ImageInfo, size: Size) -> ImageInfo:
    """Of a file that was made here."""
    return replace(info, stored=size, size=size, orientation=1, frames=1, why=frozenset())


def those_that_know(backends: Sequence[Backend], exchange: Exchange, request: VisionRequest) -> Sequence[Backend]:
    """Of these servers, those that have the most of the images that the request only names."""
    uuids = [ref.uuid for ref in request.images if ref.is_named_only and ref.uuid is not None]
    if not uuids:
        return backends
    counts = [_count_known(backend, exchange, uuids) for backend in backends]
    return [backend for backend, count in zip(backends, counts, strict=True) if count == max(counts)]


def _count_known(backend: Backend, exchange: Exchange, uuids: Sequence[str]) -> int:
    tenant, now, memory = exchange.tenant.name, exchange.arrived, backend.models.engine.named_images
    return sum(memory.recall(tenant, uuid, now) is not None for uuid in uuids) if backend.is_healthy(now) else 0


def note_names(exchange: Exchange) -> None:
    """The server has begun to answer: it has the images, by the names that they were sent under."""
    for naming in exchange.namings:
        exchange.models.engine.named_images.keep(naming, exchange.arrived)


def lose_names(exchange: Exchange) -> None:
    """The server has them no more, or nobody knows."""
    for naming in exchange.namings:
        exchange.models.engine.named_images.lose(naming)
