"""What the headers alone say."""

import pytest

from gateway.domain.errors import Code, GatewayError
from gateway.domain.priority import Priority
from gateway.server.door import (
    Arrival,
    new_request_id,
    read_headers,
    refuse_coding,
    refuse_length,
    refuse_media_type,
    refuse_unreadable,
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
            (b"authorization", b"bearer  sk-1 "),
            (b"x-gateway-priority", b" Batch"),
            (b"x-gateway-deadline-ms", b" 1500.5"),
            (b"x-gateway-tokens", b" Estimate"),
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
        bearer_token=b"sk-1",
        priority_word=b" Batch",
        deadline_text=b" 1500.5",
        counting_word=b" Estimate",
    )
    assert arrival.priority is Priority.BATCH
    assert arrival.deadline_seconds == 1.5005
    assert arrival.counts_here
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
    ("headers", "key"),
    [
        ([], b""),
        ([(b"x-api-key", b" sk-2 ")], b"sk-2"),
        ([(b"x-api-key", b"sk-2"), (b"authorization", b"Bearer sk-1")], b"sk-1"),
        ([(b"x-api-key", b"sk-2"), (b"authorization", b"Basic dTpw")], b"sk-2"),
        ([(b"authorization", b"Bearer ")], b""),
        ([(b"authorization", b"sk-1")], b""),
    ],
)
def test_the_key_comes_as_openai_or_as_anthropic_have_it(headers, key):
    arrival = read_headers(headers)
    assert arrival.key == key
    assert "sk-" not in repr(arrival)


@pytest.mark.parametrize("word", [b"critical", b"Interactive", b" default ", b"BATCH"])
def test_four_priorities_in_every_spelling(word):
    arrival = read_headers([(b"x-gateway-priority", word)])
    refuse_unreadable(arrival)
    assert arrival.priority is Priority[word.strip().decode().upper()]


@pytest.mark.parametrize("word", [b"", b"urgent", b"1", b"\xff"])
def test_any_other_priority_is_told_the_four(word):
    arrival = read_headers([(b"x-gateway-priority", word)])
    with pytest.raises(GatewayError, match="one of critical, interactive, default, batch") as raised:
        refuse_unreadable(arrival)
    assert (raised.value.status, raised.value.param) == (400, "x-gateway-priority")
    assert arrival.priority is None


@pytest.mark.parametrize(("word", "is_so"), [(b"estimate", True), (b" Upstream ", False)])
def test_who_is_to_count(word, is_so):
    arrival = read_headers([(b"x-gateway-tokens", word)])
    refuse_unreadable(arrival)
    assert arrival.counts_here is is_so


def test_any_other_word_for_it_is_told_the_two():
    arrival = read_headers([(b"x-gateway-tokens", b"exact")])
    with pytest.raises(GatewayError, match="send estimate or upstream"):
        refuse_unreadable(arrival)
    assert arrival.counts_here is None


@pytest.mark.parametrize(("text", "seconds"), [(b"1", 0.001), (b" 2500 ", 2.5), (b"0.5", 0.0005), (b"9" * 15, 1e12)])
def test_deadlines_are_milliseconds(text, seconds):
    arrival = read_headers([(b"x-gateway-deadline-ms", text)])
    refuse_unreadable(arrival)
    assert arrival.deadline_seconds == pytest.approx(seconds)


@pytest.mark.parametrize("text", [b"", b"0", b"0.0", b"-1", b"1e3", b"soon", b"inf", b"1" * 400, "\u0661".encode()])
def test_what_is_no_time_is_refused(text):
    arrival = read_headers([(b"x-gateway-deadline-ms", text)])
    with pytest.raises(GatewayError, match="a positive number of milliseconds") as raised:
        refuse_unreadable(arrival)
    assert (raised.value.status, raised.value.param) == (400, "x-gateway-deadline-ms")


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


@pytest.mark.parametrize("coding", [b"", b"identity", b"gzip", b"deflate", b"br", b"zstd"])
def test_codings_that_can_be_undone(coding):
    refuse_coding(Arrival(content_encoding=coding))


def test_a_coding_that_cannot():
    with pytest.raises(GatewayError, match="gzip, br") as raised:
        refuse_coding(Arrival(content_encoding=b"gzip, br"))
    assert raised.value.status == 415


def test_ids_are_never_given_twice():
    assert len({new_request_id() for _ in range(1000)}) == 1000
