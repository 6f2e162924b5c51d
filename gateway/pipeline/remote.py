"""Between steps 2 and 3 of the story: pictures given by address are fetched, once for each exchange.

From then on they are files like any other, in base64, as they are sent on.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec

from gateway.domain.errors import Code, GatewayError
from gateway.domain.request import ImageRef
from gateway.pipeline.beside import all_of
from gateway.pipeline.exchange import Exchange, Rules
from gateway.wire.data_url import DataUrl
from gateway.wire.encoded_file import EncodedFile
from gateway.wire.read import decode_body

_address_decoder = msgspec.json.Decoder(str)


class UnseenImageError(GatewayError):
    """In shadow mode nothing is fetched, so nobody knows what the request would cost."""


@dataclass(frozen=True, slots=True)
class FetchingRefused:
    """Where no image is fetched for the reason that `why` gives as a clause; that is told by an error of `kind`."""

    why: str
    kind: type[GatewayError] = GatewayError

    async def fetch(self, _address: str, param: str, _hold: Callable[[int], None]) -> EncodedFile:
        """Raises GatewayError invalid_image_url."""
        raise self.kind(
            Code.INVALID_IMAGE_URL,
            f"`{param}`: Images by http(s) address are not fetched: {self.why}. "
            "Send the image as a data URL (data:image/png;base64,...).",
            param=param,
        )


LEFT_TO_THE_SERVER = FetchingRefused(
    "in shadow mode they are left to the model server, so nothing is known of this one", UnseenImageError
)


async def fetch_remote(rules: Rules, exchange: Exchange, refs: Sequence[ImageRef]) -> Mapping[int, DataUrl]:
    """Those of the images that are given by address, by ordinal.

    Raises GatewayError with the image's path: its address is refused, its host fails, or all together take too long.
    """
    missing = [ref for ref in refs if ref.is_remote and ref.ordinal not in exchange.fetched]
    if missing:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        try:
            await _fetch(rules, exchange, missing)
        finally:
            exchange.fetch_seconds += loop.time() - begun
    return exchange.fetched


async def _fetch(rules: Rules, exchange: Exchange, refs: Sequence[ImageRef]) -> None:
    seconds = rules.policies.queue_wait_seconds
    try:
        async with asyncio.timeout(seconds):
            holding = _Holding(exchange.hold_beside, rules.policies.max_fetched_bytes)
            files = await all_of([_fetched(rules, exchange, ref, holding) for ref in refs])
    except TimeoutError as error:
        raise GatewayError(
            Code.FAILED_TO_DOWNLOAD_IMAGE,
            f"The {len(refs)} images that the request gives by address were not all fetched within {seconds:g} "
            "seconds. Send fewer at once, or send them as data URLs.",
            param=refs[0].param,
        ) from error
    for ref, file in zip(refs, files, strict=True):
        # A data URL is written in the place of the address.
        exchange.fetched[ref.ordinal] = DataUrl("", None, None, file, needs_respelling=True)


async def _fetched(rules: Rules, exchange: Exchange, ref: ImageRef, holding: "_Holding") -> EncodedFile:
    text = decode_body(_address_decoder, msgspec.Raw(memoryview(exchange.body)[ref.url.start : ref.url.end]))
    return await rules.remote.fetch(text.strip(), ref.param, partial(holding.hold, ref.param))


@dataclass(slots=True)
class _Holding:
    """Counts the images of one request together: they are sent on as one body, which may be so long and no longer."""

    hold_beside: Callable[[int], None]
    most_bytes: int
    held_bytes: int = 0

    def hold(self, param: str, byte_count: int) -> None:
        """Raises GatewayError request_too_large, with the image by which it became too much."""
        self.hold_beside(byte_count)
        self.held_bytes += byte_count
        if self.held_bytes > self.most_bytes:
            raise GatewayError(
                Code.REQUEST_TOO_LARGE,
                f"With `{param}`, the images that the request gives by address have {self.held_bytes} bytes as base64; "
                f"the limit of a whole request is {self.most_bytes} (server.max_body_bytes). Send fewer or smaller "
                "ones.",
                param=param,
            )
