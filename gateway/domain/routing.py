"""Which of several model servers gets a request. Pure: how they stand is handed in.

vLLM keeps what it has made of an image (encoder output, KV blocks), so a conversation is cheapest where its first image
has been before. Each image has a home among the servers: the one with the highest hash of image and name (rendezvous
hashing). So a server that goes moves the images that were at home there, one that comes only takes those that are now
its own, and nothing has to be remembered.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

BUSY_UTILISATION = 0.75
"""From here on an image is no longer sent home. Below it, whoever comes is let in at once, so that a warm cache is pure
gain; above it the next large request may have to wait, and a wait soon costs more than encoding an image anew does (a
fraction of a second). The last quarter is for those that have no other place to go: other servers may be fuller yet.
"""


class Standing(NamedTuple):
    """How one server stands, for one request.

    `lists` its model: None as long as the server has not told what it serves. `utilisation` is the pressure there
    (pressure.py): 1.0 where the tightest resource is full and nobody waits, 2.0 where as much again is waited for.
    `keeps_place`: it was promised one there, and comes back for it.
    """

    name: str
    lists: bool | None = True
    is_healthy: bool = True
    utilisation: float = 0.0
    keeps_place: bool = False


def pick(standings: Sequence[Standing], image: bytes | None, request_id: bytes) -> int:
    """The index of the server that gets the request: the home of its first image, known by any bytes that say which it
    is; where there is no image, or that server is busy, the one that keeps a place for it, else the least utilised.

    Texts have no home: most conversations begin alike, and would crowd one server. What is left equal is settled by
    the request's id, so that servers without work get equal shares.
    """
    among = eligible(standings)
    if image is not None:
        home = max(among, key=lambda index: _score(image, standings[index].name))
        if standings[home].utilisation < BUSY_UTILISATION:
            return home
    among = [index for index in among if standings[index].keeps_place] or among
    least = min(standings[index].utilisation for index in among)
    return max(
        (index for index in among if standings[index].utilisation == least),
        key=lambda index: _score(image or request_id, standings[index].name),
    )


def eligible(standings: Sequence[Standing]) -> list[int]:
    """Indices of those that may get the request.

    Who lists the model; if nobody does, those that may yet turn out to; else all, for the server's own refusal says
    most. Of these the healthy ones, and all of them where none is: trying is better than refusing unasked.
    """
    known: Sequence[bool | None] = (True, None, False)
    best = min(known.index(standing.lists) for standing in standings)
    listing = [index for index, standing in enumerate(standings) if known.index(standing.lists) == best]
    return [index for index in listing if standings[index].is_healthy] or listing


def _score(key: bytes, name: str) -> bytes:
    return blake2b(name.encode() + b"\0" + key, digest_size=8).digest()
