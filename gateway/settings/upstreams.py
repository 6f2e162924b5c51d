"""The model servers behind the gateway: one by its address, or several by name."""

from collections.abc import Iterator, Mapping
from typing import Annotated

from pydantic import (
    AfterValidator,
    Field,
    HttpUrl,
    PositiveFloat,
    PositiveInt,
    SecretStr,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from gateway.settings.section import Place, Section, checked
from gateway.settings.tls import UpstreamTlsSettings


def _printable(secret: SecretStr) -> SecretStr:
    value = secret.get_secret_value()
    if not value or any(not "!" <= character <= "~" for character in value):
        raise ValueError("must be printable ASCII without blanks, and not empty")
    return secret


def _root(url: HttpUrl) -> HttpUrl:
    if (url.path or "").rstrip("/").endswith("/v1"):
        raise ValueError("leave out /v1: the gateway adds each route to the address itself")
    if url.username is not None or url.password is not None:
        raise ValueError("leave out what stands before @: a key goes into api_key, which is shown nowhere")
    if url.query is not None or url.fragment is not None:
        raise ValueError("leave out what begins with ? or #: the gateway adds each route to the address itself")
    return url


Address = Annotated[HttpUrl, AfterValidator(_root)]
Key = Annotated[SecretStr, AfterValidator(_printable)]


class UpstreamSettings(Section):
    """The vLLM server behind the gateway, and what holds for each where there are several. `api_key` is vLLM's own
    `--api-key`; `api_key_file` names a file with it.
    """

    url: Annotated[Address, Field(description="where it is, without /v1")] = HttpUrl("http://127.0.0.1:8000")
    api_key: Annotated[
        Key | None,
        Field(description="the server's key, sent with every request; what clients bring stays here"),
    ] = None
    api_key_file: Annotated[
        str | None, Field(description="a file that has the key, as a mounted secret; left out: api_key")
    ] = None
    forward_client_key: Annotated[
        bool,
        Field(
            description="where the gateway has no keys: what clients bring (`authorization`, `x-api-key`) goes on, for "
            "servers that know the clients' keys themselves"
        ),
    ] = False
    connect_timeout_seconds: Annotated[PositiveFloat, Field(description="for a connection to the server")] = 5.0
    first_byte_timeout_seconds: Annotated[
        PositiveFloat,
        Field(description="of a stream, until its first event; an answer in one piece has total_timeout_seconds"),
    ] = 120.0
    gap_timeout_seconds: Annotated[
        PositiveFloat, Field(description="between two pieces of an answer that has begun")
    ] = 120.0
    total_timeout_seconds: Annotated[
        PositiveFloat, Field(description="for the whole answer, from when the request was sent on")
    ] = 600.0
    inject_usage: Annotated[
        bool, Field(description="ask for the usage of streams; the client gets that event only where it asked itself")
    ] = True
    poll_seconds: Annotated[
        PositiveFloat, Field(description="between two looks at the server's /metrics and /health while there is work")
    ] = 1.0
    tls: UpstreamTlsSettings = UpstreamTlsSettings()


class NamedUpstream(Section):
    """One of several vLLM servers. What is left out is that of `upstream` (the key) or of `budget`; the name is then
    the address.
    """

    url: Annotated[Address, Field(description="where it is, without /v1")]
    name: Annotated[
        Annotated[str, Field(pattern="^[!-~]{1,64}$")] | None,
        Field(description="in metrics and logs; left out: the address without its scheme"),
    ] = None
    api_key: Annotated[Key | None, Field(description="its key; left out: upstream.api_key")] = None
    api_key_file: Annotated[str | None, Field(description="a file that has the key; left out: api_key")] = None
    tls: Annotated[UpstreamTlsSettings | None, Field(description="as upstream.tls, for this one; left out: that")] = (
        None
    )
    kv_blocks: Annotated[PositiveInt | None, Field(description="as budget.kv_blocks, for this one; left out: that")] = (
        None
    )
    sequences: Annotated[PositiveInt | None, Field(description="as budget.sequences, for this one; left out: that")] = (
        None
    )

    @property
    def shown_name(self) -> str:
        """In metrics, logs and messages."""
        return self.name or name_of(str(self.url))


def name_of(url: str) -> str:
    """An address as a name: host, port and path, as far as there are."""
    return url.partition("://")[2].rstrip("/")


def _all_mistakes(value: object, check: ValidatorFunctionWrapHandler) -> object:
    return checked(value, check, _conflicts(value))


def _conflicts(value: object) -> Iterator[tuple[Place, str]]:
    """`value` is not checked yet: what is no list of upstreams has none."""
    upstreams = value if isinstance(value, list | tuple) else ()
    names: set[str] = set()
    addresses: set[str] = set()
    for index, upstream in enumerate(upstreams):
        if not isinstance(upstream, Mapping) or not isinstance(upstream.get("url"), str):
            continue
        address = name_of(upstream["url"])
        name = str(upstream.get("name") or address)
        if address in addresses:
            yield (index, "url"), "another upstream has this address"
        elif name in names:
            yield (index, "name"), "another upstream has this name"
        names.add(name)
        addresses.add(address)


Upstreams = Annotated[tuple[NamedUpstream, ...], WrapValidator(_all_mistakes)]


def given_twice(settings: object) -> Iterator[tuple[Place, str]]:
    """Where the whole of the settings, not checked yet, has both one address and several."""
    if not isinstance(settings, Mapping) or not settings.get("upstreams"):
        return
    upstream = settings.get("upstream")
    if isinstance(upstream, Mapping) and "url" in upstream:
        yield ("upstream", "url"), "is given beside upstreams, which name all servers; keep one of the two"
