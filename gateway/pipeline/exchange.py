"""One request on its way, and the parts that its story is played with. Values only; the steps are in story.py."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from gateway.domain.bill import Bill
from gateway.domain.cost import EngineLimits, RequestCost
from gateway.domain.fields import RULES, Clamp, FieldRule
from gateway.domain.geometry import Size
from gateway.domain.image import ImageInfo, ImagePlan
from gateway.domain.isolation import Isolation
from gateway.domain.media import NOTHING as NO_MEDIA
from gateway.domain.media import MediaKind, MediaPolicy
from gateway.domain.named_images import Naming
from gateway.domain.output import ReservationRule
from gateway.domain.priority import Priority
from gateway.domain.request import VisionRequest
from gateway.domain.resize import ResizePolicy
from gateway.domain.stored_answers import StoredAnswers, StoringPolicy
from gateway.domain.tenancy import Tenant
from gateway.domain.ticket import Newcomer
from gateway.domain.trim import TrimPolicy, TrimReason
from gateway.imaging.limits import ImageLimits
from gateway.imaging.workers import ImageWorkers
from gateway.ledger.lease import Lease
from gateway.models.served import ModelTable, ServedModel
from gateway.pipeline.backend import Backend
from gateway.pipeline.relief import Relief, Relieved
from gateway.pipeline.would_be import WouldBe
from gateway.telemetry.last_refusals import LastRefusals
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.request_log import RequestLog, TokensUsed
from gateway.telemetry.trace import Trace, Tracing
from gateway.wire.data_url import DataUrl
from gateway.wire.edits import PartSpans, locate_parts
from gateway.wire.encoded_file import EncodedFile
from gateway.wire.hand_on import NOTHING, HandOn
from gateway.wire.response_stream import AnswerId
from gateway.wire.routes import Kind, Route
from gateway.wire.sse import StreamObserver
from gateway.wire.usage import Usage
from gateway.wire.usage_event import UsageEventFilter

if TYPE_CHECKING:
    from gateway.pipeline.background import BackgroundWatch
    from gateway.pipeline.fallback import Fallback


@dataclass(frozen=True, slots=True)
class Policies:
    """What the operator wants, as the deciders of domain/ take it, and the memory that this process may use."""

    images: ImageLimits
    resize: ResizePolicy
    trim: TrimPolicy
    max_images_per_turn: int | None
    transform_seconds: float
    verifies_all: bool
    queue_wait_seconds: float
    whole_answer_seconds: float
    memory_limit_bytes: int
    max_fetched_bytes: int
    overload_status: int | None = None
    output_reservation: ReservationRule = ReservationRule.QUANTILE
    asks_for_usage: bool = True
    counts_tokens: bool = False
    forwards_addresses: bool = False
    fallbacks: Mapping[str, str] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    hand_on: HandOn = NOTHING
    media: Mapping[MediaKind, MediaPolicy] = field(default_factory=lambda: NO_MEDIA)
    storing: StoringPolicy = field(default_factory=StoringPolicy)
    open_routes: frozenset[str] = frozenset()
    fields: Mapping[str, FieldRule] = field(default_factory=lambda: RULES)
    isolation: Isolation = field(kw_only=True)


class Looker(Protocol):
    """Reads headers of images; the image workers do, and an offline command can."""

    async def look(self, file: EncodedFile, limits: ImageLimits, param: str) -> ImageInfo: ...


class RemoteImages(Protocol):
    """Fetches images by their address, or says why not; the bytes of one are counted with `hold`.

    Raises GatewayError with `param`.
    """

    async def fetch(self, address: str, param: str, hold: Callable[[int], None], /) -> EncodedFile: ...


class Rules(Protocol):
    """The parts that decide what a request will cost; an engine and a loop are not among them."""

    @property
    def policies(self) -> Policies: ...

    @property
    def looker(self) -> Looker: ...

    @property
    def remote(self) -> RemoteImages: ...


@dataclass(frozen=True, slots=True)
class Parts:
    """Everything the story needs, handed in once by app.py. `clock` is monotonic, in seconds.

    There is at least one of `backends`, and each has a name of its own. Without `relief` there is no ladder, without
    `tracing` there are no traces.
    """

    policies: Policies
    backends: Sequence[Backend]
    images: ImageWorkers
    remote: RemoteImages
    metrics: Metrics
    log: RequestLog
    clock: Callable[[], float]
    relief: Relief | None = None
    tracing: Tracing | None = None
    refusals: LastRefusals = field(default_factory=LastRefusals)
    stored: StoredAnswers = field(default_factory=StoredAnswers)
    background: "BackgroundWatch | None" = None

    @property
    def looker(self) -> Looker:
        return self.images


_NOWHERE = Route(Kind.UNKNOWN, "")
_ANYONE = Tenant()


def _held_by_nobody(byte_count: int) -> None:
    """Offline there is no budget of bytes."""


@dataclass(slots=True)
class Exchange:
    """One request, filled step by step; the headers, the metrics and the log line are read off it.

    Times are of `Parts.clock`, in seconds; `received` is when the last byte of the body came. `body` is dropped as soon
    as the upstream's response head is there; `hold_beside` counts bytes that are made of it and kept as long.
    `asks_for_usage`: the body that goes upstream asks for the stream's usage, which the client did not.
    `asked_priority` is the header's; `priority` what the request gets for that, or for what its body asks, once read.
    `deadline` is the client's own. `retry_after_seconds` is what the upstream says where it turned the request away.
    `is_kept_alive`: its 200 went out before it was known what would become of it.
    `would_be` is set in shadow mode alone, where plans and lists of what is changed are its own and not the exchange's.
    `counted_tokens` are those of a stream without usage, by its events; `used` is what is accounted once it is over.
    `fetched` are its images by address, by ordinal, once they are here.
    `clamps` are fields that are brought down, `namings` its images with a `uuid` as the server gets them.
    `tail` are the last bytes of an answer in one piece, `head` the first of one that is longer.
    `queued` is when it asked for a place, `capacity` what could be held just then of each resource.
    `models` are those that it is priced among: those of `backend`, which serves it; offline there is no backend.
    `bill` is what its tenant's quota was charged for it, where the tenant has one.
    `came_from` is the server that failed it before, and where it waited for `waited_seconds`; it is `doubted` too as
    long as the request itself may have been the cause. `alias` is the name that the client asked for, where that is
    another for its model; `fallback` serves in place of the model that was asked for. `owner` is whose the answer is if
    it is stored, `answer_id` looks for its id, `answer_name` is that once found; with `is_left_working` its lease is
    the background watch's.
    """

    request_id: str
    method: str
    path: str
    query: bytes
    headers: Sequence[tuple[bytes, bytes]]
    arrived: float
    received: float | None = None
    trace: Trace | None = None
    client_request_id: str | None = None
    resize_preset: str | None = None
    is_return: bool = False
    tenant: Tenant = _ANYONE
    asked_priority: Priority | None = None
    priority: Priority = Priority.DEFAULT
    deadline: float | None = None

    route: Route = _NOWHERE
    body: bytes | bytearray = b""
    body_bytes: int = 0
    hold_beside: Callable[[int], None] = _held_by_nobody
    model: ServedModel | None = None
    request: VisionRequest | None = None
    plans: tuple[ImagePlan, ...] = ()
    trimmed: tuple[int, ...] = ()
    trimmed_tokens: int = 0
    trim_reason: TrimReason | None = None
    relieved: Relieved | None = None
    would_be: WouldBe | None = None
    parts: dict[int, PartSpans] | None = None
    fetched: dict[int, DataUrl] = field(default_factory=dict)
    fetch_seconds: float = 0.0
    clamps: tuple[Clamp, ...] = ()
    namings: tuple[Naming, ...] = ()
    encoded_anew: tuple[int, ...] = ()
    sent_images: tuple[tuple[bytes, Size], ...] = ()
    limits: EngineLimits | None = None
    cost: RequestCost | None = None
    bill: Bill | None = None
    lease: Lease | None = None
    queued: float | None = None
    capacity: tuple[int | None, ...] | None = None
    sent_at: float | None = None
    first_event_at: float | None = None
    transform_seconds: float = 0.0
    asks_for_usage: bool = False
    observer: StreamObserver | None = None
    tokens_per_event: float = 1.0
    usage_filter: UsageEventFilter | None = None
    head: bytes = b""
    tail: bytes = b""
    upstream_status: int | None = None
    retry_after_seconds: float | None = None
    usage: Usage | None = None
    counted_tokens: int | None = None
    used: TokensUsed | None = None
    is_answering: bool = False
    is_kept_alive: bool = False
    is_abandoned: bool = False
    is_settled: bool = False
    ended: float = 0.0
    came_from: Backend | None = None
    alias: str | None = None
    fallback: "Fallback | None" = None
    doubted: Backend | None = None
    waited_seconds: float = 0.0
    owner: str = ""
    answer_id: "AnswerId | None" = None
    answer_name: str | None = None
    is_left_working: bool = False
    backend: Backend = field(init=False, repr=False)
    models: ModelTable = field(init=False, repr=False)

    def goes_to(self, backend: Backend) -> None:
        self.backend = backend
        self.models = backend.models

    def let_go_of_body(self) -> None:
        """And of what was fetched for it: both are sent."""
        self.body = b""
        self.fetched.clear()

    def located_parts(self, request: VisionRequest) -> dict[int, PartSpans]:
        """Where the parts of the images stand: a second pass over the body, made once and only where it is needed."""
        if self.parts is None:
            self.parts = locate_parts(self.body, request)
        return self.parts

    def newcomer(self) -> Newcomer:
        """What the line is asked with whether there is any use in going on."""
        tenant, request = self.tenant, self.request
        has_images = None if request is None else bool(request.images)
        return Newcomer(
            self.body_bytes, self.is_return, self.priority, tenant.name, tenant.weight, *self.due_by(), has_images
        )

    def due_by(self) -> tuple[float, float]:
        """When its first token and its end are due, by the level of service or the client's own deadline."""
        level = self.tenant.levels[self.priority]
        first_token_by = self.arrived + level.first_token_seconds
        if self.deadline is not None:
            first_token_by = min(first_token_by, self.deadline)
        return first_token_by, self.arrived + level.total_seconds

    @property
    def is_priced_as_sent(self) -> bool:
        """In shadow mode images go on as they are, whatever was planned and priced."""
        return self.would_be is None or self.would_be.is_priced_as_sent

    @property
    def model_name(self) -> str:
        """A label: a name that the gateway knows, never the client's text."""
        return self.model.name if self.model else "other"

    @property
    def queue_seconds(self) -> float:
        """Whoever is refused or leaves while waiting has waited until then."""
        if self.lease is not None:
            return self.waited_seconds + self.lease.queue_seconds
        return self.waited_seconds + (0.0 if self.queued is None else max(0.0, self.ended - self.queued))
