"""Certificates, towards clients and towards the servers behind the gateway. Their files are read elsewhere."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from gateway.settings.section import Section


class ServerTlsSettings(Section):
    """HTTPS instead of HTTP towards clients, TLS 1.2 at least. The files are PEM, are looked at every few seconds, and
    may be replaced at any time: new connections get the new certificate, open ones stay.
    """

    certificate_file: Annotated[
        str | None, Field(description="the certificate and those between it and its root; left out: plain HTTP")
    ] = None
    key_file: Annotated[str | None, Field(description="its private key, without a password")] = None
    client_ca_file: Annotated[
        str | None,
        Field(description="clients must show a certificate by one of these authorities; left out: none is asked for"),
    ] = None

    @model_validator(mode="after")
    def _belong_together(self) -> Self:
        _pair(self.certificate_file, self.key_file)
        if self.client_ca_file and not self.certificate_file:
            raise ValueError("`client_ca_file` needs `certificate_file` and `key_file`: without them there is no TLS")
        return self


class UpstreamTlsSettings(Section):
    """For servers behind `https://`. The files are PEM and may be replaced at any time, as those of `server.tls`."""

    ca_file: Annotated[
        str | None,
        Field(
            description="the authorities that the server's certificate must come from; left out: those of the system"
        ),
    ] = None
    certificate_file: Annotated[
        str | None, Field(description="the gateway's own certificate, for a server that asks for one")
    ] = None
    key_file: Annotated[str | None, Field(description="its private key, without a password")] = None
    server_name: Annotated[
        str | None,
        Field(min_length=1, description="the name that the server's certificate must have; left out: the url's host"),
    ] = None

    @model_validator(mode="after")
    def _belong_together(self) -> Self:
        _pair(self.certificate_file, self.key_file)
        return self


def _pair(certificate_file: str | None, key_file: str | None) -> None:
    if (certificate_file is None) != (key_file is None):
        raise ValueError("`certificate_file` and `key_file` belong together: give both or neither")
