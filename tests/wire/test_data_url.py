import base64
import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.errors import Code, GatewayError
from gateway.domain.request import Span
from gateway.wire.chat import parse_chat
from gateway.wire.data_url import read_data_url

FILE = b"\0\x10\x83\x10\x51\x87\x20\x92"
PAYLOAD = "ABCDEFGHIJI="


def body_with(json_url):
    return b'{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":' + json_url + b"}}]}]}"


def read(json_url, make_body=bytes):
    body = make_body(body_with(json_url))
    (ref,) = parse_chat(body).images
    return body, ref, read_data_url(body, ref)


@pytest.mark.parametrize("make_body", [bytes, bytearray], ids=["bytes", "bytearray"])
def test_a_strict_url_is_read_in_place(make_body):
    body, ref, data_url = read(f'"data:image/png;base64,{PAYLOAD}"'.encode(), make_body)

    assert data_url.media_type == "image/png"
    assert body[slice(*data_url.header)] == b"data:image/png;base64,"
    assert body[slice(*data_url.payload)] == PAYLOAD.encode()
    assert data_url.header.start == ref.url.start + 1
    assert data_url.payload == Span(data_url.header.end, ref.url.end - 1)
    assert not data_url.needs_respelling
    assert isinstance(data_url.file.payload, memoryview)
    assert data_url.file.payload.obj is body
    assert data_url.file.decode() == FILE


@pytest.mark.parametrize(
    ("url", "media_type"),
    [
        ("data:image/jpg;base64,", "image/jpg"),
        ("data:;base64,", ""),
        ("data:image/png;charset=utf-8;base64,", "image/png"),
        ("data:text/plain;a=b;c=d;base64,", "text/plain"),
    ],
)
def test_spellings_that_vllm_reads_stay(url, media_type):
    _, _, data_url = read(json.dumps(url + PAYLOAD).encode())
    assert (data_url.media_type, data_url.needs_respelling) == (media_type, False)
    assert data_url.header is not None


@pytest.mark.parametrize("header", ["DATA:image/png;base64,", "data:IMAGE/PNG;BASE64,", "data:imäge/png;Base64,"])
def test_headers_that_vllm_refuses_are_repaired_alone(header):
    body, _, data_url = read(json.dumps(header + PAYLOAD, ensure_ascii=False).encode())
    assert data_url.needs_respelling
    assert body[slice(*data_url.header)] == header.encode()
    assert data_url.file.decode() == FILE


@pytest.mark.parametrize(
    "url",
    [
        "data:image/png;base64,ABCD\nEFGH\r\nIJI=",
        "data:image/png;base64,ABCD EFGHIJI=",
        f"data:image/png;base64, {PAYLOAD}",
        f"  data:image/png;base64,{PAYLOAD} \t",
        f"data: image/png ; base64 ,{PAYLOAD}",
        "data:image/png;base64,ABCDEFGHIJI",
        f"data:image/png;\tBASE64,{PAYLOAD}",
    ],
    ids=["lines", "blank inside", "blank first", "outer blanks", "blanks in header", "no padding", "tab and capitals"],
)
def test_payloads_that_vllm_refuses_are_written_anew(url):
    _, _, data_url = read(json.dumps(url).encode())
    assert (data_url.header, data_url.payload, data_url.needs_respelling) == (None, None, True)
    assert data_url.media_type == "image/png"
    assert data_url.file.decode() == FILE
    assert data_url.file.padded() == PAYLOAD.encode()


@pytest.mark.parametrize("spelling", ["data:image\\/png;base64,", "d\\u0061ta:image/png;base64,"])
def test_escapes_are_json_and_need_no_respelling(spelling):
    _, _, data_url = read(f'"{spelling}{PAYLOAD}"'.encode())
    assert (data_url.header, data_url.payload, data_url.needs_respelling) == (None, None, False)
    assert data_url.file.decode() == FILE


@pytest.mark.parametrize("blank", ["", " "], ids=["in place", "as text"])
@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("data:image/png;base64", Code.INVALID_IMAGE_URL),
        ("data:", Code.INVALID_IMAGE_URL),
        ("data:image/svg+xml,<svg/>", Code.INVALID_IMAGE_URL),
        ("data:base64,AAAA", Code.INVALID_IMAGE_URL),
        ("data:image/png;base64;x=1,AAAA", Code.INVALID_IMAGE_URL),
        ("data:image/png;base64,", Code.INVALID_BASE64_IMAGE),
    ],
)
def test_what_holds_no_base64_is_refused(url, code, blank):
    with pytest.raises(GatewayError) as refused:
        read(json.dumps(url + blank).encode())
    assert (refused.value.code, refused.value.param) == (code, "messages[0].content[0].image_url.url")


def header_of(size, blanks=""):
    return blanks + f"data:image/png;{'a' * (size - len(blanks) - len('data:image/png;;base64,'))};base64,"


