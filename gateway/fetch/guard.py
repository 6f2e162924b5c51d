"""Which addresses images are fetched from: those of the public internet, and networks that the operator allows.

Pure. Every connection is asked about the very address that it is made to, after names were resolved and redirects
followed, so that no name can point elsewhere between the check and the connection.

Denied are the ranges that IANA's registries of special-purpose addresses (RFC 6890) do not call globally reachable,
multicast, and in IPv6 all that is not global unicast. An IPv6 address that stands for an IPv4 one (mapped, RFC 4291;
translated, RFC 6052) is judged as that; other ways of wrapping one (6to4, Teredo) are denied.
"""

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_DENIED_IPV4 = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",  # this network
            "10.0.0.0/8",  # private
            "100.64.0.0/10",  # shared by the customers of a carrier
            "127.0.0.0/8",  # loopback
            "168.63.129.16/32",  # of the public internet, but Azure's own to every machine there
            "169.254.0.0/16",  # link-local, where clouds answer with credentials
            "172.16.0.0/12",  # private
            "192.0.0.0/24",  # protocol assignments
            "192.0.2.0/24",  # documentation
            "192.88.99.0/24",  # relays of 6to4
            "192.168.0.0/16",  # private
            "198.18.0.0/15",  # benchmarking
            "198.51.100.0/24",  # documentation
            "203.0.113.0/24",  # documentation
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, broadcast
        ),
    )
)
_GLOBAL_IPV6 = IPv6Network("2000::/3")
_DENIED_IPV6 = tuple(
    map(
        IPv6Network,
        (
            "2001::/23",  # protocol assignments, Teredo among them
            "2001:db8::/32",  # documentation
            "2002::/16",  # 6to4
            "3fff::/20",  # documentation
        ),
    )
)
_TRANSLATED = IPv6Network("64:ff9b::/96")


class AddressGuard:
    """`allowed` networks are open whatever the registries say of them."""

    __slots__ = ("_allowed",)

    def __init__(self, allowed: Sequence[Network] = ()) -> None:
        self._allowed = tuple(allowed)

    def allows(self, address: str) -> bool:
        """Whether to connect to an address as `socket` spells it, a zone (`%eth0`) included; no name is looked up."""
        try:
            asked = ip_address(address.partition("%")[0])
        except ValueError:
            return False
        meant = _meant(asked)
        return any(self._is_allowed(each) for each in {asked, meant}) or _is_public(meant)

    def _is_allowed(self, address: Address) -> bool:
        return any(address in network for network in self._allowed)


def _meant(address: Address) -> Address:
    """The IPv4 address that an IPv6 one stands for."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address in _TRANSLATED:
            return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address


def _is_public(address: Address) -> bool:
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _DENIED_IPV4)
    return address in _GLOBAL_IPV6 and not any(address in network for network in _DENIED_IPV6)
