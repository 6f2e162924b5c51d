"""The splices by which a tenant's names for images and prefixes become ones that are nobody else's."""

import msgspec

from gateway.domain.request import OwnSalt, Span
from gateway.wire.edits import PartSpans
from gateway.wire.splice import Splice


def rename_image(spans: PartSpans, name: str) -> Splice:
    """`name` in the place of the part's uuid: of several the last, which is the one that vLLM reads."""
    return Splice(spans.values["uuid"], msgspec.json.encode(name))


def salt_prefixes(body: bytes | bytearray, own: OwnSalt | None, salt: str) -> Splice:
    """`salt` in the place of the client's own, or before all other members of `body` (a JSON object with members).

    The brace that opens the body is written anew with it, so that what others put before the members goes along.
    """
    text = msgspec.json.encode(salt)
    if own is not None:
        return Splice(own.span, text)
    start = body.index(b"{")
    return Splice(Span(start, start + 1), b'{"cache_salt":' + text + b",")