@pytest.mark.parametrize("spelled", ["{}", "{} ", "\\n{}"], ids=["in place", "as text", "blank before"])
@pytest.mark.parametrize("slash", ["/", "\\/"])
def test_a_header_has_at_most_1024_bytes(spelled, slash):
    room = 1024 - spelled.count("\\n")
    longest, too_long = (f'"{spelled.format(header_of(size))}{PAYLOAD}"'.replace("/", slash) for size in (room, 1025))
    _, _, data_url = read(longest.encode())
    assert (data_url.media_type, data_url.file.decode()) == ("image/png", FILE)
    with pytest.raises(GatewayError, match="The first 1024 bytes of the data URL have no comma") as refused:
        read(too_long.encode())
    assert refused.value.code is Code.INVALID_IMAGE_URL


def test_a_url_of_blanks_alone_is_none():
    with pytest.raises(GatewayError, match="An image must be a data URL"):
        read(b'"' + b" " * 5000 + f'data:image/png;base64,{PAYLOAD}"'.encode())


@pytest.mark.parametrize("cut", range(65_530, 65_540))
def test_other_escapes_are_found_wherever_windows_are_cut(cut):
    header = "data:image\\/png;base64,"
    payload = "A" * (cut - len(header)) + "\\n" + "A" * 40_000
    _, _, data_url = read(f'"{header}{payload}"'.encode())
    assert bytes(data_url.file.payload) == payload.replace("\\n", "").encode()
    assert data_url.needs_respelling


def test_a_url_that_is_no_text_is_refused_as_json():
    with pytest.raises(GatewayError) as refused:
        read(b'"data:image/png;base64, \xff"')
    assert refused.value.code is Code.INVALID_JSON


@given(
    st.binary(min_size=1, max_size=60), st.sampled_from(["\\/", "/", "\\u002f"]), st.sampled_from(["", " ", "\\n", "="])
)
def test_however_slashes_are_spelled_the_file_is_the_same(file, slash, tail):
    url = f"data:image/png;base64,{base64.b64encode(file).decode()}".replace("/", slash) + tail
    _, _, data_url = read(f'"{url}"'.encode())
    if tail != "=":
        assert data_url.file.decode() == file


@pytest.mark.parametrize("size", [65_530, 200_000])
def test_escaped_slashes_are_found_wherever_pieces_are_cut(size):
    for shift in range(8):
        payload = "A" * shift + "/" * (4 * (size // 4) - shift)
        _, _, data_url = read(f'"data:image/png;base64,{payload}"'.replace("/", "\\/").encode(), bytearray)
        assert bytes(data_url.file.payload) == payload.encode()
        assert not data_url.needs_respelling


@pytest.mark.parametrize("escape", ["\\\\/", "\\n", "\\\\n", '\\"', "\\u0041"])
def test_a_backslash_that_is_not_before_a_slash_is_never_dropped(escape):
    url = f"data:image\\/png;base64,{PAYLOAD[:4]}{escape}{PAYLOAD[4:]}"
    _, _, data_url = read(f'"{url}"'.encode())
    decoded = json.loads(f'"{url}"').partition(",")[2]
    assert bytes(data_url.file.payload) == decoded.replace("\n", "").encode()


@pytest.mark.parametrize(
    ("url", "copied_bytes"),
    [
        (f"data:image/png;base64,{PAYLOAD}", 0),
        (f"data:image\\/png;base64,{PAYLOAD}", len("data:image/png;base64,") + len(PAYLOAD)),
        (f"data:image/png;base64, {PAYLOAD}", len(PAYLOAD)),
    ],
    ids=["view", "escaped slashes", "blank"],
)
def test_copies_are_told(url, copied_bytes):
    assert read(f'"{url}"'.encode())[2].copied_bytes == copied_bytes


def test_escaped_slashes_cost_one_copy():
    body = body_with(b'"data:image\\/png;base64,' + b"AB\\/D" * 500_000 + b'"')
    (ref,) = parse_chat(body).images
    tracemalloc.start()
    try:
        data_url = read_data_url(body, ref)
        held_bytes, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held_bytes < data_url.copied_bytes + 10_000
    assert peak_bytes < 2 * data_url.copied_bytes + 200_000


@pytest.mark.parametrize("payload", [PAYLOAD[:-1], PAYLOAD], ids=["no padding", "padded"])
@pytest.mark.parametrize("header", ["DATA:image\\/png;base64,", "data:image\\/png;base64,"])
def test_escaped_slashes_beside_other_spellings(payload, header):
    _, _, data_url = read(f'"{header}{payload}"'.encode())
    assert data_url.needs_respelling is (payload != PAYLOAD or header.startswith("DATA"))
    assert data_url.file.decode() == FILE
