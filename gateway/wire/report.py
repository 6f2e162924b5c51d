"""The answer of `POST /gateway/preflight`, which is also what `vlm-gateway estimate --json` prints.

One flat JSON object: the verdict, and beside it the estimate where the request could be read. What is not known is
null. The names are public; `json_schema` describes them for /docs.
"""

from typing import Any, NamedTuple

import msgspec

from gateway.domain.preflight import Foresight, Outlook
from gateway.domain.remedies import Remedies, Shortage
from gateway.domain.request import VisionRequest
from gateway.wire.errors import error_status, retry_headers


class ErrorReport(msgspec.Struct):
    """The refusal as the client would get it. `headers` say when to come back (`retry-after`, `retry-after-ms`) or that
    it is of no use (`x-should-retry`).
    """

    status: int
    code: str
    reason: str
    param: str | None
    message: str
    headers: dict[str, str]


class CulpritReport(msgspec.Struct):
    """What is short: `resource` is `context_tokens`, `kv_blocks`, `sequences`, `encoder_tokens` or `preprocess_pixels`.

    `available` is what is free now, or for what never fits all there is; `capacity` all there is; `param` the part of
    the request that needs it where that is not the whole.
    """

    resource: str
    param: str | None
    needed: int
    available: int
    capacity: int | None
    deficit: int


class SizeReport(msgspec.Struct):
    """An image, and the size (`WxH`) to send it in."""

    param: str
    size: str


class LeaveOutReport(msgspec.Struct):
    """So many of the oldest images that stay, up to that at `up_to`; `turns` is how many turns end with these, None
    where the last turn is among them.
    """

    images: int
    up_to: str
    turns: int | None


class RemedyReport(msgspec.Struct):
    """What would make it fit. Each is enough alone; where both are set, `shorten_text_tokens` go with `leave_out`."""

    resize: list[SizeReport]
    leave_out: LeaveOutReport | None
    shorten_text_tokens: int | None
    max_tokens: int | None
    n: int | None


class PressureReport(msgspec.Struct):
    """What the request meets: how many times all of `resource` is held and waited for, how much more it would be had
    those waited that were refused just now, and the rungs of the ladder that are in force; `changes` is what they would
    do to it, as `x-gateway-pressure` says it.
    """

    ratio: float
    unmet: float
    resource: str
    in_force: list[str]
    changes: str | None


class VerdictReport(msgspec.Struct):
    """`verdict`: admitted, waiting or refused. The three fields after it are of one that would wait, `error` is of one
    that would be refused. `pressure` is null where there is no ladder.
    """

    verdict: Outlook
    ahead: int | None
    expected_wait_seconds: float | None
    longest_wait_seconds: float | None
    error: ErrorReport | None
    culprit: CulpritReport | None
    fits_with: RemedyReport | None
    pressure: PressureReport | None = None


class ModelReport(msgspec.Struct):
    """The model and how its family was found."""

    name: str
    family: str
    family_source: str
    max_model_len: int | None


class ImageReport(msgspec.Struct):
    """One image and what would be done with it (`action`: kept, normalised, resized or trimmed; `why`).

    Sizes are `WxH`: as it came, as it would be sent, as the model sees it. `tokens` are its placeholders,
    `prompt_tokens` those and the markers around it. What is trimmed unseen has neither format nor size.
    """

    param: str
    action: str
    why: str = ""
    format: str | None = None
    size: str | None = None
    file_bytes: int | None = None
    sent_size: str | None = None
    model_size: str | None = None
    tokens_before: int | None = None
    tokens: int | None = None
    prompt_tokens: int | None = None
    encoder_tokens: int | None = None


class BoundsReport(msgspec.Struct):
    """All three are equal where the text was counted by the model's own tokenizer."""

    lower: int
    expected: int
    upper: int


class TokensReport(msgspec.Struct):
    """Of the whole request; `output_reserved` over all its answers. `media` is the most that its videos and audio can
    cost.
    """

    text: BoundsReport
    visual: int
    prompt: BoundsReport
    output_reserved: int
    media: int = 0


class MemoryReport(msgspec.Struct):
    """Bytes, and their share of the pool, of the encoder budget or of this machine's memory limit."""

    bytes: int
    share: float | None

    @property
    def mebibytes(self) -> float:
        return self.bytes / 2**20


