"""The header by which a mesh or proxy names the tenant. The peer of the connection decides whether it counts."""

from collections.abc import Mapping
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network
from typing import Any

from gateway.server.loopback import literal_address

_REMEMBERED_PEERS = 1024


class TrustedHeader:
    """`name` in lower case; `networks` are those of the peers that may say it."""

    def __init__(self, name: bytes, networks: tuple[IPv4Network | IPv6Network, ...]) -> None:
        self._name = name
        self._networks = networks
        self._is_trusted = lru_cache(maxsize=_REMEMBERED_PEERS)(self._look)

    def named_by(self, scope: Mapping[str, Any]) -> bytes | None:
        """The tenant's name; None where it is not there once, or comes from one who may not say it: as if it were not
        there at all.
        """
        values = [value for name, value in scope["headers"] if name == self._name]
        if len(values) != 1 or scope["client"] is None or not self._is_trusted(scope["client"][0]):
            return None
        return bytes(values[0].strip()) or None

    def _look(self, host: str) -> bool:
        address = literal_address(host)
        return address is not None and any(address in network for network in self._networks)
