import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.errors import Code, GatewayError
from gateway.wire.encoded_file import EncodedFile


@given(st.binary(max_size=60), st.integers(0, 70), st.booleans(), st.booleans())
def test_size_prefix_and_whole_agree_with_the_decoded_file(file, byte_count, is_padded, is_view):
    payload = base64.b64encode(file)
    payload = payload if is_padded else payload.rstrip(b"=")

    encoded = EncodedFile(memoryview(payload) if is_view else payload)

    assert encoded.file_bytes == len(file)
    assert encoded.prefix(byte_count) == file[:byte_count]
    assert encoded.decode() == file
    assert encoded.padded() == base64.b64encode(file)


@pytest.mark.parametrize(
    "payload",
    [b"!!!!AAAA", b"AA-_", b"AA%2B", b"A", b"AAAAA", b"AA==AAAA", b"AA AA", b"AAAA====", b"\xc3\xa4AA"],
    ids=["junk", "url-safe", "percent", "one", "five", "padding inside", "blank", "padding twice", "not ASCII"],
)
def test_other_characters_are_never_skipped(payload):
    for read in (lambda file: file.decode(), lambda file: file.prefix(12)):
        with pytest.raises(GatewayError) as refused:
            read(EncodedFile(payload, "messages[0]"))
        assert (refused.value.code, refused.value.param) == (Code.INVALID_BASE64_IMAGE, "messages[0]")


def test_a_prefix_looks_no_further():
    assert EncodedFile(b"AAAA" + b"!" * 100).prefix(3) == b"\0\0\0"
