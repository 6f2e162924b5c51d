"""What every error code and every reason of a refusal means, and who mends it. Data only.

docs/reference/errors.md is made of this.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from gateway.domain.errors import Code
from gateway.domain.outcome import Reason


class Mender(StrEnum):
    """Who can do something about it."""

    CLIENT = "the client"
    OPERATOR = "the operator of the gateway"
    SERVER = "the operator of vLLM"
    TIME = "time"


class Explanation(NamedTuple):
    """`remedy` is what the first of `menders` does, and the others."""

    meaning: str
    menders: tuple[Mender, ...]
    remedy: str


CODES: Mapping[Code, Explanation] = {
    Code.INVALID_JSON: Explanation(
        "The body is not JSON that vLLM and the gateway read alike.",
        (Mender.CLIENT,),
        "Send UTF-8 without a byte order mark, `NaN`, `Infinity` or lone surrogates; let a JSON library write it.",
    ),
    Code.INVALID_REQUEST: Explanation(
        "A header or field is missing, has the wrong type, or would change the cost after it was counted.",
        (Mender.CLIENT,),
        "Correct the field that `param` names.",
    ),
    Code.INVALID_CONTENT_PART: Explanation(
        "A part of a message is of a kind that is not supported, or not formed as it should be.",
        (Mender.CLIENT,),
        "Send `text` and `image_url` parts, and videos and audio by plain addresses; `param` names the part.",
    ),
    Code.INVALID_BASE64_IMAGE: Explanation(
        "The data URL of an image does not hold base64 that strict readers accept.",
        (Mender.CLIENT,),
        "Encode the whole file anew with the standard alphabet, not the one for URLs.",
    ),
    Code.UNSUPPORTED_IMAGE_MEDIA_TYPE: Explanation(
        "The bytes are no image, or one of a format that is not let in; what the client calls it does not count.",
        (Mender.CLIENT, Mender.OPERATOR),
        "Convert it to PNG, JPEG or WebP; or let the format in with `images.formats`.",
    ),
    Code.EMPTY_IMAGE_FILE: Explanation(
        "The data URL of an image holds no bytes.",
        (Mender.CLIENT,),
        "Look at how the file was read: it was empty.",
    ),
    Code.IMAGE_PARSE_ERROR: Explanation(
        "The image is damaged, or decoding it takes more time than is allowed. vLLM would answer many of these with "
        "200 and show the model a black or partial picture.",
        (Mender.CLIENT, Mender.OPERATOR),
        "Send the file whole, or encode it anew; for slow ones raise `images.decode_seconds`.",
    ),
    Code.IMAGE_TOO_LARGE: Explanation(
        "An image has too many bytes, pixels or tokens, or decoding it would take too much memory.",
        (Mender.CLIENT, Mender.OPERATOR),
        "Scale it down to what the message allows; or raise the setting that it names.",
    ),
    Code.INVALID_IMAGE_DIMENSIONS: Explanation(
        "A side is empty, or one is so much longer than the other that the model takes no such shape.",
        (Mender.CLIENT,),
        "Crop the image or cut it in pieces.",
    ),
    Code.INVALID_IMAGE_URL: Explanation(
        "The image is given neither by a base64 data URL nor by an http(s) address that may be asked.",
        (Mender.CLIENT, Mender.OPERATOR),
        "Send it as a data URL; or open its host with `images.remote`.",
    ),
    Code.FAILED_TO_DOWNLOAD_IMAGE: Explanation(
        "The host of an image given by address did not deliver it whole and in time.",
        (Mender.CLIENT,),
        "Open the address yourself, without a login; or send the image as a data URL.",
    ),
    Code.UNKNOWN_IMAGE_UUID: Explanation(
        "An image is given by its `uuid` alone, and it is not known what the model server has under that name: this "
        "tenant did not send it there, or too long ago, or it would have to go in another size now.",
        (Mender.CLIENT,),
        "Send the request again with the image itself beside its `uuid`; the next may leave it out again.",
    ),
    Code.TOO_MANY_IMAGES: Explanation(
        "More images than are allowed stay once older ones are left out, or their share of a limit of tokens is too "
        "small for one of them.",
        (Mender.CLIENT, Mender.OPERATOR),
        "Send fewer in one turn; or raise `images.max_per_turn`, `images.max_forwarded` or vLLM's "
        "`--limit-mm-per-prompt`.",
    ),
    Code.MEDIA_NOT_ALLOWED: Explanation(
        "A video or audio part is not let in: too many, one that vLLM would have to fetch from a host that is not "
        "allowed, or one of which nobody says what it costs at most. Without settings none is.",
        (Mender.CLIENT, Mender.OPERATOR),
        "Send single frames as images, or a transcript; or let it in with `videos` or `audios` in the settings.",
    ),
    Code.CONTEXT_LENGTH_EXCEEDED: Explanation(
        "Prompt and images are longer than the model's context, however idle the server is.",
        (Mender.CLIENT, Mender.SERVER),
        "Do what the message says would make it fit; or serve the model with a larger `--max-model-len`.",
    ),
    Code.REQUEST_EXCEEDS_BUDGET: Explanation(
        "The request needs more of one resource than the whole server has.",
        (Mender.CLIENT, Mender.SERVER),
        "Send less at once, as the message says; or give vLLM more of the resource that `x-gateway-reason` names.",
    ),
    Code.INVALID_API_KEY: Explanation(
        "Keys are configured here, and the request has none, one that is not known, or one that has expired.",
        (Mender.CLIENT, Mender.OPERATOR),
        "Send the key that you were given; or make one with `vlm-gateway key create`. A 401 with another body is "
        "vLLM's: give its key with `upstream.api_key`.",
    ),
    Code.PERMISSION_DENIED: Explanation(
        "The route is closed: it is for operators, or what it takes cannot be counted yet.",
        (Mender.CLIENT, Mender.OPERATOR),
        "Use the route that the message names; or open this one by `routes.open`, whose dangers docs/closed-routes.md "
        "tells.",
    ),
    Code.MODEL_NOT_FOUND: Explanation(
        "No server lists a model of that name, or `tenants[].models` keeps it from this tenant.",
        (Mender.CLIENT, Mender.OPERATOR),
        "Ask for one of those that the message and `GET /v1/models` list.",
    ),
    Code.NOT_FOUND: Explanation(
        "There is no such route.",
        (Mender.CLIENT,),
        "Check the path: SDKs want a `base_url` that ends with `/v1`.",
    ),
    Code.METHOD_NOT_ALLOWED: Explanation(
        "The route answers other methods; `Allow` names them.",
        (Mender.CLIENT,),
        "Use one of those.",
    ),
    Code.REQUEST_TIMEOUT: Explanation(
        "The headers or the body came too slowly.",
        (Mender.CLIENT, Mender.OPERATOR),
        "Send it again over a faster connection; or lower `server.body_min_bytes_per_second`.",
    ),
    Code.REQUEST_TOO_LARGE: Explanation(
        "The body is larger than what one request may hold of the gateway's memory.",
        (Mender.CLIENT, Mender.OPERATOR),
        "Send smaller or fewer images, or leave out those of earlier turns; or raise `server.max_body_bytes`.",
    ),
    Code.UNSUPPORTED_CONTENT_ENCODING: Explanation(
        "The body is compressed in a way that cannot be undone here.",
        (Mender.CLIENT,),
        "Use `gzip`, `deflate`, `br` or `zstd`, one of them, or none.",
    ),
    Code.HEADERS_TOO_LARGE: Explanation(
        "The headers of the request have more than 64 KiB.",
        (Mender.CLIENT,),
        "Send fewer or shorter ones.",
    ),
    Code.RATE_LIMIT_EXCEEDED: Explanation(
        "There is no place for the request now. Nothing is wrong with it.",
        (Mender.TIME, Mender.OPERATOR),
        "Come back when `Retry-After` says; `x-should-retry: false` says that no place is in sight. If it lasts, see "
        "the tuning guide.",
    ),
    Code.UPSTREAM_ERROR: Explanation(
        "vLLM broke off, or what it answered cannot be read.",
        (Mender.SERVER,),
        "Look at vLLM's log at the time of the request's `x-request-id` in the gateway's log; sending again may help.",
    ),
    Code.UPSTREAM_TIMEOUT: Explanation(
        "vLLM was silent for longer than the gateway waits.",
        (Mender.SERVER, Mender.OPERATOR),
        "See whether vLLM still makes progress; or raise the `upstream.*_timeout_seconds` that passed.",
    ),
    Code.SERVER_IS_OVERLOADED: Explanation(
        "The request waited in vain, or the gateway is shutting down.",
        (Mender.TIME, Mender.OPERATOR),
        "Come back when `Retry-After` says. If it lasts, see the tuning guide.",
    ),
    Code.UPSTREAM_UNAVAILABLE: Explanation(
        "vLLM cannot be reached, or still loads its weights.",
        (Mender.SERVER, Mender.TIME),
        "Start vLLM, or wait until it is up; `/readyz` says which server is meant.",
    ),
    Code.INTERNAL_ERROR: Explanation(
        "A fault of the gateway itself.",
        (Mender.OPERATOR,),
        "Report it with the request id of the message; the gateway's log has the traceback.",
    ),
}


class ReasonGuide(NamedTuple):
    """`meaning` completes "the request was refused because". The first of `menders` is the likeliest."""

    meaning: str
    menders: tuple[Mender, ...]


REASONS: Mapping[Reason, ReasonGuide] = {
    Reason.QUEUE_FULL: ReasonGuide(
        "no place was free and none to wait in: `queue.requests`, or all of `server.seats` are taken",
        (Mender.TIME, Mender.OPERATOR),
    ),
    Reason.QUEUE_BYTES: ReasonGuide(
        "the bodies of those that wait fill what they may of `budget.body_bytes`: half, shared by the servers",
        (Mender.TIME, Mender.OPERATOR),
    ),
    Reason.WOULD_MISS_DEADLINE: ReasonGuide(
        "it would come later than `slo`, or than its own `x-gateway-deadline-ms`, allows",
        (Mender.TIME, Mender.OPERATOR),
    ),
    Reason.DEADLINE_PASSED: ReasonGuide(
        "it waited for `queue.wait_seconds`, or to its own deadline, and no place came free; also where its images "
        "could not be decoded within `images.transform_seconds`",
        (Mender.TIME, Mender.OPERATOR),
    ),
    Reason.KV_BUDGET: ReasonGuide(
        "vLLM's KV pool is short, and nobody may wait (`queue.requests: 0`) or `pressure.refuse` turns all away",
        (Mender.TIME, Mender.OPERATOR),
    ),
    Reason.ENCODER_BUDGET: ReasonGuide("vLLM's encoder budget is short, likewise", (Mender.TIME, Mender.OPERATOR)),
    Reason.PREPROCESS_BUDGET: ReasonGuide(
        "as many images are on their way as vLLM preprocesses within `budget.preprocess_backlog_seconds`, likewise",
        (Mender.TIME, Mender.OPERATOR),
    ),
    Reason.HOST_MEMORY: ReasonGuide(
        "the gateway's own memory for bodies or for decoding images is taken", (Mender.TIME, Mender.OPERATOR)
    ),
    Reason.TENANT_QUOTA: ReasonGuide(
        "the tenant has had what `tenants[].quota` allows it in a minute; with 400 the request alone is more than that",
        (Mender.TIME, Mender.CLIENT, Mender.OPERATOR),
    ),
    Reason.TENANT_CONCURRENCY: ReasonGuide(
        "as many of the tenant's requests are inside as `tenants[].quota.concurrent_requests` allows",
        (Mender.TIME, Mender.OPERATOR),
    ),
    Reason.SHED_PRIORITY: ReasonGuide(
        "a more urgent request took its place in a full queue, or `pressure.shed` turns its priority away",
        (Mender.TIME, Mender.OPERATOR),
    ),
    Reason.NEVER_FITS_CONTEXT: ReasonGuide(
        "prompt and images are longer than the model's context", (Mender.CLIENT, Mender.SERVER)
    ),
    Reason.NEVER_FITS_KV: ReasonGuide(
        "it needs more KV blocks than the whole pool has", (Mender.CLIENT, Mender.SERVER)
    ),
    Reason.NEVER_FITS_ENCODER: ReasonGuide(
        "one of its images is larger than all of vLLM's encoder budget", (Mender.CLIENT, Mender.SERVER)
    ),
    Reason.NEVER_FITS_SEQUENCES: ReasonGuide(
        "it asks for more answers than `budget.sequences` lets be generated at once", (Mender.CLIENT, Mender.OPERATOR)
    ),
    Reason.TOO_MANY_IMAGES: ReasonGuide("one turn has more images than are allowed", (Mender.CLIENT, Mender.OPERATOR)),
    Reason.MEDIA_NOT_ALLOWED: ReasonGuide(
        "a video or audio part is not let in, see `videos` and `audios` in the settings",
        (Mender.CLIENT, Mender.OPERATOR),
    ),
    Reason.BAD_IMAGE: ReasonGuide(
        "an image cannot be used; the code says what is wrong with it", (Mender.CLIENT, Mender.OPERATOR)
    ),
    Reason.BAD_REQUEST: ReasonGuide(
        "something else is wrong with the request; the code says what. Also the reason of `internal_error`",
        (Mender.CLIENT,),
    ),
    Reason.UNAUTHORISED: ReasonGuide("keys are configured, and it has no valid one", (Mender.CLIENT,)),
    Reason.CLOSED_ROUTE: ReasonGuide("the route is closed here", (Mender.CLIENT,)),
    Reason.BODY_TOO_LARGE: ReasonGuide(
        "the body is larger than `server.max_body_bytes` allows", (Mender.CLIENT, Mender.OPERATOR)
    ),
    Reason.REQUEST_TIMEOUT: ReasonGuide("its headers or its body came too slowly", (Mender.CLIENT, Mender.OPERATOR)),
    Reason.NOT_FOUND: ReasonGuide("there is no such route, method or model", (Mender.CLIENT,)),
    Reason.UPSTREAM_DOWN: ReasonGuide("vLLM cannot be reached, broke off or was silent for too long", (Mender.SERVER,)),
    Reason.UPSTREAM_LOADING: ReasonGuide(
        "vLLM has not been up since the gateway started: it loads its weights", (Mender.TIME, Mender.SERVER)
    ),
    Reason.UPSTREAM_BACKPRESSURE: ReasonGuide(
        "vLLM itself turned requests away (429 or 503) and nobody may wait meanwhile", (Mender.TIME, Mender.SERVER)
    ),
    Reason.DRAINING: ReasonGuide("the gateway is shutting down; another one will take it", (Mender.TIME,)),
}
