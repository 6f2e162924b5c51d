"""Who is on this very host, by the address of the connection: no header can claim it, but some deny it.

A proxy on this host (nginx, a mesh's sidecar) has that address too, so whatever says that somebody else stands behind
the connection, or that a browser does, is a stranger.
"""

from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Protocol

from gateway.domain.errors import Code, GatewayError

_OF_PROXIES = frozenset({"forwarded", "via", "x-real-ip", "cf-connecting-ip"})
_BEGINNINGS_OF_PROXIES = ("x-forwarded-", "x-envoy-")
_OF_BROWSERS = frozenset({"origin", "referer", "sec-fetch-site"})


class Peer(Protocol):
    """The other end of a connection."""

    @property
    def host(self) -> str: ...


def refuse_strangers(peer: Peer | None, headers: Mapping[str, str]) -> None:
    """Raises GatewayError 403. Names of `headers` are in lower case."""
    is_local = peer is not None and is_loopback(peer.host)
    if not is_local or header_of_a_proxy(headers) is not None or not _OF_BROWSERS.isdisjoint(headers):
        raise GatewayError(Code.PERMISSION_DENIED, "This is only for programs on the gateway's own host.")


def header_of_a_proxy(names: Iterable[str]) -> str | None:
    """The first that says that a request was passed on for somebody else."""
    return next((name for name in names if name in _OF_PROXIES or name.startswith(_BEGINNINGS_OF_PROXIES)), None)


def is_loopback(host: str) -> bool:
    address = literal_address(host)
    return address is not None and address.is_loopback


def literal_address(text: str) -> IPv4Address | IPv6Address | None:
    """An IPv4 one that is written as IPv6 as what it is; None: it is a name, or nothing."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address
