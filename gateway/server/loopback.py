"""Who is on this very host, by the address of the connection: no header can claim it."""

from ipaddress import IPv6Address, ip_address


def is_loopback(host: str) -> bool:
    """`host` is a literal address, an IPv4 one written as IPv6 too; anything else is not."""
    try:
        address = ip_address(host)
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback
