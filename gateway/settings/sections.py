"""The sections that stand alone: each setting, its default and its check."""

from importlib.metadata import PackageNotFoundError, version
from ipaddress import IPv4Network, IPv6Network
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, PositiveFloat, PositiveInt, model_validator

from gateway.domain.image import ImageFormat
from gateway.settings.section import Section, word
from gateway.settings.tls import ServerTlsSettings

MIB = 1 << 20
_OTEL = "opentelemetry-exporter-otlp-proto-http"


def is_installed(distribution: str) -> bool:
    try:
        version(distribution)
    except PackageNotFoundError:
        return False
    return True


class ServerSettings(Section):
    """The side towards clients."""

    host: Annotated[
        str | None,
        Field(
            description="address to listen on; left out: 0.0.0.0, which is every one of this machine, where keys are "
            "configured, else 127.0.0.1"
        ),
    ] = None
    port: Annotated[int, Field(ge=1, le=65_535, description="port to listen on")] = 8080
    seats: Annotated[int, Field(ge=0, description="requests inside the gateway at once; 0 refuses all")] = 2048
    max_body_bytes: Annotated[
        PositiveInt, Field(description="of a request body as it comes; never more than half of budget.body_bytes")
    ] = 32 * MIB
    max_decoded_body_bytes: Annotated[
        PositiveInt,
        Field(description="of a compressed body once it is decoded; never more than a quarter of budget.body_bytes"),
    ] = 32 * MIB
    body_min_bytes_per_second: Annotated[
        int,
        Field(ge=0, description="a body that comes slower after its first ten seconds is refused; 0: take your time"),
    ] = 16 * 1024
    write_timeout_seconds: Annotated[
        float,
        Field(gt=0, description="a client that takes less than 1 KiB a second of its answer for so long is cut off"),
    ] = 30.0
    overload_status: Annotated[
        Literal[429, 503, 529] | None,
        Field(
            description="stands in place of every 429, but for a tenant's own limits, and of the 503 of who waited in "
            "vain; left out: these two"
        ),
    ] = None
    keep_alive_seconds: Annotated[
        PositiveInt, Field(description="a client's connection that nothing is asked on is closed after so long")
    ] = 75
    drain_route: Annotated[
        bool,
        Field(
            description="POST /gateway/drain from this host takes the gateway out of service and waits until nothing "
            "is in flight, for a preStop hook of the model server beside it; DELETE calls it off"
        ),
    ] = False
    drain_grace_seconds: Annotated[
        float, Field(ge=0, description="after SIGTERM requests are still taken for so long, while others hear of it")
    ] = 5.0
    drain_seconds: Annotated[
        PositiveInt, Field(description="after SIGTERM the process ends by then, whoever is still inside")
    ] = 30
    tls: ServerTlsSettings = ServerTlsSettings()

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

    policy: Annotated[
        Literal["inline", "forward", "refuse"],
        Field(
            description="inline: fetched here and sent on as data; forward: fetched here, and the address goes on; "
            "refuse: no address is asked"
        ),
    ] = "inline"
    timeout_seconds: Annotated[
        PositiveFloat, Field(description="for the whole of one fetch, redirects included, waiting for a turn not")
    ] = 5.0
    max_redirects: Annotated[int, Field(ge=0, description="redirects that one fetch follows")] = 3
    allow_hosts: Annotated[
        tuple[str, ...],
        Field(
            description="the only hosts that are asked, by their names in addresses, without a port (allow_ports has "
            "those) and without a final dot, which makes it another name; empty: all"
        ),
    ] = ()
    allow_networks: Annotated[
        tuple[IPv4Network | IPv6Network, ...], Field(description="asked although they are not of the public internet")
    ] = ()
    allow_ports: Annotated[tuple[PositiveInt, ...], Field(description="the only ports that are asked")] = (80, 443)
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

    max_bytes: Annotated[
        PositiveInt, Field(description="of one image file, decoded from its base64 or as it is fetched")
    ] = 20 * MIB
    max_pixels: Annotated[
        PositiveInt, Field(description="of one image; less where budget.decode_bytes cannot hold so many of its format")
    ] = 50_000_000
    max_jpeg_pixels: Annotated[
        PositiveInt | None,
        Field(
            description="of a JPEG that is not progressive, which is decoded at a reduced scale; left out: 100000000, "
            "or max_pixels where that is set"
        ),
    ] = None
    max_aspect_ratio: Annotated[float, Field(ge=1, description="long side by short side")] = 200.0
    min_side: Annotated[int, Field(ge=1, description="sides below it are enlarged to the model's own size")] = 1
    max_per_turn: Annotated[
        PositiveInt | None,
        Field(description="images from the last answer of the assistant on; left out: no limit beside max_forwarded"),
    ] = None
    max_forwarded: Annotated[
        PositiveInt | None,
        Field(
            description="images that one request may take to vLLM, after trimming; left out: learned from vLLM's own "
            "refusals (--limit-mm-per-prompt)"
        ),
    ] = None
    formats: Annotated[
        frozenset[ImageFormat],
        Field(description="what is let in, judged by the bytes; heic only with the extra of that name installed"),
    ] = frozenset(ImageFormat)
    verify: Annotated[
        Literal["full", "header"],
        Field(description="full: each new image is decoded once before vLLM sees it; header: its header is trusted"),
    ] = "full"
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

    fit: Annotated[
        Literal["shrink", "refuse"],
        Field(
            description="an image that alone exceeds vLLM's encoder budget or the context is made to fit, or left for "
            "the refusal"
        ),
    ] = "shrink"
    preset: Annotated[
        Literal["off", "thumbnail", "ocr", "detail"],
        BeforeValidator(word),
        Field(description="larger images are brought under 512 x 512, 1280 x 1280 or 1600 x 1600 pixels in area"),
    ] = "off"
    max_tokens_per_image: Annotated[
        PositiveInt | None,
        Field(description="visual tokens; what cannot be brought under it is refused; left out: the model's own most"),
    ] = None
    max_tokens_per_request: Annotated[
        PositiveInt | None,
        Field(
            description="visual tokens of all images together, shared out by the next power of two of their number; "
            "left out: no limit"
        ),
    ] = None
    honour_detail: Annotated[
        bool, Field(description="`detail: low` of an image stands for the preset thumbnail; vLLM ignores it")
    ] = False


