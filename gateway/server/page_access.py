"""Who may see the status page and try a picture on it: judged by the connection and the headers, before all else.

Three ways would lead to it against the operator's will, and each is barred by itself. From another machine: the peer of
the connection decides, and what a header says of clients can only close the page, never open it. By a foreign name that
is made to point here, so that a foreign page counts as ours (DNS rebinding): the page answers to `localhost`, to plain
addresses, and to names that the operator gave. From a page of another site, in the browser of one who may see it: what
shows or does something refuses requests that a browser marks as such.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from gateway.domain.errors import Code, GatewayError
from gateway.server.loopback import header_of_a_proxy, is_loopback, literal_address

Headers = Sequence[tuple[bytes, bytes]]

_SHOWN_CHARACTERS = 100
_HOST = re.compile(r"(?:\[(?P<address>[0-9a-f:.]+)\]|(?P<name>[a-z0-9._-]+))(?::[0-9]{1,5})?")
_OWN_SITES = frozenset({b"same-origin", b"none"})
"""Values of `Sec-Fetch-Site` of the page's own requests, and of what a person typed."""


class Audience(StrEnum):
    """The setting's words."""

    LOOPBACK = "loopback"
    EVERYONE = "everyone"
    NOBODY = "nobody"


@dataclass(frozen=True, slots=True)
class PageAccess:
    """`hosts` are names beside `localhost` under which the page may be called, in lower case."""

    audience: Audience = Audience.LOOPBACK
    hosts: frozenset[str] = frozenset()

    def refuse(self, scope: Mapping[str, Any], *, is_data: bool) -> None:
        """Raises GatewayError 404 where there is no page, 403 where it is not for this client.

        `is_data`: what is asked for shows or does something, so pages of other sites must not have it.
        """
        if self.audience is Audience.NOBODY:
            raise GatewayError(Code.NOT_FOUND, f"There is no route `{scope['path'][:200]}` here.")
        headers: Headers = scope["headers"]
        if self.audience is Audience.LOOPBACK:
            _refuse_from_elsewhere(scope["client"], headers)
        host = _only(headers, b"host")
        self._refuse_name(host)
        if is_data:
            _refuse_other_sites(headers, host)

    def _refuse_name(self, host: str) -> None:
        match = _HOST.fullmatch(host)
        name = "" if match is None else match["address"] or match["name"]
        if name == "localhost" or name in self.hosts:
            return
        address = literal_address(name)
        if address is None or (self.audience is Audience.LOOPBACK and not address.is_loopback):
            raise _closed(
                f"does not answer to the name {host[:_SHOWN_CHARACTERS]!r}, which a foreign site could have made to "
                "point here. Call it by its address or as localhost, or add the name to status_page.hosts."
            )


def _refuse_from_elsewhere(client: tuple[str, int] | None, headers: Headers) -> None:
    if client is None or not is_loopback(client[0]):
        raise _closed(
            "is shown to clients on this machine alone. Come through a tunnel (ssh -L, kubectl port-forward), or set "
            "status_page.visible_to to everyone."
        )
    passed_on = header_of_a_proxy(name.decode("latin-1") for name, _ in headers)
    if passed_on is not None:
        raise _closed(
            f"is shown to clients on this machine alone, and this request has a header {passed_on}, so a proxy sent "
            "it for somebody else. Come without the proxy, or set status_page.visible_to to everyone."
        )


def _refuse_other_sites(headers: Headers, host: str) -> None:
    origins = [value for name, value in headers if name == b"origin"]
    sites = [value for name, value in headers if name == b"sec-fetch-site"]
    own = {f"{scheme}://{host}".encode("latin-1") for scheme in ("http", "https")}
    if any(origin.lower() not in own for origin in origins) or any(site not in _OWN_SITES for site in sites):
        raise _closed("answers its own page alone, and a page of another site has asked.")


def _only(headers: Headers, name: bytes) -> str:
    """The value of a header that must be there once; empty where it is not."""
    values = [value for each, value in headers if each == name]
    return values[0].decode("latin-1").lower() if len(values) == 1 else ""


def _closed(why: str) -> GatewayError:
    return GatewayError(Code.PERMISSION_DENIED, f"The status page {why}")
