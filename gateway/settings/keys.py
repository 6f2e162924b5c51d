"""Who is let in: the settings of keys and of the header by which a mesh names tenants, and the entries of a keys file.

A key is 256 random bits, of which only the SHA-256 is ever written. A slow hash (bcrypt, argon2) protects words that
people choose, for these can be guessed at; nobody guesses one of 2^256, and a slow hash would cost every request more
than all that the gateway does.
"""

import re
from collections.abc import Iterator, Mapping
from ipaddress import IPv4Network, IPv6Network
from typing import Annotated, Literal

from pydantic import AfterValidator, AwareDatetime, Field, ValidatorFunctionWrapHandler, WrapValidator, model_validator

from gateway.domain.tenancy import DEFAULT_CLASS
from gateway.settings.section import Place, Section, checked


def _digest(text: str) -> str:
    if not re.fullmatch("[0-9a-fA-F]{64}", text):
        raise ValueError("must be 64 hex digits: the SHA-256 of a key, as `printf %s KEY | sha256sum` prints it")
    return text.lower()


KeyDigest = Annotated[str, AfterValidator(_digest)]
LONGEST_NAME = 64
Name = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME)]


class KeySettings(Section):
    """Keys of clients, beside those of `tenants[].key_sha256`. Where there are any, or a file for them is named, who
    comes with none of them is refused.
    """

    file: Annotated[
        str | None,
        Field(
            description="a file with the hashes of keys, as `vlm-gateway key create` writes it; read anew when it "
            "changes, and at SIGHUP"
        ),
    ] = None
    unknown: Annotated[
        Literal["refuse", "default"],
        Field(
            description="who comes without a key, or with an unknown one, where keys are configured. refuse: 401; "
            "default: gets in as the tenant `default`, so that keys only tell who is who"
        ),
    ] = "refuse"


class TenantsFromSettings(Section):
    """A header that names the tenant, for a gateway behind a mesh or proxy that has let the client in already. What it
    says counts only from `networks`, where it stands in place of a key; the header never goes on to vLLM.
    """

    header: Annotated[
        str | None,
        Field(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$", description="its name in lower case; left out: none names tenants"),
    ] = None
    networks: Annotated[
        tuple[IPv4Network | IPv6Network, ...],
        Field(description="where the proxies are that may name tenants: the peers of connections"),
    ] = ()

    @model_validator(mode="after")
    def _is_whole(self) -> "TenantsFromSettings":
        if (self.header is None) != (not self.networks):
            raise ValueError("header and networks go together: say what names the tenant, and who may say it")
        return self


class KeyEntry(Section):
    """One key of a keys file."""

    name: Name
    tenant: Name = DEFAULT_CLASS
    sha256: KeyDigest
    created: AwareDatetime | None = None
    expires: AwareDatetime | None = None


def _all_mistakes(value: object, check: ValidatorFunctionWrapHandler) -> object:
    return checked(value, check, _twice(value))


def _twice(value: object) -> Iterator[tuple[Place, str]]:
    """`value` is not checked yet: what is no list of keys has none."""
    seen: set[tuple[str, str]] = set()
    for index, entry in enumerate(value if isinstance(value, list | tuple) else ()):
        for field in ("name", "sha256"):
            text = entry.get(field) if isinstance(entry, Mapping) else None
            if isinstance(text, str):
                if (field, text.lower()) in seen:
                    yield (index, field), "is there twice"
                seen.add((field, text.lower()))


class KeysFile(Section):
    """The whole keys file."""

    keys: Annotated[tuple[KeyEntry, ...], WrapValidator(_all_mistakes)] = ()
