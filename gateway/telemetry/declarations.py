"""Every metric of the gateway, declared once: name, help, labels with all their values, buckets. Data only.

Labels are closed sets, so that no client's text can make a series; models are those configured or discovered, a
hundred at most, and `other`; tenant classes the operator's names for those who have keys, and `default`; upstreams his
names of the model servers. RECORDED metrics are counted here as things happen, OBSERVED ones are asked of their owners
at scrape time.
"""

from gateway.domain.calibration import CalibrationState
from gateway.domain.cost import Uncertainty
from gateway.domain.errors import Code, GatewayError
from gateway.domain.image import ImageAction, ImageFormat
from gateway.domain.media import MediaKind
from gateway.domain.outcome import Fate, Outcome, Reason
from gateway.domain.pressure import Rung
from gateway.domain.priority import Priority
from gateway.domain.quantities import Resource
from gateway.telemetry.declaring import Declaration, Label
from gateway.telemetry.gpu_declarations import OF_GPUS
from gateway.telemetry.ledger_declarations import of_ledger
from gateway.telemetry.tenant_declarations import OF_TENANTS, TENANT_CLASS
from gateway.wire.routes import RARELY_ASKED

OTHER = "other"
ONLY_UPSTREAM = "default"
"""The name of the one upstream where only its address is given."""
OF_ALL = ""
"""The label `upstream` of what all share; Prometheus takes an empty label for none."""
UNKNOWN = "unknown"


# A hundred models have half a thousand series for each that is there from the start: too many for what few use.
ENDPOINTS_LATER = RARELY_ASKED
ENDPOINTS = (
    *("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/models", "/tokenize", "/detokenize"),
    *("/v1/messages/count_tokens", "/gateway/preflight", OTHER, *ENDPOINTS_LATER),
)
RESOURCES = (*(resource.label for resource in Resource), "seats", "body_bytes", "decode_bytes")
IMAGE_CODES = tuple(code.value for code in Code if GatewayError(code, "").is_about_an_image)

MODEL = Label("model", None, "A model that the settings name or the servers list; beyond a hundred `other`.")
_ENDPOINT = Label("endpoint", ENDPOINTS, "The route that was asked.", frozenset(ENDPOINTS_LATER))
_OUTCOME = Label(
    "outcome",
    tuple(Outcome),
    "How it ended: `finished`; `refused` by the gateway or `upstream_refused` by vLLM; `upstream_broke`: no whole "
    "answer; `client_left` before the end; `gateway_fault`.",
)
_REASON = Label("reason", tuple(Reason), "Why it was refused, as in the header `x-gateway-reason`.")
_DECISION = Label(
    "decision",
    (Fate.ADMITTED, Fate.QUEUED, Fate.UNDECIDED, *Reason),
    "What would have become of it: `admitted`, `queued`, the reason of a refusal, or `undecided` where it went on "
    "unread.",
)
_PRIORITY = Label(
    "priority", tuple(priority.label for priority in Priority), "How urgent it was, after its tenant's bound."
)
UPSTREAM = Label("upstream", None, "The server's name in the settings; `default` where there is but one address.")
_CODE = Label("code", IMAGE_CODES, "The error code that the client got.")
_FORMAT = Label("format", (*ImageFormat, UNKNOWN), "As the bytes say; `unknown`: left out before it was looked at.")
_ACTION = Label(
    "action",
    tuple(ImageAction),
    "`kept`: its bytes went on as they came; `normalised`: encoded anew at its size; `resized`: made smaller; "
    "`trimmed`: left out.",
)
_RESOURCE = Label(
    "resource",
    RESOURCES,
    "At each server: `kv_blocks`, `sequences` (answers generated at once), `encoder_tokens`, `preprocess_pixels` of "
    "images that it still decodes, `prefill_tokens` on their way to the first token, and `image_prefill_tokens` of "
    "those whose images it still decodes. The gateway's own: `seats` (requests inside), `body_bytes`, `decode_bytes`.",
)
_MEDIA_KIND = Label("kind", tuple(MediaKind), "What it is.")
_RUNG = Label("rung", tuple(Rung), "A rung of the ladder, as in the settings of `pressure`.")
_WHY = Label(
    "why",
    tuple(Uncertainty),
    "`unknown_family`: nothing says of which family the model is; `doubted_family`: the server counts otherwise than "
    "the family that was named; `more_than_size`: the text, or other images, decide too.",
)
LANES = ("text", "image")
_LANE = Label("lane", LANES, "Requests without images, and those with them.")

