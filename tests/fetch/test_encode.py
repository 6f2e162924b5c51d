import base64

from hypothesis import given
from hypothesis import strategies as st

from gateway.fetch.encode import Base64Writer, encoded_bytes


@given(st.lists(st.binary(max_size=70), max_size=12))
def test_pieces_give_what_the_whole_would(pieces):
    writer = Base64Writer()
    for piece in pieces:
        writer.write(piece)
    file = b"".join(pieces)
    written = writer.close()
    assert (bytes(written), writer.file_bytes) == (base64.b64encode(file), len(file))
    assert written.readonly


@given(st.integers(0, 100_000))
def test_what_is_counted_with_is_enough(file_bytes):
    assert encoded_bytes(file_bytes) >= len(base64.b64encode(bytes(file_bytes)))
