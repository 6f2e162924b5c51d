"""The table of keys: the tenant of each, found by the SHA-256 of what a client presents.

The key itself is compared nowhere. What could be measured of a look-up by a digest is how much of it agrees with one of
the table, and nobody can make keys whose digests agree more and more. Still entries are found by the first bytes of
their digests alone, and whole digests compared in constant time.
"""

from collections.abc import Iterable
from hashlib import sha256
from hmac import compare_digest
from math import inf
from typing import NamedTuple

from gateway.domain.tenant import Tenant

_FOUND_BY_BYTES = 8


class Key(NamedTuple):
    """`expires` is on the clock that `find` is asked with."""

    digest: bytes
    tenant: Tenant
    expires: float = inf


class KeyTable:
    """Never changes: other keys are another table."""

    __slots__ = ("_by_start", "_count")

    def __init__(self, keys: Iterable[Key] = ()) -> None:
        self._by_start: dict[bytes, list[Key]] = {}
        for key in keys:
            self._by_start.setdefault(key.digest[:_FOUND_BY_BYTES], []).append(key)
        self._count = sum(map(len, self._by_start.values()))

    def __len__(self) -> int:
        return self._count

    def find(self, presented: bytes) -> Key | None:
        """The key of these bytes, be it expired or not."""
        digest = sha256(presented).digest()
        for key in self._by_start.get(digest[:_FOUND_BY_BYTES], ()):
            if compare_digest(key.digest, digest):
                return key
        return None
