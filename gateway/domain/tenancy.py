"""Whose a request is, and how urgent it may be.

A tenant is known by the SHA-256 of its key. Keys only classify: nobody is refused for one, and none is ever kept.
Where the operator names no keys, everyone with a key is a tenant of his own, so that clients share fairly unasked.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256

from gateway.domain.priority import Priority
from gateway.domain.slo import NO_LEVELS, Levels

DEFAULT_CLASS = "default"
"""Everyone without a key that the operator named."""

_MOST_LATELY = 1024
_FORGOTTEN_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Tenant:
    """`name` is what turns are counted by, `tenant_class` the operator's word for it: the metric label.

    Of two tenants that always wait, one gets so many times more than the other as its `weight` is larger. `priority`
    is that of requests which ask for none, `most_urgent` what those get at most that ask for more. `levels` are by
    priority. `models` are the names that it may ask for, None: all.
    """

    name: str = ""
    tenant_class: str = DEFAULT_CLASS
    weight: float = 1.0
    priority: Priority = Priority.DEFAULT
    most_urgent: Priority = Priority.INTERACTIVE
    levels: Levels = NO_LEVELS
    models: frozenset[str] | None = None

    def may_use(self, model: str) -> bool:
        """Whether it may ask for a model by this name, and see it listed."""
        return self.models is None or model in self.models

    def priority_of(self, asked: Priority | None) -> Priority:
        """What a request gets that asks for this; None: for nothing."""
        return self.priority if asked is None else max(asked, self.most_urgent)


class Tenancy:
    """Finds the tenant of a key.

    `by_digest` are the operator's, by SHA-256 of their keys; all others are `stranger`. Where there are none, each key
    has a tenant like `stranger`: 1,024 that came within the last ten minutes; those beyond share one.
    """

    __slots__ = ("_before", "_by_digest", "_crowd", "_lately", "_stranger", "_turns_at")

    def __init__(self, by_digest: Mapping[bytes, Tenant] | None = None, stranger: Tenant | None = None) -> None:
        self._by_digest = by_digest or {}
        self._stranger = stranger or Tenant()
        self._crowd = replace(self._stranger, name="crowd")
        self._lately: dict[bytes, Tenant] = {}
        self._before: dict[bytes, Tenant] = {}
        self._turns_at = 0.0

    def __len__(self) -> int:
        """Keys that are remembered, by their hashes, though the operator did not name them."""
        return len(self._lately) + len(self._before)

    def tenant_of(self, key: bytes, now: float) -> Tenant:
        """The tenant of a key, which is empty where there is none; `now` in seconds on the caller's clock."""
        if not key:
            return self._stranger
        digest = sha256(key).digest()
        if self._by_digest:
            return self._by_digest.get(digest, self._stranger)
        if now >= self._turns_at:
            self._turns_at = now + _FORGOTTEN_SECONDS
            self._before, self._lately = self._lately, {}
        tenant = self._lately.get(digest)
        return tenant if tenant is not None else self._come(digest)

    def _come(self, digest: bytes) -> Tenant:
        tenant = self._before.pop(digest, None)
        if tenant is None:
            if len(self) >= _MOST_LATELY:
                return self._crowd
            tenant = replace(self._stranger, name=digest.hex()[:16])
        self._lately[digest] = tenant
        return tenant
