"""Every setting, its default and its check. Where values come from is settings_sources.py's.

Nothing here decides about requests: policies.py turns these values into the frozen policies of domain/.
"""

import re
from collections.abc import Iterator, Mapping
from ipaddress import IPv4Network, IPv6Network
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    HttpUrl,
    PositiveFloat,
    PositiveInt,
    SecretStr,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from gateway.domain.image import ImageFormat
from gateway.domain.learning import ReservationRule
from gateway.domain.priority import Priority
from gateway.domain.tenancy import DEFAULT_CLASS

MIB = 1 << 20
MOST_TENANTS = 16
PriorityWord = Literal["critical", "interactive", "default", "batch"]


def _printable(secret: SecretStr) -> SecretStr:
    value = secret.get_secret_value()
    if not value or any(not "!" <= character <= "~" for character in value):
        raise ValueError("must be printable ASCII without blanks, and not empty")
    return secret


def _root(url: HttpUrl) -> HttpUrl:
    if (url.path or "").rstrip("/").endswith("/v1"):
        raise ValueError("leave out /v1: the gateway adds each route to the address itself")
    if url.username is not None or url.password is not None:
        raise ValueError("leave out what stands before @: a key goes into upstream.api_key, which is shown nowhere")
    if url.query is not None or url.fragment is not None:
        raise ValueError("leave out what begins with ? or #: the gateway adds each route to the address itself")
    return url


def _word(value: object) -> object:
    """YAML reads a bare `off` as false."""
    return "off" if value is False else value


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ServerSettings(Section):
    """The side towards clients."""

    host: str = "0.0.0.0"  # noqa: S104  # a gateway that only the own host can reach serves nobody
    port: Annotated[int, Field(ge=1, le=65_535)] = 8080
    seats: Annotated[int, Field(ge=0, description="requests inside the gateway at once; 0 refuses all")] = 2048
    max_body_bytes: PositiveInt = 32 * MIB
    max_decoded_body_bytes: PositiveInt = 32 * MIB
    body_min_bytes_per_second: Annotated[int, Field(ge=0)] = 16 * 1024
    write_timeout_seconds: Annotated[
        float,
        Field(gt=0, description="a client that takes less than 1 KiB a second of its answer for so long is cut off"),
    ] = 30.0
    overload_status: Literal[429, 503, 529] | None = None
    keep_alive_seconds: PositiveInt = 75
    drain_seconds: PositiveInt = 30


class UpstreamSettings(Section):
    """The vLLM server behind the gateway. `api_key` is vLLM's own `--api-key`; `api_key_file` names a file with it."""

    url: Annotated[HttpUrl, AfterValidator(_root)] = HttpUrl("http://127.0.0.1:8000")
    api_key: Annotated[SecretStr, AfterValidator(_printable)] | None = None
    api_key_file: str | None = None
    connect_timeout_seconds: PositiveFloat = 5.0
    first_byte_timeout_seconds: PositiveFloat = 120.0
    gap_timeout_seconds: PositiveFloat = 120.0
    total_timeout_seconds: PositiveFloat = 600.0
    inject_usage: Annotated[
        bool, Field(description="ask for the usage of streams; the client gets that event only where it asked itself")
    ] = True
    poll_seconds: PositiveFloat = 1.0


class RemoteSettings(Section):
    """Images by http(s) URL. Fetching is not yet supported: whatever the policy says, such parts are refused.

    Until it is, only `policy` has an effect: `inline` makes the start say so. All others are read and do nothing.
    """

    policy: Literal["refuse", "inline"] = "refuse"
    timeout_seconds: PositiveFloat = 5.0
    max_redirects: Annotated[int, Field(ge=0)] = 3
    allow_networks: tuple[IPv4Network | IPv6Network, ...] = ()
    allow_ports: tuple[PositiveInt, ...] = (80, 443)


class ImageSettings(Section):
    """What an image may be, and how many a request may have. Counts left empty are the upstream's own."""

    max_bytes: PositiveInt = 20 * MIB
    max_pixels: PositiveInt = 50_000_000
    max_jpeg_pixels: PositiveInt | None = None
    max_aspect_ratio: Annotated[float, Field(ge=1)] = 200.0
    min_side: Annotated[int, Field(ge=1, description="sides below it are enlarged to the model's own size")] = 1
    max_per_turn: PositiveInt | None = None
    max_forwarded: PositiveInt | None = None
    formats: frozenset[ImageFormat] = frozenset(ImageFormat)
    verify: Literal["full", "header"] = "full"
    remote: RemoteSettings = RemoteSettings()

    @property
    def jpeg_pixels(self) -> int:
        """JPEG is decoded at a reduced scale, so more is let in, unless the operator has set a limit himself."""
        return self.max_jpeg_pixels or (self.max_pixels if "max_pixels" in self.model_fields_set else 100_000_000)


class ResizeSettings(Section):
    """When images are made smaller."""

    fit: Literal["shrink", "refuse"] = "shrink"
    preset: Annotated[Literal["off", "thumbnail", "ocr", "detail"], BeforeValidator(_word)] = "off"
    max_tokens_per_image: PositiveInt | None = None
    max_tokens_per_request: PositiveInt | None = None
    honour_detail: bool = False


