"""Certificates and keys from their files into contexts of TLS, and anew into the same contexts when the files change.

A context serves handshakes to come: what it gets anew is for new connections, and those that stand are not touched.
What was trusted stays trusted until the process ends, for a context forgets no authority.
"""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from gateway.settings import Settings
from gateway.settings.tls import UpstreamTlsSettings
from gateway.upstream.tls import UpstreamTls

logger = logging.getLogger(__name__)

LOOK_SECONDS = 5.0


class CertificateError(Exception):
    """A file cannot be used; the text names it and says why."""


@dataclass(frozen=True, slots=True)
class Files:
    """Of one context: the authorities that it trusts (None: the system's, or nobody), and its own pair."""

    authorities: str | None = None
    certificate: str | None = None
    key: str | None = None

    def stamps(self) -> tuple[tuple[int, int, int] | None, ...]:
        """Which differ when a file was written or replaced."""
        return tuple(map(_stamp, (self.authorities, self.certificate, self.key)))


def _stamp(path: str | None) -> tuple[int, int, int] | None:
    try:
        status = Path(path).stat() if path else None
    except OSError:
        return None
    return status and (status.st_mtime_ns, status.st_size, status.st_ino)


class Renewed:
    """A context whose files may be replaced. `name` is the setting that they stand in. Raises CertificateError."""

    def __init__(self, name: str, files: Files, make: Callable[[Files], ssl.SSLContext]) -> None:
        self._name = name
        self._files = files
        self._make = make
        self._seen = files.stamps()
        self._complaint = ""
        self.context = self._made()

    def look(self) -> None:
        """Read what has changed. What cannot be used leaves the context as it was, and is tried again with each look,
        for one of two files may be there before the other.
        """
        stamps = self._files.stamps()
        if stamps == self._seen:
            return
        try:
            self._made()
            _load(self.context, self._files)
        except CertificateError as error:
            self._complain(str(error))
            return
        self._seen, self._complaint = stamps, ""
        logger.info("%s: certificates were read anew", self._name)

    def _made(self) -> ssl.SSLContext:
        try:
            return self._make(self._files)
        except CertificateError as error:
            raise CertificateError(f"{self._name}: {error}") from error

    def _complain(self, text: str) -> None:
        if text != self._complaint:
            self._complaint = text
            logger.warning("%s; what was read before stays in use", text)


class Certificates:
    """Every context of the process. Raises CertificateError where one cannot be made."""

    def __init__(
        self, server: Renewed | None, upstreams: Mapping[str, UpstreamTls], renewed: Iterable[Renewed]
    ) -> None:
        self.server = None if server is None else server.context
        self.upstreams = upstreams
        self._renewed = tuple(renewed)

    async def renew_for_ever(self, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Reading files may take its time, so a thread does it."""
        while self._renewed:
            await sleep(LOOK_SECONDS)
            await asyncio.to_thread(self.look)

    def look(self) -> None:
        for each in self._renewed:
            each.look()


def certificates_of(settings: Settings) -> Certificates:
    """By the addresses of the servers behind `https://`, and the gateway's own."""
    own = settings.server.tls
    files = Files(own.client_ca_file, own.certificate_file, own.key_file)
    server = None if own.certificate_file is None else Renewed("server.tls", files, _for_clients)
    renewed, upstreams = [] if server is None else [server], {}
    for place, url, tls in _servers(settings):
        renewed.append(Renewed(place, Files(tls.ca_file, tls.certificate_file, tls.key_file), _for_servers))
        upstreams[url] = UpstreamTls(renewed[-1].context, tls.server_name, is_anonymous=tls.certificate_file is None)
    return Certificates(server, upstreams, renewed)


def _servers(settings: Settings) -> Iterator[tuple[str, str, UpstreamTlsSettings]]:
    common = settings.upstream
    several = [(f"upstreams.{index}.tls", each.url, each.tls) for index, each in enumerate(settings.upstreams)]
    for place, url, tls in several or [("upstream.tls", common.url, common.tls)]:
        if url.scheme == "https":
            yield place, str(url), tls or common.tls


def _for_clients(files: Files) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    if files.authorities is not None:
        context.verify_mode = ssl.CERT_REQUIRED
    _load(context, files)
    return context


def _for_servers(files: Files) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if files.authorities is None:
        context.load_default_certs()
    _load(context, files)
    return context


def _load(context: ssl.SSLContext, files: Files) -> None:
    if files.authorities is not None:
        _read(files.authorities, lambda path: context.load_verify_locations(cafile=path))
    if files.certificate is not None:
        _read(files.certificate, lambda path: context.load_cert_chain(path, files.key, password=_no_password))


def _read(path: str, load: Callable[[str], None]) -> None:
    try:
        load(path)
    except ssl.SSLError as error:
        raise CertificateError(f"{path} cannot be used ({_reason(error)})") from error
    except OSError as error:
        raise CertificateError(f"{path}, or the key beside it, cannot be read: {error.strerror}") from error
    except _PasswordError as error:
        raise CertificateError(f"the key of {path} has a password; write it without one") from error


class _PasswordError(Exception):
    pass


def _no_password() -> str:
    """Without it the process would ask at its terminal."""
    raise _PasswordError


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).replace("_", " ").lower()
