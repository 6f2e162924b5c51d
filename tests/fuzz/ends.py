"""Known ends of an input that is refused."""

from gateway.domain.errors import Code, GatewayError


def known(error: GatewayError) -> str:
    """Its code; every refusal of these rooms is the client's to mend (403: by another route)."""
    assert error.status in {400, 403}, error
    assert isinstance(error.code, Code)
    assert error.message
    return error.code.value
