"""What the headers alone say."""

import pytest

from gateway.domain.errors import Code, GatewayError
from gateway.server.door import (
    Arrival,
    new_request_id,
    read_headers,
    refuse_coding,
    refuse_length,
    refuse_media_type,
)


def test_all_that_is_read():
    arrival = read_headers(
        [
            (b"host", b"x"),
            (b"content-length", b"12"),
            (b"content-type", b" application/json"),
            (b"content-encoding", b" GZip "),
            (b"x-request-id", b"a/1"),
            (b"x-gateway-resize", b" OCR"),
            (b"x-stainless-retry-count", b"2"),
            (b"expect", b"100-Continue"),
        ]
    )
    assert arrival == Arrival(
        content_length=12,
        content_encoding=b"gzip",
        content_type=b"application/json",
        client_request_id="a/1",
        resize_preset="ocr",
        expects_continue=True,
        is_return=True,
    )
    assert arrival.is_coded
    assert not read_headers([(b"content-encoding", b"identity")]).is_coded


@pytest.mark.parametrize(
    ("header", "value", "field"),
    [
        (b"content-length", b"1x", "content_length"),
        (b"content-length", b"9" * 20, "content_length"),
        (b"x-request-id", b'"; drop', "client_request_id"),
        (b"x-request-id", b"x" * 129, "client_request_id"),
    ],
)
def test_what_cannot_be_read_counts_as_not_sent(header, value, field):
    assert getattr(read_headers([(header, value)]), field) is None


@pytest.mark.parametrize("value", [b"", b"0"])
def test_a_first_try_is_no_return(value):
    assert not read_headers([(b"x-stainless-retry-count", value)]).is_return


@pytest.mark.parametrize(
    "media_type", [b"application/json", b"Application/JSON; charset=utf-8", b"application/vnd.api+json"]
)
def test_json_in_every_spelling(media_type):
    refuse_media_type(Arrival(content_type=media_type))


@pytest.mark.parametrize("media_type", [b"", b"text/json", b"application/jsonl", b"multipart/form-data; boundary=json"])
def test_anything_else_is_named(media_type):
    with pytest.raises(GatewayError, match="application/json") as raised:
        refuse_media_type(Arrival(content_type=media_type))
    assert (raised.value.status, raised.value.param) == (400, "content-type")


def test_length():
    refuse_length(Arrival(content_length=10), 10)
    refuse_length(Arrival(content_length=None), 10)
    with pytest.raises(GatewayError) as raised:
        refuse_length(Arrival(content_length=11), 10)
    assert raised.value.code is Code.REQUEST_TOO_LARGE


@pytest.mark.parametrize("coding", [b"", b"identity", b"gzip", b"deflate"])
def test_codings_that_can_be_undone(coding):
    refuse_coding(Arrival(content_encoding=coding))


def test_a_coding_that_cannot():
    with pytest.raises(GatewayError, match="zstd") as raised:
        refuse_coding(Arrival(content_encoding=b"zstd"))
    assert raised.value.status == 415


def test_ids_are_never_given_twice():
    assert len({new_request_id() for _ in range(1000)}) == 1000
