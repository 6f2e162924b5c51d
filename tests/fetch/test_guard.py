from ipaddress import IPv4Address, IPv6Address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.fetch.guard import AddressGuard

GUARD = AddressGuard()
DENIED = (
    *(
        "0.0.0.0",
        "0.1.2.3",
        "10.0.0.5",
        "100.64.0.1",
        "100.127.255.255",
        "127.0.0.1",
        "127.255.0.9",
        "169.254.169.254",
        "168.63.129.16",
    ),
    *("172.16.0.1", "172.31.255.255", "192.0.0.8", "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1"),
    *("198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255"),
    *("::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd12::1", "fec0::1", "ff02::1", "100::1", "5f00::1"),
    *("2001::1", "2001:db8::1", "2002:7f00:1::", "2002:808:808::", "3fff::1", "64:ff9b:1::1"),
    *("::ffff:127.0.0.1", "::ffff:10.0.0.5", "::ffff:169.254.169.254", "::127.0.0.1", "::8.8.8.8"),
    *("64:ff9b::127.0.0.1", "64:ff9b::10.0.0.5", "64:ff9b::a9fe:a9fe"),
)
PUBLIC = (
    *("8.8.8.8", "1.1.1.1", "93.184.216.34", "172.15.0.1", "172.32.0.1", "100.63.0.1", "100.128.0.1", "192.31.196.9"),
    *("2606:4700::1111", "2a00:1450:4001::200e", "::ffff:8.8.8.8", "64:ff9b::808:808"),
)


@pytest.mark.parametrize("address", DENIED)
def test_what_is_not_of_the_public_internet_is_denied(address):
    assert not GUARD.allows(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_what_is_public_is_allowed_however_it_is_wrapped(address):
    assert GUARD.allows(address)


@pytest.mark.parametrize("text", ["", "localhost", "1.2.3", "0x7f.1", "2130706433", "8.8.8.8:80", "[::1]", "8.8.8.8 "])
def test_what_is_no_address_is_denied(text):
    assert not GUARD.allows(text)


def test_an_allowed_network_is_open_whatever_is_in_it_and_no_other_is():
    guard = AddressGuard([ip_network("10.1.0.0/16"), ip_network("fd00::/8")])
    assert guard.allows("10.1.2.3")
    assert guard.allows("::ffff:10.1.2.3")
    assert guard.allows("64:ff9b::a01:203")
    assert guard.allows("fd00::7%3")
    assert not guard.allows("10.2.0.1")
    assert not guard.allows("127.0.0.1")
    assert guard.allows("8.8.8.8")


@given(st.integers(0, 2**32 - 1))
def test_an_address_is_judged_alike_in_every_spelling_of_it(number):
    plain = IPv4Address(number)
    mapped = IPv6Address((0xFFFF << 32) | number)
    translated = IPv6Address((0x64FF9B << 96) | number)
    assert GUARD.allows(str(plain)) == GUARD.allows(str(mapped)) == GUARD.allows(str(translated))


@given(st.ip_addresses())
def test_nothing_is_allowed_that_the_standard_library_calls_private_or_multicast(address):
    if GUARD.allows(str(address)):
        meant = getattr(address, "ipv4_mapped", None) or address
        assert not any((meant.is_private, meant.is_multicast, meant.is_loopback, meant.is_link_local))
