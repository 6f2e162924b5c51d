import pytest

from gateway.domain.errors import Code, GatewayError
from gateway.wire.generic import parse_generic


def test_all_of_the_body_counts_as_text():
    body = b'{"model": "m", "prompt": "abc", "messages": null}'
    request = parse_generic(body)
    assert (request.model, request.text_bytes, request.wants_output) == ("m", len(body), False)


def test_the_engine_is_not_needed():
    assert not parse_generic(b'{"prompt": "abc"}').needs_engine


def test_messages_may_carry_media_and_are_refused():
    with pytest.raises(GatewayError) as refused:
        parse_generic(b'{"m\\u0065ssages": []}')
    assert (refused.value.code, refused.value.param) == (Code.PERMISSION_DENIED, "messages")
