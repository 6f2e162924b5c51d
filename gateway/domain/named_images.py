"""Images that a model server was sent under a `uuid`, so that the next request can name them without sending them.

vLLM answers such a request from the cache of its processor, and counts what it finds there. Here it is remembered what
that is: nothing else tells what the request will cost. Being forgotten costs the client one refusal that says to send
the image again, never a wrong count.
"""

from collections import OrderedDict
from typing import NamedTuple

from gateway.domain.image import ImageInfo

REMEMBERED_SECONDS = 24 * 3600.0
"""Since it was needed last. vLLM keeps what fits into its cache, for however long."""
MOST_REMEMBERED = 16_384
"""Of one server, of all tenants: some 10 MiB. What was not needed for longest goes first."""


class NamedImage(NamedTuple):
    """An image as the server got it: under which `name`, and what its header says of the file that it got. `digest` is
    the hash of the file that the tenant sent, which may have been another one.
    """

    name: str
    digest: bytes
    info: ImageInfo


class Naming(NamedTuple):
    """The image that one request brought, under the tenant's own word for it."""

    tenant: str
    uuid: str
    image: NamedImage


class NamedImages:
    """Of one server. `now` is in seconds on the caller's clock, never less than before."""

    __slots__ = ("_entries", "_most")

    def __init__(self, most: int = MOST_REMEMBERED) -> None:
        self._entries: OrderedDict[tuple[str, str], tuple[NamedImage, float]] = OrderedDict()
        self._most = most

    def __len__(self) -> int:
        return len(self._entries)

    def recall(self, tenant: str, uuid: str, now: float) -> NamedImage | None:
        """What this tenant sent last under `uuid`; None: nothing, or too long ago."""
        entry = self._entries.get((tenant, uuid))
        return None if entry is None or now - entry[1] >= REMEMBERED_SECONDS else entry[0]

    def keep(self, naming: Naming, now: float) -> None:
        """The server has it: it was sent, or asked for again."""
        key = naming.tenant, naming.uuid
        self._entries[key] = naming.image, now
        self._entries.move_to_end(key)
        while len(self._entries) > self._most or self._oldest_seconds(now) >= REMEMBERED_SECONDS:
            self._entries.popitem(last=False)

    def lose(self, naming: Naming) -> None:
        """The server has it no more, unless another was sent under the same word since."""
        key = naming.tenant, naming.uuid
        entry = self._entries.get(key)
        if entry is not None and entry[0].name == naming.image.name:
            del self._entries[key]

    def forget(self) -> None:
        """The server was restarted: its cache is empty."""
        self._entries.clear()

    def _oldest_seconds(self, now: float) -> float:
        return now - next(iter(self._entries.values()))[1]
