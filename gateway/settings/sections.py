"""The sections that stand alone: each setting, its default and its check."""

from importlib.metadata import PackageNotFoundError, version
from ipaddress import IPv4Network, IPv6Network
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, PositiveFloat, PositiveInt, model_validator

from gateway.domain.image import ImageFormat
from gateway.settings.section import Section

MIB = 1 << 20
_OTEL = "opentelemetry-exporter-otlp-proto-http"


def is_installed(distribution: str) -> bool:
    try:
        version(distribution)
    except PackageNotFoundError:
        return False
    return True


def _word(value: object) -> object:
    """YAML reads a bare `off` as false."""
    return "off" if value is False else value


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
    drain_route: Annotated[
        bool,
        Field(
            description="POST /gateway/drain from this host takes the gateway out of service and waits until nothing is "
            "in flight, for a preStop hook of the model server beside it; DELETE calls it off"
        ),
    ] = False
    drain_grace_seconds: Annotated[
        float, Field(ge=0, description="after SIGTERM requests are still taken for so long, while others hear of it")
    ] = 5.0
    drain_seconds: Annotated[
        PositiveInt, Field(description="after SIGTERM the process ends at the latest, whoever is still inside")
    ] = 30

    @model_validator(mode="after")
    def _grace_is_part_of_the_drain(self) -> Self:
        if self.drain_grace_seconds >= self.drain_seconds:
            raise ValueError(
                "`drain_grace_seconds` must be below `drain_seconds`: who is let in needs time to be served"
            )
        return self


class RemoteSettings(Section):
    """Images by http(s) address. `inline`: fetched here, checked, counted and sent on as data. `forward`: the address
    goes on as it came once that is done, unless the image is encoded anew; only for `allow_hosts`.
    """

    policy: Literal["inline", "forward", "refuse"] = "inline"
    timeout_seconds: PositiveFloat = 5.0
    max_redirects: Annotated[int, Field(ge=0)] = 3
    allow_hosts: Annotated[
        tuple[str, ...], Field(description="the only hosts that are asked, by their names in addresses; empty: all")
    ] = ()
    allow_networks: Annotated[
        tuple[IPv4Network | IPv6Network, ...], Field(description="asked although they are not of the public internet")
    ] = ()
    allow_ports: tuple[PositiveInt, ...] = (80, 443)
    per_host: Annotated[PositiveInt, Field(description="images fetched of one host at once")] = 8
    proxy: Annotated[
        str | None,
        Field(
            pattern=r"^http://[^\s/@]+/?$", description="http://host:port, asked for every image, to guard the network"
        ),
    ] = None

    @model_validator(mode="after")
    def _forwards_only_to_known_hosts(self) -> Self:
        if self.policy == "forward" and not self.allow_hosts:
            raise ValueError("policy is forward, but allow_hosts names no host whose addresses may go on")
        return self


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
    decode_seconds: Annotated[
        PositiveInt, Field(description="CPU for decoding one image; then its process is ended")
    ] = 20
    transform_seconds: Annotated[
        PositiveFloat, Field(description="for decoding all images of a request, waiting for their turn included")
    ] = 60.0
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


class TracingSettings(Section):
    """Spans by OpenTelemetry, with the extra `otel`. Where they go is said by OTEL_EXPORTER_OTLP_ENDPOINT."""

    enabled: Annotated[bool, Field(description="a span for each request, and the trace of slow waits in metrics")] = (
        False
    )

    @model_validator(mode="after")
    def _can_be_had(self) -> Self:
        if self.enabled and not is_installed(_OTEL):
            raise ValueError("`enabled` needs the extra `otel`: pip install 'vlm-gateway[otel]'")
        return self


class GpuSettings(Section):
    """What GPUs say of themselves, shown in metrics beside the budget and used for nothing else."""

    source: Annotated[
        str | None,
        Field(
            pattern=r"^(nvidia-smi|https?://\S+)$", description="nvidia-smi, or the address of a DCGM exporter's page"
        ),
    ] = None
    poll_seconds: PositiveFloat = 10.0


class LogSettings(Section):
    level: Literal["debug", "info", "warning", "error"] = "info"
    requests: bool = True
