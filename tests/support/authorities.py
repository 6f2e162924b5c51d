"""Certificates by authorities that exist for one test, as files that can be replaced."""

import pathlib
import ssl
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import trustme

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, as files."""

    certificate: pathlib.Path
    key: pathlib.Path

    def write(self, issued: trustme.LeafCert) -> None:
        self.write_certificate(issued)
        self.write_key(issued)

    def write_certificate(self, issued: trustme.LeafCert) -> None:
        self.certificate.write_bytes(b"".join(pem.bytes() for pem in issued.cert_chain_pems))

    def write_key(self, issued: trustme.LeafCert) -> None:
        self.key.write_bytes(issued.private_key_pem.bytes())

    def as_settings(self, **others: object) -> dict[str, Any]:
        return {"certificate_file": str(self.certificate), "key_file": str(self.key)} | others


def pair(folder: pathlib.Path, issued: trustme.LeafCert, name: str = "own") -> Pair:
    made = Pair(folder / f"{name}.pem", folder / f"{name}.key")
    made.write(issued)
    return made


def authority_file(folder: pathlib.Path, *authorities: trustme.CA, name: str = "ca") -> str:
    path = folder / f"{name}.pem"
    path.write_bytes(b"".join(each.cert_pem.bytes() for each in authorities))
    return str(path)


def serving(issued: trustme.LeafCert, *, asks_for: trustme.CA | None = None) -> ssl.SSLContext:
    """A server with this certificate, which asks for one by an authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    issued.configure_cert(context)
    if asks_for is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        asks_for.configure_trust(context)
    return context


def trusting(authority: trustme.CA, own: trustme.LeafCert | None = None) -> ssl.SSLContext:
    """A client."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.configure_trust(context)
    if own is not None:
        own.configure_cert(context)
    return context


def expired(authority: trustme.CA) -> trustme.LeafCert:
    return authority.issue_cert(HOST, not_before=datetime(2020, 1, 1), not_after=datetime(2021, 1, 1))  # noqa: DTZ001
