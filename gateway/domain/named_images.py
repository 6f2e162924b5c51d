"""Images that a model server was sent under a `uuid`, so that the next request can name them without sending them.

vLLM answers such a request from the cache of its processor, and counts what it finds there. Here it is remembered what
that is: nothing else tells what the request will cost. Being forgotten costs the client one refusal that says to send
the image again, never a wrong count.
"""

from typing import NamedTuple

from gateway.domain.image import ImageInfo
from gateway.domain.remembered import Remembered

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

    __slots__ = ("_kept",)

    def __init__(self, most: int = MOST_REMEMBERED) -> None:
        self._kept = Remembered[tuple[str, str], NamedImage](most)

    def __len__(self) -> int:
        return len(self._kept)

    def recall(self, tenant: str, uuid: str, now: float) -> NamedImage | None:
        """What this tenant sent last under `uuid`; None: nothing, or too long ago."""
        return self._kept.recall((tenant, uuid), now)

    def keep(self, naming: Naming, now: float) -> None:
        """The server has it: it was sent, or asked for again."""
        self._kept.renew((naming.tenant, naming.uuid), naming.image, now)

    def lose(self, naming: Naming) -> None:
        """The server has it no more, unless another was sent under the same word since."""
        self._kept.lose((naming.tenant, naming.uuid), lambda image: image.name == naming.image.name)

    def forget(self) -> None:
        """The server was restarted: its cache is empty."""
        self._kept.clear()
