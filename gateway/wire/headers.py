"""Every header that has a meaning here, declared once: who sends it, what it holds, what it does. Data only.

The places that read and write them spell the names themselves; a test compares. What passes between client and vLLM
beside them is upstream/headers.py's.
"""

from dataclasses import dataclass
from enum import StrEnum


class Carrier(StrEnum):
    """The message that has the header."""

    REQUEST = "request"
    SUCCESS = "success"
    REFUSAL = "refusal"
    SHADOW = "shadow"
    TO_VLLM = "to_vllm"


@dataclass(frozen=True, slots=True)
class Header:
    """`name` in lower case, `example` a value as it may be sent, `help` what it tells or asks for."""

    carrier: Carrier
    name: str
    example: str
    help: str


_OF_QUOTAS = (
    ("x-ratelimit", "requests", "60", "requests for the model servers", "1s"),
    ("x-ratelimit", "tokens", "100000", "prompt tokens, images included", "840ms"),
    ("x-gateway", "images", "200", "images", "1m30s"),
    ("x-gateway", "pixels", "200000000", "pixels of images, as they came", "6s"),
)
_QUOTA_HELP = {
    "limit": "What the tenant may have in a minute of {what}. Only where it has such a quota; also with refusals.",
    "remaining": "What it may have of them just now.",
    "reset": "Until it may have all of them again, if nothing else comes, as OpenAI has it: `250ms`, `8.64s`, `6m0s`.",
}
QUOTA_HEADERS = tuple(
    Header(Carrier.SUCCESS, f"{start}-{kind}-{what}", reset if kind == "reset" else most, text.format(what=told))
    for start, what, most, told, reset in _OF_QUOTAS
    for kind, text in _QUOTA_HELP.items()
)

