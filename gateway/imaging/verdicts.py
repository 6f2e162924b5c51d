"""What is known of pictures that were decoded before, so that one re-sent with every turn costs nothing again."""

from dataclasses import dataclass
from typing import NamedTuple

from cachetools import LRUCache

from gateway.domain.errors import Code, GatewayError
from gateway.domain.geometry import Size
from gateway.domain.image import Why

_ENTRY_OVERHEAD_BYTES = 512


@dataclass(frozen=True, slots=True)
class Prepared:
    """A new image file as base64, ready to be spliced into the body. `file_bytes` is its size without base64."""

    base64: bytes
    media_type: str
    file_bytes: int
    why: frozenset[Why]


@dataclass(frozen=True, slots=True)
class Damage:
    """Why a picture is refused, without the place where it stood: the next request may hold it elsewhere."""

    code: Code
    message: str

    @classmethod
    def of(cls, error: GatewayError) -> "Damage":
        return cls(error.code, error.message)

    def about(self, param: str) -> GatewayError:
        return GatewayError(self.code, self.message, param=param)


class VerdictKey(NamedTuple):
    """Hash of the base64 as it came, the size asked for (None: its own), and what would encode it."""

    digest: bytes
    target: Size | None
    encoder_id: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What decoding a picture led to. Neither field set: it is sound, and goes on as it came.

    One that is not `is_final` is for those who wait now: the picture may be tried once more.
    """

    prepared: Prepared | None = None
    damage: Damage | None = None
    is_final: bool = True

    @property
    def held_bytes(self) -> int:
        return _ENTRY_OVERHEAD_BYTES + (len(self.prepared.base64) if self.prepared else 0)

    def answer(self, param: str) -> Prepared | None:
        """Raises GatewayError for a damaged picture, about the part `param`."""
        if self.damage:
            raise self.damage.about(param)
        return self.prepared


class VerdictCache(LRUCache[VerdictKey, Verdict]):
    """Verdicts by key, the least recently used leaving first, bounded by the bytes that they hold (`currsize`)."""

    def __init__(self, capacity_bytes: int) -> None:
        super().__init__(capacity_bytes, getsizeof=lambda verdict: verdict.held_bytes)

    def put(self, key: VerdictKey, verdict: Verdict) -> None:
        """Keeps it, unless it alone is larger than the cache."""
        if verdict.held_bytes <= self.maxsize:
            self[key] = verdict
