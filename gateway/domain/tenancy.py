"""Who is who: a client is known by its key, or by the name that a trusted proxy gives it.

Where keys are configured, who has none of them is a stranger: refused, unless the operator lets strangers in as the
tenant `default`. Where none are, everyone with a key is a tenant of his own, so that clients share fairly unasked. Of
keys only the SHA-256 is ever kept.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from hashlib import sha256

from gateway.domain.errors import Code, GatewayError
from gateway.domain.keys import KeyTable
from gateway.domain.quota import Quota
from gateway.domain.tenant import DEFAULT_CLASS, Tenant

__all__ = ["CROWD", "DEFAULT_CLASS", "Tenancy", "Tenant", "identity_of_name", "unauthorised"]

CROWD = "crowd"
"""The name of those that came when too many were told apart already."""
NO_KEY = Tenant("no key", is_named=True, is_refused=True)
UNKNOWN_KEY = Tenant("unknown key", is_named=True, is_refused=True)
EXPIRED_KEY = Tenant("expired key", is_named=True, is_refused=True)
_STRANGERS = {
    NO_KEY.name: "The request has no API key. Send one as `Authorization: Bearer KEY`, or as `x-api-key: KEY`.",
    UNKNOWN_KEY.name: "The API key is not known here. Ask the operator of this gateway for one.",
    EXPIRED_KEY.name: "The API key has expired. Ask the operator of this gateway for another.",
}

_MOST_LATELY = 1024
_FORGOTTEN_SECONDS = 600.0


def unauthorised(tenant: Tenant) -> GatewayError:
    """The 401 for one whom `Tenancy` does not let in."""
    return GatewayError(Code.INVALID_API_KEY, _STRANGERS[tenant.name])


def identity_of_name(name: bytes) -> bytes:
    """What stands in place of a key for who is named by a proxy. No header can hold it, so it is nobody's key."""
    return b"\0" + name


class Tenancy:
    """Finds the tenant of a key.

    `keys` are those that are configured, None: none are. `named` are the tenants of the settings; others that a keys
    file names are like `stranger`, with a quota each like his. Without `keys`, each key has a tenant like `stranger`,
    who shares his quota with the others, and so has each name of a proxy: 1,024 that came within the last ten minutes;
    those beyond are one.
    """

    __slots__ = (
        "_before",
        "_crowd",
        "_keys",
        "_lately",
        "_named",
        "_of_keys",
        "_refuses_strangers",
        "_stranger",
        "_turns_at",
        "tenant_of",
    )

    tenant_of: Callable[[bytes, float], Tenant]
    """The tenant of a key, which is empty where there is none; the time is in seconds on the caller's clock."""

    def __init__(
        self,
        keys: KeyTable | None = None,
        stranger: Tenant | None = None,
        named: Mapping[str, Tenant] | None = None,
        *,
        refuses_strangers: bool = False,
    ) -> None:
        self._keys = keys
        self._stranger = stranger or Tenant()
        self._named = {DEFAULT_CLASS: self._stranger} | dict(named or {})
        self._of_keys: dict[str, Tenant] = {}
        self._refuses_strangers = refuses_strangers
        self._crowd = replace(self._stranger, name=CROWD, is_named=False)
        self._lately: dict[bytes, Tenant] = {}
        self._before: dict[bytes, Tenant] = {}
        self._turns_at = 0.0
        # Each request asks: so which way is looked at here, not then.
        self.tenant_of = self._by_hash if keys is None else self._known

    def __len__(self) -> int:
        """Keys and names that are remembered, by their hashes, though the operator did not name them."""
        return len(self._lately) + len(self._before)

    @property
    def named(self) -> Mapping[str, Tenant]:
        """The tenants of the settings, and `default`."""
        return self._named

    @property
    def known_keys(self) -> int:
        return 0 if self._keys is None else len(self._keys)

    def with_quota(self) -> list[Tenant]:
        """Those that the operator named and that have a quota."""
        tenants = {id(tenant): tenant for tenant in (*self._named.values(), *self._of_keys.values())}
        return [tenant for tenant in tenants.values() if tenant.quota is not None]

    def tenants_named(self, names: Iterable[str]) -> dict[str, Tenant]:
        """Those that the keys to come are of. Who was there before keeps what it has used."""
        self._of_keys = {name: self._of_keys.get(name) or self._tenant_named(name) for name in names}
        return self._of_keys

    def use(self, keys: KeyTable) -> None:
        """From now on these are the keys that are configured, and no others."""
        self._keys = keys
        self.tenant_of = self._known

    def tenant_by_name(self, name: bytes, now: float) -> Tenant:
        """The tenant that a trusted proxy names."""
        known = self._named.get(name.decode("utf-8", "replace"))
        return self._by_hash(identity_of_name(name), now) if known is None else known

    def _known(self, presented: bytes, now: float) -> Tenant:
        found = self._keys.find(presented) if presented and self._keys is not None else None
        if found is not None and now < found.expires:
            return found.tenant
        if not self._refuses_strangers:
            return self._stranger
        if found is not None:
            return EXPIRED_KEY
        return UNKNOWN_KEY if presented else NO_KEY

    def _tenant_named(self, name: str) -> Tenant:
        known = self._named.get(name)
        if known is not None:
            return known
        shared = self._stranger.quota
        own = None if shared is None else Quota(shared.limits)
        return replace(self._stranger, name=name, quota=own, is_named=True)

    def _by_hash(self, key: bytes, now: float) -> Tenant:
        if not key:
            return self._stranger
        if now >= self._turns_at:
            self._turns_at = now + _FORGOTTEN_SECONDS
            self._before, self._lately = self._lately, {}
        digest = sha256(key).digest()
        tenant = self._lately.get(digest)
        return tenant if tenant is not None else self._come(digest)

    def _come(self, digest: bytes) -> Tenant:
        tenant = self._before.pop(digest, None)
        if tenant is None:
            if len(self) >= _MOST_LATELY:
                return self._crowd
            tenant = replace(self._stranger, name=digest.hex()[:16], is_named=False)
        self._lately[digest] = tenant
        return tenant