class MemoriesReport(msgspec.Struct):
    """`kv` counts all ranks together; `host` is the body and its largest decode. None: bytes a token are not known."""

    kv: MemoryReport | None
    encoder: MemoryReport | None
    host: MemoryReport


class AmountsReport(msgspec.Struct):
    """What the request would hold at the engine."""

    kv_blocks: int
    sequences: int
    encoder_tokens: int
    preprocess_pixels: int


class EstimateReport(msgspec.Struct):
    """What is known of a request that could be read."""

    model: ModelReport
    images: list[ImageReport]
    tokens: TokensReport
    amounts: AmountsReport
    kv_block_tokens: int
    kv_blocks_pool: int | None
    memory: MemoriesReport


class Report(NamedTuple):
    """`estimate` is None for what could not be read."""

    verdict: VerdictReport
    estimate: EstimateReport | None


def verdict_report(
    foresight: Foresight,
    request: VisionRequest | None,
    overload_status: int | None = None,
    pressure: PressureReport | None = None,
) -> VerdictReport:
    """`request` tells which turn an image is of."""
    return VerdictReport(
        verdict=foresight.outlook,
        ahead=foresight.ahead,
        expected_wait_seconds=foresight.expected_wait_seconds,
        longest_wait_seconds=foresight.longest_wait_seconds,
        error=_error_report(foresight, overload_status),
        culprit=_culprit(foresight.shortage) if foresight.shortage else None,
        fits_with=_remedies(foresight.remedies, request) if request and foresight.remedies != Remedies() else None,
        pressure=pressure,
    )


def encode_report(report: Report) -> bytes:
    """JSON, the estimate's fields beside the verdict's."""
    estimate = {} if report.estimate is None else msgspec.structs.asdict(report.estimate)
    return msgspec.json.encode(msgspec.structs.asdict(report.verdict) | estimate)


def decode_report(body: bytes) -> Report:
    """What `encode_report` made. Raises msgspec.DecodeError for anything else."""
    fields = msgspec.json.decode(body, type=dict[str, Any])
    estimate = msgspec.convert(fields, EstimateReport) if "tokens" in fields else None
    return Report(msgspec.convert(fields, VerdictReport), estimate)


def json_schema(ref_template: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The schema of an answer, and the components that it refers to by `ref_template` (`{name}`)."""
    parts, components = msgspec.json.schema_components((VerdictReport, EstimateReport), ref_template=ref_template)
    return {"anyOf": [{"allOf": list(parts)}, parts[0]]}, components


def _error_report(foresight: Foresight, overload_status: int | None) -> ErrorReport | None:
    error = foresight.error
    if error is None:
        return None
    headers = {name.decode(): value.decode() for name, value in retry_headers(error, jitter=0.0)}
    status = error_status(error, overload_status)
    return ErrorReport(status, error.code, error.reason, error.param, error.message, headers)


def _culprit(short: Shortage) -> CulpritReport:
    return CulpritReport(short.what, short.param, short.needed, short.available, short.capacity, short.deficit)


def _remedies(remedies: Remedies, request: VisionRequest) -> RemedyReport:
    leave_out = None
    if remedies.last_param is not None:
        turns = _turns_until(remedies.last_param, request)
        leave_out = LeaveOutReport(remedies.oldest_images, remedies.last_param, turns)
    return RemedyReport(
        resize=[SizeReport(param, str(size)) for param, size in remedies.sizes],
        leave_out=leave_out,
        shorten_text_tokens=remedies.text_tokens or None,
        max_tokens=remedies.max_tokens,
        n=remedies.n,
    )


def _turns_until(param: str, request: VisionRequest) -> int | None:
    """How many turns, each begun by the user, end with the image at `param`."""
    ordinal = next(ref.ordinal for ref in request.images if ref.param == param)
    last = next(index for index, message in enumerate(request.messages) if ordinal in message.images)
    users = [index for index, message in enumerate(request.messages) if message.role == "user"]
    is_in_last_turn = last >= max(users, default=0)
    return None if is_in_last_turn else max(1, sum(index <= last for index in users))