TOKEN_KINDS = ("text", "visual", "media", "output", "cached")
TOKEN_SOURCES = ("reported", "estimated")

_WAIT_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0)
_WORK_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_RETRY_SECONDS = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0)
_PIXELS = (1e5, 2.5e5, 5e5, 1e6, 2e6, 4e6, 8e6, 1.2e7, 2.4e7, 5e7, 1e8)
_TOKENS = (64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0)
_RATIOS = (0.5, 0.8, 0.9, 0.95, 0.99, 0.999, 1.0, 1.001, 1.01, 1.05, 1.1, 1.25, 1.5, 2.0)

REQUESTS = Declaration("requests_total", "counter", "Requests by how they ended.", (MODEL, _ENDPOINT, _OUTCOME))
REJECTIONS = Declaration(
    "rejections_total",
    "counter",
    "Requests that the gateway refused, by reason (the x-gateway-reason header).",
    (MODEL, _REASON, _PRIORITY, TENANT_CLASS),
)
IMAGE_ERRORS = Declaration("image_errors_total", "counter", "Images refused, by error code.", (_CODE,))
IMAGES = Declaration("images_total", "counter", "Images by format and by what was done to them.", (_FORMAT, _ACTION))
TOKENS_SAVED = Declaration(
    "tokens_saved_total", "counter", "Prompt tokens that resizing and trimming kept from the engine.", (_ACTION,)
)
MEDIA = Declaration(
    "media_total",
    "counter",
    "Videos and audio parts that were sent on, each with the most that it can cost kept for it.",
    (_MEDIA_KIND,),
)
RELIEVED = Declaration(
    "pressure_requests_total", "counter", "Requests that a rung of the ladder changed or refused.", (_RUNG,)
)
QUEUE_WAIT = Declaration(
    "queue_wait_seconds", "histogram", "Time from arrival in the queue to admission.", buckets=_WAIT_SECONDS
)
RETRY_AFTER = Declaration(
    "retry_after_seconds", "histogram", "Times to come back that refusals named.", buckets=_RETRY_SECONDS
)
IMAGE_PIXELS = Declaration("image_pixels", "histogram", "Pixels of images as they came.", buckets=_PIXELS)
VISUAL_TOKENS = Declaration(
    "visual_tokens", "histogram", "Prompt tokens of one image as it was sent on.", buckets=_TOKENS
)
TRANSFORM = Declaration(
    "transform_seconds", "histogram", "Time to check, resize and encode the images of a request.", buckets=_WORK_SECONDS
)
ESTIMATE_ERROR = Declaration(
    "estimate_error_ratio",
    "histogram",
    "Predicted prompt tokens divided by those that the engine reported; exact ones lie in the bucket of 1.",
    buckets=_RATIOS,
)
PREDICTED_TOKENS = Declaration(
    "prompt_tokens_predicted_total",
    "counter",
    "Prompt tokens that the gateway predicted, of the requests whose tokens the engine reported.",
    (MODEL,),
)
REPORTED_TOKENS = Declaration(
    "prompt_tokens_reported_total", "counter", "Prompt tokens that the engine reported for them.", (MODEL,)
)
PREDICTED_IMAGE_TOKENS = Declaration(
    "image_tokens_predicted_total",
    "counter",
    "Of these, tokens of images, where the engine tells them apart from the text (`--enable-prompt-tokens-details`).",
    (MODEL,),
)
REPORTED_IMAGE_TOKENS = Declaration(
    "image_tokens_reported_total",
    "counter",
    "Tokens of images that the engine reported for them, and those that the chat template writes around each.",
    (MODEL,),
)
OVERHEAD = Declaration(
    "overhead_seconds", "histogram", "Time the gateway itself added, without queueing.", buckets=_WORK_SECONDS
)
FIRST_TOKEN = Declaration(
    "time_to_first_token_seconds", "histogram", "Time from arrival to the first event.", buckets=_WAIT_SECONDS
)

