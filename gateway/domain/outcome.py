"""How a request can end. Closed sets: their values are metric labels and never come from client text."""

from enum import StrEnum

from gateway.domain.quantities import Resource


class Outcome(StrEnum):
    """How the whole request ended."""

    FINISHED = "finished"
    REFUSED = "refused"
    UPSTREAM_REFUSED = "upstream_refused"
    UPSTREAM_BROKE = "upstream_broke"
    CLIENT_LEFT = "client_left"
    GATEWAY_FAULT = "gateway_fault"


class Fate(StrEnum):
    """How a request fares at the gateway, or would: in shadow mode and in replay.

    `left` while it waited; `undecided` where it could not be told, for it goes on unread.
    """

    ADMITTED = "admitted"
    QUEUED = "queued"
    REFUSED = "refused"
    LEFT = "left"
    UNDECIDED = "undecided"


class Ending(StrEnum):
    """How a lease ended: `done` teaches the learners, `ignored` teaches nothing, `dropped` is back-pressure."""

    DONE = "done"
    IGNORED = "ignored"
    DROPPED = "dropped"


class Reason(StrEnum):
    """Why a request was refused: `x-gateway-reason` and the label of `rejections_total`."""

    QUEUE_FULL = "queue_full"
    QUEUE_BYTES = "queue_bytes"
    WOULD_MISS_DEADLINE = "would_miss_deadline"
    DEADLINE_PASSED = "deadline_passed"
    KV_BUDGET = "kv_budget"
    ENCODER_BUDGET = "encoder_budget"
    PREPROCESS_BUDGET = "preprocess_budget"
    HOST_MEMORY = "host_memory"
    TENANT_QUOTA = "tenant_quota"
    TENANT_CONCURRENCY = "tenant_concurrency"
    SHED_PRIORITY = "shed_priority"
    NEVER_FITS_CONTEXT = "never_fits_context"
    NEVER_FITS_KV = "never_fits_kv"
    NEVER_FITS_ENCODER = "never_fits_encoder"
    NEVER_FITS_SEQUENCES = "never_fits_sequences"
    TOO_MANY_IMAGES = "too_many_images"
    MEDIA_NOT_ALLOWED = "media_not_allowed"
    BAD_IMAGE = "bad_image"
    BAD_REQUEST = "bad_request"
    UNAUTHORISED = "unauthorised"
    CLOSED_ROUTE = "closed_route"
    BODY_TOO_LARGE = "body_too_large"
    REQUEST_TIMEOUT = "request_timeout"
    NOT_FOUND = "not_found"
    UPSTREAM_DOWN = "upstream_down"
    UPSTREAM_LOADING = "upstream_loading"
    UPSTREAM_BACKPRESSURE = "upstream_backpressure"
    DRAINING = "draining"


# Sequences are the engine's places: nowhere left to wait.
BUDGET_REASON = {
    Resource.KV_BLOCKS: Reason.KV_BUDGET,
    Resource.SEQUENCES: Reason.QUEUE_FULL,
    Resource.ENCODER_TOKENS: Reason.ENCODER_BUDGET,
    Resource.PREPROCESS_PIXELS: Reason.PREPROCESS_BUDGET,
    Resource.PREFILL_TOKENS: Reason.QUEUE_FULL,
    Resource.IMAGE_PREFILL_TOKENS: Reason.QUEUE_FULL,
}
"""Where nobody may wait, the resource that is short is the reason itself."""
