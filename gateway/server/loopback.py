"""What only programs on this very host may ask, by the address of the connection: no header can claim it.

A proxy on this host (nginx, a mesh's sidecar) has that address too, so whatever says that somebody else stands behind
the connection, or that a browser does, is a stranger.
"""

from collections.abc import Iterable, Mapping
from ipaddress import IPv6Address, ip_address
from typing import Protocol

from gateway.domain.errors import Code, GatewayError

_OF_OTHERS = frozenset({"forwarded", "via", "x-real-ip", "origin", "referer", "sec-fetch-site", "cf-connecting-ip"})
_BEGINNINGS_OF_OTHERS = ("x-forwarded", "x-envoy-")


class Peer(Protocol):
    """The other end of a connection."""

    @property
    def host(self) -> str: ...


def refuse_strangers(peer: Peer | None, headers: Mapping[str, str]) -> None:
    """Raises GatewayError 403. Names of `headers` are in lower case."""
    if peer is None or not is_loopback(peer.host) or _are_of_others(headers):
        raise GatewayError(Code.PERMISSION_DENIED, "This is only for programs on the gateway's own host.")


def _are_of_others(names: Iterable[str]) -> bool:
    return any(name in _OF_OTHERS or name.startswith(_BEGINNINGS_OF_OTHERS) for name in names)


def is_loopback(host: str) -> bool:
    """`host` is a literal address, an IPv4 one written as IPv6 too; anything else is not."""
    try:
        address = ip_address(host)
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback
