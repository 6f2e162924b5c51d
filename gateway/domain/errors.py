"""Every refusal that a client can see. An error knows its status, its public sentence, the part it is about and
whether a retry helps; wire/errors.py alone turns it into bytes.
"""

from collections.abc import Collection
from enum import StrEnum

from gateway.domain.outcome import Reason

_MOST_NAMED = 20


class Code(StrEnum):
    """`error.code` of the answer."""

    INVALID_JSON = "invalid_json"
    INVALID_REQUEST = "invalid_request"
    INVALID_CONTENT_PART = "invalid_content_part"
    INVALID_BASE64_IMAGE = "invalid_base64_image"
    UNSUPPORTED_IMAGE_MEDIA_TYPE = "unsupported_image_media_type"
    EMPTY_IMAGE_FILE = "empty_image_file"
    IMAGE_PARSE_ERROR = "image_parse_error"
    IMAGE_TOO_LARGE = "image_too_large"
    INVALID_IMAGE_DIMENSIONS = "invalid_image_dimensions"
    INVALID_IMAGE_URL = "invalid_image_url"
    FAILED_TO_DOWNLOAD_IMAGE = "failed_to_download_image"
    UNKNOWN_IMAGE_UUID = "unknown_image_uuid"
    TOO_MANY_IMAGES = "too_many_images"
    MEDIA_NOT_ALLOWED = "media_not_allowed"
    CONTEXT_LENGTH_EXCEEDED = "context_length_exceeded"
    REQUEST_EXCEEDS_BUDGET = "request_exceeds_budget"
    INVALID_API_KEY = "invalid_api_key"
    PERMISSION_DENIED = "permission_denied"
    MODEL_NOT_FOUND = "model_not_found"
    NOT_FOUND = "not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    REQUEST_TIMEOUT = "request_timeout"
    REQUEST_TOO_LARGE = "request_too_large"
    UNSUPPORTED_CONTENT_ENCODING = "unsupported_content_encoding"
    HEADERS_TOO_LARGE = "headers_too_large"
    RATE_LIMIT_EXCEEDED = "rate_limit_exceeded"
    UPSTREAM_ERROR = "upstream_error"
    UPSTREAM_TIMEOUT = "upstream_timeout"
    SERVER_IS_OVERLOADED = "server_is_overloaded"
    UPSTREAM_UNAVAILABLE = "upstream_unavailable"
    INTERNAL_ERROR = "internal_error"


_STATUS = {
    Code.INVALID_API_KEY: 401,
    Code.PERMISSION_DENIED: 403,
    Code.MODEL_NOT_FOUND: 404,
    Code.NOT_FOUND: 404,
    Code.METHOD_NOT_ALLOWED: 405,
    Code.REQUEST_TIMEOUT: 408,
    Code.REQUEST_TOO_LARGE: 413,
    Code.UNSUPPORTED_CONTENT_ENCODING: 415,
    Code.HEADERS_TOO_LARGE: 431,
    Code.RATE_LIMIT_EXCEEDED: 429,
    Code.INTERNAL_ERROR: 500,
    Code.UPSTREAM_ERROR: 502,
    Code.SERVER_IS_OVERLOADED: 503,
    Code.UPSTREAM_UNAVAILABLE: 503,
    Code.UPSTREAM_TIMEOUT: 504,
}
_IMAGE_CODES = {
    Code.INVALID_BASE64_IMAGE,
    Code.UNSUPPORTED_IMAGE_MEDIA_TYPE,
    Code.EMPTY_IMAGE_FILE,
    Code.IMAGE_PARSE_ERROR,
    Code.IMAGE_TOO_LARGE,
    Code.INVALID_IMAGE_DIMENSIONS,
    Code.INVALID_IMAGE_URL,
    Code.FAILED_TO_DOWNLOAD_IMAGE,
    Code.UNKNOWN_IMAGE_UUID,
}
_REASON = {
    Code.TOO_MANY_IMAGES: Reason.TOO_MANY_IMAGES,
    Code.MEDIA_NOT_ALLOWED: Reason.MEDIA_NOT_ALLOWED,
    Code.CONTEXT_LENGTH_EXCEEDED: Reason.NEVER_FITS_CONTEXT,
    Code.REQUEST_EXCEEDS_BUDGET: Reason.NEVER_FITS_KV,
    Code.INVALID_API_KEY: Reason.UNAUTHORISED,
    Code.PERMISSION_DENIED: Reason.CLOSED_ROUTE,
    Code.MODEL_NOT_FOUND: Reason.NOT_FOUND,
    Code.NOT_FOUND: Reason.NOT_FOUND,
    Code.METHOD_NOT_ALLOWED: Reason.NOT_FOUND,
    Code.REQUEST_TIMEOUT: Reason.REQUEST_TIMEOUT,
    Code.REQUEST_TOO_LARGE: Reason.BODY_TOO_LARGE,
    Code.UPSTREAM_ERROR: Reason.UPSTREAM_DOWN,
    Code.UPSTREAM_TIMEOUT: Reason.UPSTREAM_DOWN,
    Code.UPSTREAM_UNAVAILABLE: Reason.UPSTREAM_DOWN,
    Code.RATE_LIMIT_EXCEEDED: Reason.QUEUE_FULL,
    Code.SERVER_IS_OVERLOADED: Reason.DEADLINE_PASSED,
}


def _reason_of(code: Code) -> Reason:
    return Reason.BAD_IMAGE if code in _IMAGE_CODES else _REASON.get(code, Reason.BAD_REQUEST)


class GatewayError(Exception):
    """A refusal or failure that the client is told of.

    `param` names the part (`messages[2].content[1].image_url.url`). `retry_after_seconds` is set where coming back
    helps; `is_promise` says that a place is expected then (design: at least four of five who come back get in);
    `short` is the label of the resource of which there was too little, for the log.
    """

    def __init__(
        self,
        code: Code,
        message: str,
        *,
        param: str | None = None,
        reason: Reason | None = None,
        retry_after_seconds: float | None = None,
        is_promise: bool = False,
        short: str | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.param = param
        self.reason = reason or _reason_of(code)
        self.retry_after_seconds = retry_after_seconds
        self.is_promise = is_promise
        self.short = short

    @property
    def status(self) -> int:
        """HTTP status; 400 unless the code has one of its own."""
        return _STATUS.get(self.code, 400)

    @property
    def is_about_an_image(self) -> bool:
        return self.code in _IMAGE_CODES


def unknown_model(name: str, listed: Collection[str], param: str | None = None) -> GatewayError:
    """404 for a model that no server has; `listed` are those that there are."""
    names = ", ".join(each[:200] for each in sorted(listed)[:_MOST_NAMED]) or "none"
    more = f" and {len(listed) - _MOST_NAMED} more" if len(listed) > _MOST_NAMED else ""
    return GatewayError(
        Code.MODEL_NOT_FOUND, f"There is no model {name[:200]!r}; there are: {names}{more}.", param=param
    )
