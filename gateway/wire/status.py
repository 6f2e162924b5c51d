"""What the status page shows, as one JSON object. For that page alone: programs read /metrics.

What is not known is null. Nothing of a picture, a prompt or a key has a field here.
"""

from datetime import datetime

import msgspec


class ResourceStatus(msgspec.Struct):
    """`capacity` None: not known, not enforced."""

    resource: str
    held: int
    capacity: int | None


class CalibrationStatus(msgspec.Struct):
    """What came of asking the server what a few small pictures cost, as metrics name it and in a sentence."""

    state: str
    text: str


class ModelStatus(msgspec.Struct):
    """A served name, and how its family was found. `calibration` None: it is switched off."""

    name: str
    family: str
    family_source: str
    max_model_len: int | None
    calibration: CalibrationStatus | None = None


class QueueStatus(msgspec.Struct):
    """Requests that wait, of how many that may, and their tokens; `drain_per_second` None while it is not known."""

    waiting: int
    places: int
    cost_tokens: int
    drain_per_second: float | None


class EngineStatus(msgspec.Struct):
    """What the model server's own metrics said, `age_seconds` ago."""

    running: int | None
    waiting: int | None
    kv_usage: float | None
    preemptions: int | None
    age_seconds: float | None


class UpstreamStatus(msgspec.Struct):
    """One model server. `state` is `up`, `passed_over` (it answers, but requests go elsewhere), `loading` or `down`;
    `trouble` is what was last amiss. `pressure` is by lane, `rungs` those of the ladder in force for any.
    """

    name: str
    state: str
    trouble: str | None
    version: str | None
    models: list[ModelStatus]
    resources: list[ResourceStatus]
    overcommit_blocks: int
    queue: QueueStatus
    in_flight: int
    ceiling_ratio: float
    pause_seconds: float
    engine: EngineStatus | None
    pressure: dict[str, float]
    rungs: list[str]


class RefusalStatus(msgspec.Struct, frozen=True):
    """One refusal, of whose log line this is a part. `is_told`: in shadow mode, it would have been refused."""

    time: datetime
    request_id: str
    endpoint: str
    reason: str
    status: int | None
    message: str | None
    short: str | None
    model: str | None
    tenant: str | None
    priority: str | None
    upstream: str | None
    images: int
    queue_ms: float | None
    is_told: bool = False


class DriftStatus(msgspec.Struct):
    """Predicted divided by reported prompt tokens, of so many answers since the start: the mean, and how many ratios
    were up to each of `bounds` and above the one before it; the last count is of those above all.
    """

    answers: int
    mean_ratio: float | None
    bounds: list[float]
    counts: list[int]


class Status(msgspec.Struct):
    """Counts are since the start. `refused` is by reason; in shadow mode it is what would have been refused."""

    time: datetime
    version: str
    mode: str
    is_draining: bool
    shared: list[ResourceStatus]
    upstreams: list[UpstreamStatus]
    requests: dict[str, int]
    refused: dict[str, int]
    last_refusals: list[RefusalStatus]
    images: dict[str, int]
    tokens_saved: dict[str, int]
    drift: DriftStatus