HEADERS = (
    Header(
        Carrier.REQUEST,
        "x-gateway-resize",
        "ocr",
        "Images of this request are brought under a preset: `thumbnail`, `ocr` or `detail`; never above what the "
        "settings allow. `off`: they go as they are, at full cost. Another word: 400.",
    ),
    Header(
        Carrier.REQUEST,
        "x-gateway-priority",
        "interactive",
        "`critical`, `interactive`, `default` or `batch`; never beyond the tenant's `most_urgent`. Stands above "
        "`priority` in the body. Another word: 400.",
    ),
    Header(
        Carrier.REQUEST,
        "x-gateway-deadline-ms",
        "2000",
        "Milliseconds from arrival after which the request has no use: it does not wait longer for a place, and is "
        "refused at once where its first token is expected later. What is no positive number: 400.",
    ),
    Header(
        Carrier.REQUEST,
        "x-gateway-tokens",
        "estimate",
        "Of `/tokenize` and `/v1/messages/count_tokens`: `estimate` asks for the gateway's own count, `upstream` for "
        "vLLM's. Stands above `tokens.answer`. Another word: 400.",
    ),
    Header(
        Carrier.REQUEST,
        "x-request-id",
        "order-4711",
        "Up to 128 letters, digits and `._:/+=@-`: comes back with the answer and stands in the log. vLLM gets an id "
        "of the gateway's own.",
    ),
    Header(
        Carrier.REQUEST,
        "authorization",
        "Bearer sk-team-a",
        "The client's key, which says whose the request is. Where keys are configured, a request without a known one "
        "is refused with 401. It never goes on to vLLM, unless `upstream.forward_client_key` says so.",
    ),
    Header(Carrier.REQUEST, "x-api-key", "sk-team-a", "The same, where there is no `authorization`."),
    Header(
        Carrier.REQUEST,
        "x-stainless-retry-count",
        "1",
        "Written by OpenAI's SDK: above 0 the request came back after a refusal, and takes the place that it was "
        "promised.",
    ),
    Header(
        Carrier.REQUEST, "content-type", "application/json", "JSON; anything else is refused before the body is read."
    ),
    Header(
        Carrier.REQUEST,
        "content-encoding",
        "gzip",
        "`gzip`, `deflate`, `br` or `zstd`, one of them: undone here, for vLLM takes none.",
    ),
    Header(
        Carrier.REQUEST,
        "content-length",
        "1048576",
        "Too large is refused before the body is read. Without it the body comes in chunks and room is found as it "
        "comes.",
    ),
    Header(
        Carrier.REQUEST,
        "expect",
        "100-continue",
        "The client is told to send its body once there is room for it, or gets the refusal without having sent it.",
    ),
    Header(
        Carrier.SUCCESS, "x-request-id", "order-4711", "The client's own id, or the gateway's; that of the log line."
    ),
    Header(
        Carrier.SUCCESS,
        "x-gateway-prompt-tokens",
        "1412",
        "The predicted prompt: text, images, and the most that videos and audio can cost. vLLM's `usage` has the real "
        "number.",
    ),
    Header(
        Carrier.SUCCESS,
        "x-gateway-visual-tokens",
        "1371",
        "How much of it are images, the markers around them included.",
    ),
    Header(
        Carrier.SUCCESS,
        "x-gateway-visual-bounds",
        "lower=1; upper=7371; why=unknown_family",
        "What the images cost at least and at most, where no one number is known. `unknown_family`: nothing says of "
        "which family the model is; `doubted_family`: the server itself counts otherwise than the family that was "
        "named; `more_than_size`: with this one the text, or other images, decide too. "
        "`x-gateway-visual-tokens` is the upper; nothing is refused for good for more than the lower. Absent where the "
        "number is exact.",
    ),
    Header(
        Carrier.SUCCESS,
        "x-gateway-media-tokens",
        "16387",
        "How much of it was kept for videos and audio: the most that they can cost, of which they may have taken less. "
        "Absent where there are none.",
    ),
    Header(
        Carrier.SUCCESS,
        "x-gateway-queue-ms",
        "812",
        "How long the request waited for a place at vLLM, in milliseconds.",
    ),
    Header(
        Carrier.SUCCESS,
        "x-gateway-images",
        "0;trimmed, 2;normalised;4000x3000, 3;resized;4000x3000;1148x868;scale=3.484321x3.456221",
        "One entry for each image that was changed, counted from 0: left out, encoded anew, or made smaller (from, "
        "to). A coordinate in the smaller picture times `scale` (x for x, y for y) is that in the picture that was "
        "sent. Beyond 1 KiB it ends with `;more=N`. Absent where no image was changed. Also with a count of tokens.",
    ),
    Header(
        Carrier.SUCCESS,
        "x-gateway-pressure",
        "shrink, max_tokens;512",
        "The rungs of the ladder that changed this request. Also with the refusal of a request that they had changed.",
    ),
    Header(
        Carrier.SUCCESS,
        "x-gateway-model",
        "small",
        "The model that serves, where that is not the name that was asked for: of an alias the model that it is "
        "another name for, or its fallback. In the answer `model` is what vLLM says.",
    ),
    Header(
        Carrier.SUCCESS,
        "x-gateway-tokens",
        "estimate; lower=57; upper=612",
        "With a count of tokens by the gateway: `exact`, or `estimate` and what it may lie between.",
    ),
    *QUOTA_HEADERS,
    Header(
        Carrier.REFUSAL,
        "x-gateway-reason",
        "queue_full",
        "Why; the label `reason` of `gateway_rejections_total`. One of the [reasons](errors.md#reasons).",
    ),
    Header(
        Carrier.REFUSAL,
        "retry-after",
        "3",
        "Whole seconds after which to come back, 60 at most.",
    ),
    Header(
        Carrier.REFUSAL,
        "retry-after-ms",
        "2650",
        "The same in milliseconds, which OpenAI's SDKs prefer. Only where a place is promised.",
    ),
    Header(
        Carrier.REFUSAL,
        "x-should-retry",
        "false",
        "To send the same again is of no use: it can never be served (400), or no place is expected within a minute. "
        "OpenAI's SDKs obey.",
    ),
    Header(Carrier.REFUSAL, "x-request-id", "order-4711", "As with a success."),
    Header(Carrier.REFUSAL, "www-authenticate", "Bearer", "With 401: how to send a key."),
    Header(Carrier.REFUSAL, "allow", "POST", "With 405: the methods of the route."),
    Header(
        Carrier.REFUSAL,
        "connection",
        "close",
        "The connection ends with this answer: the body was not read to its end, or the gateway is shutting down.",
    ),
    Header(
        Carrier.SHADOW,
        "x-gateway-shadow",
        "refused;reason=queue_full;status=429",
        "What would have become of the request: `admitted`, `queued;wait-ms=N`, `refused;reason=...;status=...`, or "
        "`undecided` where it went on unread.",
    ),
    Header(
        Carrier.SHADOW,
        "x-gateway-shadow-images",
        "0;resized;4000x3000;1148x868;scale=3.484321x3.456221",
        "What would have been done to its images, as `x-gateway-images` says it.",
    ),
    Header(
        Carrier.SHADOW,
        "x-gateway-shadow-pressure",
        "max_tokens;512",
        "What the rungs of the ladder would have changed, as `x-gateway-pressure` says it.",
    ),
    Header(
        Carrier.TO_VLLM,
        "x-request-id",
        "gw-5b0c2f7a9d1e4c3600000042",
        "An id that no other request has: two alike upset vLLM. Stands in the gateway's log as `request_id`.",
    ),
    Header(
        Carrier.TO_VLLM,
        "authorization",
        "Bearer the-servers-key",
        "`upstream.api_key` where it is set; never what the client sent, unless `upstream.forward_client_key` says so.",
    ),
    Header(Carrier.TO_VLLM, "accept-encoding", "identity", "Answers must come readable: usage is looked for in them."),
)

HELD_BACK = (
    "host",
    "content-length",
    "expect",
    "x-data-parallel-rank",
    "x-amzn-sagemaker-adapter-alias",
    "x-amzn-sagemaker-adapter-identifier",
    "x-amzn-sagemaker-session-id",
    "x-vllm-priority",
    "x-gateway-resize",
    "connection",
    "te",
    "upgrade",
)
"""Some of what a client may send and vLLM never gets: headers of one connection (RFC 9110 §7.6.1) and those that
`Connection` names, all that begin with `x-gateway-`, and what would let a client steer vLLM past the gateway.
"""