class HistorySettings(Section):
    """Which old images a long conversation loses."""

    mode: Annotated[
        Literal["when_needed", "always", "off"],
        BeforeValidator(word),
        Field(
            description="when_needed: only where the conversation has more images than vLLM takes, or no longer fits "
            "the context; always: beyond `keep` too; off: never"
        ),
    ] = "when_needed"
    keep: Annotated[
        PositiveInt | None,
        Field(description="the newest images that stay; left out: as many as one request may take to vLLM"),
    ] = None
    grid: Annotated[
        PositiveInt,
        Field(description="images go by so many at once, so that vLLM's prefix cache holds for as many turns"),
    ] = 4
    marker: Annotated[
        str, Field(min_length=1, max_length=200, description="the text that takes the place of each image left out")
    ] = "[image removed to fit the context]"


class BudgetSettings(Section):
    """Capacities. Those left empty are discovered, learned or derived from the memory limit."""

    kv_blocks: Annotated[
        PositiveInt | None,
        Field(
            description="most KV blocks of each server that are used; left out: all that vLLM tells of, and no limit "
            "until it does"
        ),
    ] = None
    sequences: Annotated[
        PositiveInt | None,
        Field(
            description="answers generated at once by each server (--max-num-seqs); left out: learned from its queue"
        ),
    ] = None
    encoder_tokens: Annotated[
        PositiveInt | None,
        Field(
            description="embeddings of its encoder cache (the larger of --max-num-batched-tokens and the largest "
            "item); left out: learned from vLLM's own refusals, and not enforced until then"
        ),
    ] = None
    preprocess_backlog_seconds: Annotated[
        PositiveFloat,
        Field(
            description="images sent on may keep vLLM's one preprocessing thread busy for so long; never more than a "
            "quarter of the shortest slo.first_token_seconds"
        ),
    ] = 2.0
    body_bytes: Annotated[
        PositiveInt | None,
        Field(description="memory for all request bodies; left out: a quarter of the memory limit, at most 4 GiB"),
    ] = None
    decode_bytes: Annotated[
        PositiveInt | None,
        Field(description="memory for decoding images; left out: a quarter of the memory limit, at most 4 GiB"),
    ] = None


class QueueSettings(Section):
    """How many requests may wait for a place, and for how long."""

    requests: Annotated[
        int, Field(ge=0, description="that may wait for each server; 0: who has no place is refused")
    ] = 256
    wait_seconds: Annotated[
        PositiveFloat, Field(description="the longest wait of one request, which is then refused (deadline_passed)")
    ] = 30.0


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
    poll_seconds: Annotated[PositiveFloat, Field(description="between two readings")] = 10.0


class LogSettings(Section):
    """What is written while the gateway runs."""

    level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Field(description="least important lines of the gateway's own log, on standard error"),
    ] = "info"
    format: Annotated[
        Literal["auto", "json", "console"],
        Field(
            description="of these lines. json: one object each; console: for people; auto: console where standard "
            "error is a terminal, else json"
        ),
    ] = "auto"
    requests: Annotated[bool, Field(description="one JSON line for each request, on standard output")] = True
