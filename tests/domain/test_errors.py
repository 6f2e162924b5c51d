import pytest

from gateway.domain.errors import Code, GatewayError
from gateway.domain.outcome import Reason


@pytest.mark.parametrize(
    ("code", "status", "reason"),
    [
        (Code.IMAGE_PARSE_ERROR, 400, Reason.BAD_IMAGE),
        (Code.INVALID_JSON, 400, Reason.BAD_REQUEST),
        (Code.CONTEXT_LENGTH_EXCEEDED, 400, Reason.NEVER_FITS_CONTEXT),
        (Code.REQUEST_TOO_LARGE, 413, Reason.BODY_TOO_LARGE),
        (Code.RATE_LIMIT_EXCEEDED, 429, Reason.QUEUE_FULL),
        (Code.SERVER_IS_OVERLOADED, 503, Reason.DEADLINE_PASSED),
        (Code.UPSTREAM_TIMEOUT, 504, Reason.UPSTREAM_DOWN),
    ],
)
def test_a_code_brings_its_status_and_reason(code, status, reason):
    error = GatewayError(code, "Because.")
    assert (error.status, error.reason, str(error)) == (status, reason, "Because.")
    assert error.is_about_an_image is (reason is Reason.BAD_IMAGE)


def test_the_reason_may_be_told_more_exactly():
    assert GatewayError(Code.REQUEST_EXCEEDS_BUDGET, "").reason is Reason.NEVER_FITS_KV
    exact = GatewayError(Code.REQUEST_EXCEEDS_BUDGET, "", reason=Reason.NEVER_FITS_ENCODER)
    assert exact.reason is Reason.NEVER_FITS_ENCODER