TOKENS = Declaration(
    "tokens_total",
    "counter",
    "Tokens that requests took of the engine; `cached` ones are part of the prompt. Of very "
    "many models and tenant classes, the later ones have series from their first request on.",
    (
        MODEL,
        TENANT_CLASS,
        Label(
            "kind",
            TOKEN_KINDS,
            "Of the prompt `text`, `visual` (images) and `media` (videos and audio); `output`: all answers; `cached`: "
            "of the prompt, as far as the engine tells (`--enable-prompt-tokens-details`).",
        ),
        Label(
            "source",
            TOKEN_SOURCES,
            "`reported` by the engine as its usage, or `estimated` where none came, as when the client left.",
        ),
    ),
)

BOUNDED = Declaration(
    "bounded_requests_total",
    "counter",
    "Requests sent on whose images have no exact price: a place was kept for the most that they may cost.",
    (_WHY,),
)

SENT_ELSEWHERE = Declaration(
    "sent_elsewhere_total",
    "counter",
    "Requests that another upstream got because this one failed before a byte of its answer came.",
    (UPSTREAM,),
)

SHADOW_DECISIONS = Declaration(
    "shadow_decisions_total",
    "counter",
    "In shadow mode, requests by what would have become of them: admitted, queued, or the reason of a refusal.",
    (MODEL, _DECISION, _PRIORITY, TENANT_CLASS),
)
SHADOW_IMAGES = Declaration(
    "shadow_images_total", "counter", "In shadow mode, images by what would have been done to them.", (_ACTION,)
)

RECORDED = (
    REQUESTS,
    REJECTIONS,
    IMAGE_ERRORS,
    IMAGES,
    TOKENS_SAVED,
    BOUNDED,
    MEDIA,
    RELIEVED,
    SENT_ELSEWHERE,
    PREDICTED_TOKENS,
    REPORTED_TOKENS,
    PREDICTED_IMAGE_TOKENS,
    REPORTED_IMAGE_TOKENS,
    TOKENS,
    QUEUE_WAIT,
    RETRY_AFTER,
    IMAGE_PIXELS,
    VISUAL_TOKENS,
    TRANSFORM,
    ESTIMATE_ERROR,
    OVERHEAD,
    FIRST_TOKEN,
)

