"""An error of each code as a client gets it. Data only: tests bring each about at a running gateway and compare."""

from gateway.domain.errors import Code, GatewayError
from gateway.domain.outcome import Reason
from gateway.wire.closed_routes import closed_sentence, why_closed

_IMAGE = "messages[0].content[1].image_url.url"

NEVER_SAID: frozenset[Code] = frozenset()
"""Codes that nothing in the gateway says yet."""

EXAMPLES = {
    error.code: error
    for error in (
        GatewayError(
            Code.INVALID_JSON,
            "The body is not JSON that can be read: Input data was truncated. "
            "Send UTF-8 without a byte order mark, without NaN or Infinity and without lone surrogates.",
        ),
        GatewayError(Code.INVALID_REQUEST, "`messages` is empty. Send at least one message.", param="messages"),
        GatewayError(
            Code.INVALID_CONTENT_PART,
            "`messages[0].content[1]`: Files are not yet supported. Send text, and pages as images.",
            param="messages[0].content[1]",
        ),
        GatewayError(
            Code.INVALID_BASE64_IMAGE,
            "The image's base64 is damaged, cut off, or holds characters outside the standard alphabet "
            "(A-Z a-z 0-9 + / =). URL-safe and percent-encoded base64 are not accepted.",
            param=_IMAGE,
        ),
        GatewayError(
            Code.UNSUPPORTED_IMAGE_MEDIA_TYPE,
            "The data is not an image: it looks like a PDF document; send its pages as images. "
            "Accepted formats: jpeg, png, webp; the bytes decide.",
            param=_IMAGE,
        ),
        GatewayError(Code.EMPTY_IMAGE_FILE, "The image is empty: its data URL carries no bytes.", param=_IMAGE),
        GatewayError(
            Code.IMAGE_PARSE_ERROR,
            "The png header is damaged: the checksum of its IHDR chunk is wrong. Encode the image anew.",
            param=_IMAGE,
        ),
        GatewayError(
            Code.IMAGE_TOO_LARGE,
            "The image is 30000x30000 = 900000000 pixels; at most 50000000 are allowed for png. Scale it down.",
            param=_IMAGE,
        ),
        GatewayError(
            Code.INVALID_IMAGE_DIMENSIONS,
            "The image is 2010x10: its sides differ 201 times; at most 200 times is allowed. Crop or split it.",
            param=_IMAGE,
        ),
        GatewayError(
            Code.INVALID_IMAGE_URL,
            f"`{_IMAGE}`: An image must be a data URL (data:image/png;base64,...) or an http(s) address; no other "
            "scheme is read.",
            param=_IMAGE,
        ),
        GatewayError(
            Code.FAILED_TO_DOWNLOAD_IMAGE,
            f"`{_IMAGE}`: The image could not be downloaded: its host answered with status 404. "
            "Send the image as a data URL (data:image/png;base64,...), or an address that can be fetched.",
            param=_IMAGE,
        ),
        GatewayError(
            Code.UNKNOWN_IMAGE_UUID,
            "`messages[0].content[1].image_url`: The image is given by its `uuid` alone, and it is not known what the "
            "model server has under this name. Send the image again, beside its `uuid`.",
            param="messages[0].content[1].image_url",
        ),
        GatewayError(
            Code.TOO_MANY_IMAGES,
            "The last turn has 2 images and the limit is 1 (images.max_per_turn). Send fewer at once.",
            param="messages",
        ),
        GatewayError(
            Code.MEDIA_NOT_ALLOWED,
            "`messages[0].content[1]`: Video is not let in here (videos.per_request is 0). Send single frames as "
            "images.",
            param="messages[0].content[1]",
        ),
        GatewayError(
            Code.CONTEXT_LENGTH_EXCEEDED,
            "This model's maximum context length is 4096 tokens. Your request needs at least 5405 tokens (5404 of them "
            "for 2 image(s)), room for an answer included. Leave out at least the 1 oldest of its 2 image(s) (up to "
            f"{_IMAGE}), or send none larger than 1456x1092 pixels.",
            param="messages",
        ),
        GatewayError(
            Code.REQUEST_EXCEEDS_BUDGET,
            "The request asks for 8 answers, and at most 4 are generated at the same time (budget.sequences). Ask for "
            "fewer at once.",
            param="n",
            reason=Reason.NEVER_FITS_SEQUENCES,
        ),
        GatewayError(
            Code.PERMISSION_DENIED,
            closed_sentence("/v1/responses/render", why_closed("/v1/responses/render") or ""),
        ),
        GatewayError(Code.INVALID_API_KEY, "The API key is not known here. Ask the operator of this gateway for one."),
        GatewayError(Code.MODEL_NOT_FOUND, "There is no model 'gpt-4o'; there are: tiny."),
        GatewayError(Code.NOT_FOUND, "There is no route `/chat/completions` here."),
        GatewayError(Code.METHOD_NOT_ALLOWED, "`/v1/chat/completions` answers POST only."),
        GatewayError(Code.REQUEST_TIMEOUT, "No complete request headers came within 30 s. Send them again."),
        GatewayError(
            Code.REQUEST_TOO_LARGE,
            "The request body has at least 40000000 bytes; the limit is 33554432. Send smaller or fewer images: "
            "pictures of earlier turns can be left out, and the model sees nothing beyond its own resolution.",
        ),
        GatewayError(
            Code.UNSUPPORTED_CONTENT_ENCODING,
            "Content-Encoding 'compress' is not supported; use gzip, deflate, br, zstd or none, and no two of them.",
            param="content-encoding",
        ),
        GatewayError(
            Code.HEADERS_TOO_LARGE,
            "The request's headers have more than 65536 bytes. Send fewer or shorter ones.",
        ),
        GatewayError(
            Code.RATE_LIMIT_EXCEEDED,
            "The queue is full: 1 requests wait. Short at the engine: sequences. No place is expected within a minute.",
            retry_after_seconds=60.0,
        ),
        GatewayError(
            Code.UPSTREAM_ERROR,
            "The model server gave no whole answer: the connection broke (ServerDisconnectedError).",
        ),
        GatewayError(
            Code.UPSTREAM_TIMEOUT,
            "The model server was silent for too long: nothing came within the limit for silence",
        ),
        GatewayError(
            Code.SERVER_IS_OVERLOADED,
            "The request waited for its turn in vain, with 0 others still waiting. Short at the engine: sequences. No "
            "place is expected within a minute.",
            retry_after_seconds=60.0,
        ),
        GatewayError(
            Code.UPSTREAM_UNAVAILABLE,
            "The model server is still loading or not there yet: no connection could be made",
            reason=Reason.UPSTREAM_LOADING,
            retry_after_seconds=15.0,
        ),
        GatewayError(
            Code.INTERNAL_ERROR,
            "The gateway met a fault of its own and did not send the request on. Report request id "
            "gw-5b0c2f7a9d1e4c3600000042.",
            reason=Reason.BAD_REQUEST,
        ),
    )
}
