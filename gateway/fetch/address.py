"""The address of a picture, read by the same parser that connects to it, so that both see the same host."""

import re
from collections.abc import Collection
from ipaddress import ip_address

from yarl import URL

from gateway.fetch.errors import address_denied, address_refused
from gateway.fetch.guard import AddressGuard

MOST_CHARACTERS = 8192
_SCHEMES = ("http", "https")
_UNREADABLE = (ValueError, IndexError)  # the second is what the parser says of `http://[]@`
# What other parsers skip, cut at, or read as another separator.
_FORBIDDEN = re.compile(r"[\x00-\x20\x7f\\]")


class AddressRules:
    """Which schemes, ports and literal addresses may be asked at all; names are judged when they are resolved.

    With `hosts` only those are asked, by their names as they stand in addresses.
    """

    def __init__(self, guard: AddressGuard, ports: Collection[int], hosts: Collection[str] | None = None) -> None:
        self._guard = guard
        self._ports = frozenset(ports)
        self._hosts = None if hosts is None else frozenset(host.lower() for host in hosts)

    def read(self, text: str) -> URL:
        """Raises FetchError."""
        if len(text) > MOST_CHARACTERS:
            raise address_refused(f"it is longer than {MOST_CHARACTERS} characters")
        if _FORBIDDEN.search(text):
            raise address_refused("it has blanks, control characters or backslashes; percent-encode them")
        try:
            url = _url(text).with_fragment(None)
        except _UNREADABLE as error:
            raise address_refused("it cannot be read as a URL") from error
        self._check(url)
        return url

    def redirected(self, url: URL, location: str) -> URL:
        """Where an answer of `url` sends to, under the same rules. Raises FetchError."""
        if len(location) > MOST_CHARACTERS or _FORBIDDEN.search(location):
            raise address_refused("it redirects to an address that cannot be read")
        try:
            target = url.join(_url(location)).with_fragment(None)
        except _UNREADABLE as error:
            raise address_refused("it redirects to an address that cannot be read") from error
        self._check(target)
        return target

    def _check(self, url: URL) -> None:
        if url.scheme not in _SCHEMES or not url.host:
            raise address_refused("only http and https addresses with a host are fetched")
        if url.user is not None or url.password is not None:
            raise address_refused("an address with a user name or a password is not fetched")
        if url.port not in self._ports:
            ports = ", ".join(map(str, sorted(self._ports)))
            raise address_refused(f"its port is none of {ports} (images.remote.allow_ports)")
        if self._hosts is not None and url.host.lower() not in self._hosts:
            raise address_refused("its host is not among those of images.remote.allow_hosts")
        if _is_literal(url.host) and not self._guard.allows(url.host):
            raise address_denied()


def _url(text: str) -> URL:
    """As it is spelled, for hosts sign addresses, unless it has letters that must be encoded first.

    Raises ValueError, for a port too that is none.
    """
    url = URL(text, encoded=text.isascii())
    if "%" in (url.host or "") or url.port == 0:
        raise ValueError("neither a zone nor an encoded host is of the public internet")
    return url


def _is_literal(host: str) -> bool:
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True