OBSERVED = (
    *OF_TENANTS,
    Declaration("queue_depth", "gauge", "Requests that wait.", (UPSTREAM,)),
    Declaration(
        "queue_cost_tokens", "gauge", "Prompt and reserved output tokens of the requests that wait.", (UPSTREAM,)
    ),
    Declaration(
        "capacity",
        "gauge",
        "What may be held of each resource; NaN where unknown, not enforced. Without upstream: the gateway's own.",
        (_RESOURCE, UPSTREAM),
    ),
    Declaration(
        "held",
        "gauge",
        "What is held of each resource. Without upstream: the gateway's own.",
        (_RESOURCE, UPSTREAM),
    ),
    Declaration(
        "overcommit_blocks",
        "gauge",
        "KV blocks needed above capacity, by answers that grew or under a ceiling that fell.",
        (UPSTREAM,),
    ),
    Declaration(
        "overlap_blocks",
        "gauge",
        "Of the KV blocks held, those that are not needed at once: answers that end apart share them.",
        (UPSTREAM,),
    ),
    Declaration(
        "upstream_up", "gauge", "1 if the upstream's HTTP server answers; not proof that its engine works.", (UPSTREAM,)
    ),
    Declaration(
        "upstream_healthy",
        "gauge",
        "0 while requests go to others where there are some: it is down, failing, or owes answers and does no work.",
        (UPSTREAM,),
    ),
    Declaration(
        "upstream_kv_usage_ratio",
        "gauge",
        "KV usage from 0 to 1 as the engine last reported; NaN if never.",
        (UPSTREAM,),
    ),
    Declaration("upstream_preemptions_total", "counter", "Preemptions that the engine reported.", (UPSTREAM,)),
    Declaration(
        "ceiling_ratio",
        "gauge",
        "Share of the budget that is let in: less after preemptions, beside others and after the upstream's start.",
        (UPSTREAM,),
    ),
    Declaration(
        "upstream_foreign_requests",
        "gauge",
        "Requests at the engine that others sent, as far as they stand.",
        (UPSTREAM,),
    ),
    Declaration(
        "upstream_foreign_kv_blocks", "gauge", "KV blocks in use beyond those held here, likewise.", (UPSTREAM,)
    ),
    Declaration(
        "admission_pause_seconds",
        "gauge",
        "Nothing is sent for so long: the upstream turned requests away.",
        (UPSTREAM,),
    ),
    *of_ledger(UPSTREAM),
    Declaration(
        "pressure_ratio",
        "gauge",
        "What is held and waited for, as a multiple of all there is: of the resource that is short of most.",
        (_LANE, UPSTREAM),
    ),
    Declaration(
        "pressure_unmet_ratio",
        "gauge",
        "How much more it would be, had those waited that were refused in the last seconds.",
        (_LANE, UPSTREAM),
    ),
    Declaration(
        "pressure_rung_in_force", "gauge", "1 while the rung of the ladder is in force.", (_RUNG, _LANE, UPSTREAM)
    ),
    Declaration("upstream_requests_in_flight", "gauge", "Requests sent on whose answers have not ended.", (UPSTREAM,)),
    Declaration(
        "upstream_retries_total", "counter", "Requests sent again because an idle connection was closed.", (UPSTREAM,)
    ),
    Declaration(
        "models_of_unknown_family",
        "gauge",
        "Served models of which nothing says what their images cost; these are priced by bounds.",
        (UPSTREAM,),
    ),
    Declaration(
        "calibration_state",
        "gauge",
        "1 for what came of asking an idle server what a few small pictures cost with this model, 0 for all else.",
        (
            MODEL,
            UPSTREAM,
            Label(
                "state",
                tuple(CalibrationState),
                "The family that prices the model's images `agrees` with the server or `disagrees`; it was not known "
                "and was `found`, is one of `several`, or stays `unknown`; `waiting` for an idle moment; `unanswered`: "
                "the server gave no counts.",
            ),
        ),
    ),
    Declaration(
        "calibration_disagreeing_pictures",
        "gauge",
        "Pictures that cost another number of tokens at the server than by the family that prices the model's images.",
        (MODEL, UPSTREAM),
    ),
    Declaration(
        "models_without_series", "gauge", "Served model names beyond the first hundred; they count as `other`."
    ),
    Declaration("streams_kept_alive_total", "counter", "Streams that were begun while they waited for their turn."),
    Declaration(
        "image_fetches_total",
        "counter",
        "Images given by address, by what became of fetching them.",
        (
            Label(
                "result",
                ("fetched", "not_modified", "cached", "shared", "refused", "failed"),
                "`fetched` whole; `not_modified` by the host's word; `cached`: not asked for; `shared` with a request "
                "that fetched it already; `refused` for its address; `failed` at the host or for want of memory.",
            ),
        ),
    ),
    Declaration(
        "image_workers_lost_total",
        "counter",
        "Processes that decode images and died at one, or were ended because it took too long.",
        (Label("cause", ("died", "late"), "`died` while it decoded, or `late`: ended by `images.decode_seconds`."),),
    ),
    *OF_GPUS,
    Declaration(
        "draining",
        "gauge",
        "1 once it was told to drain or to end, until that is called off; its process may go on.",
    ),
    Declaration(
        "event_loop_tasks",
        "gauge",
        "Tasks of the event loop: some for each request inside and a few dozen for ever; what grows at rest is a leak.",
    ),
    Declaration("shadow_mode", "gauge", "1 where decisions are only told: nothing is queued, refused or changed."),
    Declaration("log_lines_dropped_total", "counter", "Request log lines lost to a slow or broken output."),
)

BUILD_INFO = Declaration(
    "build_info",
    "gauge",
    "Always 1; what is running.",
    (
        Label("version", None, "Of the gateway."),
        Label("encoder_id", None, "What encodes images anew, with the versions that decide its bytes."),
        Label("python", None, "Of the interpreter."),
    ),
)