class HistorySettings(Section):
    """Which old images a long conversation loses."""

    mode: Annotated[Literal["when_needed", "always", "off"], BeforeValidator(_word)] = "when_needed"
    keep: PositiveInt | None = None
    grid: PositiveInt = 4
    marker: Annotated[str, Field(min_length=1, max_length=200)] = "[image removed to fit the context]"


class BudgetSettings(Section):
    """Capacities. Those left empty are discovered, learned or derived from the memory limit."""

    kv_blocks: PositiveInt | None = None
    sequences: PositiveInt | None = None
    encoder_tokens: PositiveInt | None = None
    preprocess_backlog_seconds: PositiveFloat = 2.0
    body_bytes: PositiveInt | None = None
    decode_bytes: PositiveInt | None = None


class QueueSettings(Section):
    """How many requests may wait for a place, and for how long."""

    requests: Annotated[int, Field(ge=0)] = 256
    wait_seconds: PositiveFloat = 30.0


class ModelSettings(Section):
    """A served model, where its name alone does not tell."""

    name: Annotated[str, Field(min_length=1)]
    family: str | None = None
    folder: str | None = None
    processor: dict[str, object] | None = None


def _digest(text: str) -> str:
    if not re.fullmatch("[0-9a-fA-F]{64}", text):
        raise ValueError("must be 64 hex digits: the SHA-256 of a key, as `printf %s KEY | sha256sum` prints it")
    return text.lower()


class TenantSettings(Section):
    """Who shares the engine, found by the SHA-256 of their keys in hex; nobody is refused for a key.

    The one named `default` has no keys: it is everyone else.
    """

    name: Annotated[str, Field(min_length=1, max_length=64)]
    key_sha256: tuple[Annotated[str, AfterValidator(_digest)], ...] = ()
    weight: Annotated[float, Field(ge=0.001, le=1000)] = 1.0
    priority: PriorityWord = "default"
    most_urgent: PriorityWord = "interactive"


_Place = tuple[int | str, ...]


def _all_mistakes(value: object, check: ValidatorFunctionWrapHandler) -> object:
    """Those of each tenant, and those that one makes beside the others, in one error."""
    mistakes = [_mistake(place, "conflict", text) for place, text in _conflicts(value)]
    try:
        tenants = check(value)
    except ValidationError as error:
        mistakes += [_mistake(each["loc"], each["type"], each["msg"]) for each in error.errors()]
    if mistakes:
        raise ValidationError.from_exception_data("tenants", mistakes)
    return tenants


def _mistake(place: _Place, kind: str, text: str) -> InitErrorDetails:
    return InitErrorDetails(type=PydanticCustomError(kind, text), loc=place, input=None)


def _conflicts(value: object) -> Iterator[tuple[_Place, str]]:
    """`value` is not checked yet: what is no list of tenants has none."""
    tenants = value if isinstance(value, list | tuple) else ()
    readable = [(index, tenant) for index, tenant in enumerate(tenants) if isinstance(tenant, Mapping)]
    names: list[object] = []
    digests: list[object] = []
    for index, tenant in readable:
        name, keys = tenant.get("name"), tenant.get("key_sha256", ())
        if name in names:
            yield (index, "name"), "another tenant has this name"
        names.append(name)
        if (name == DEFAULT_CLASS) == bool(keys):
            yield (index, "key_sha256"), "all but the tenant `default` need a key, and that one has none"
        for place, key in enumerate(keys if isinstance(keys, list | tuple) else ()):
            digest = key.lower() if isinstance(key, str) else key
            if digest in digests:
                yield (index, "key_sha256", place), "is there twice; a key belongs to one tenant"
            digests.append(digest)
        yield from _wrong_order(index, tenant)
    if len({str(name) for name in names} - {DEFAULT_CLASS}) > MOST_TENANTS:
        yield (), f"at most {MOST_TENANTS} can be told apart besides `default`; put keys together under one name"


def _wrong_order(index: int, tenant: Mapping[str, object]) -> Iterator[tuple[_Place, str]]:
    words = [priority.label for priority in Priority]
    usual, most = tenant.get("priority", "default"), tenant.get("most_urgent", "interactive")
    if usual in words and most in words and words.index(str(usual)) < words.index(str(most)):
        yield (index, "priority"), f"{usual} is more urgent than most_urgent allows, which is {most}"


class LogSettings(Section):
    level: Literal["debug", "info", "warning", "error"] = "info"
    requests: bool = True


class Settings(Section):
    """The whole file."""

    server: ServerSettings = ServerSettings()
    upstream: UpstreamSettings = UpstreamSettings()
    images: ImageSettings = ImageSettings()
    resize: ResizeSettings = ResizeSettings()
    history: HistorySettings = HistorySettings()
    budget: BudgetSettings = BudgetSettings()
    queue: QueueSettings = QueueSettings()
    output_reservation: ReservationRule = ReservationRule.QUANTILE
    models: tuple[ModelSettings, ...] = ()
    tenants: Annotated[tuple[TenantSettings, ...], WrapValidator(_all_mistakes)] = ()
    log: LogSettings = LogSettings()
