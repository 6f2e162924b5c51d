import contextlib
import gzip
import os
import tracemalloc
import zlib

import brotli
import pytest
from backports import zstd
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.errors import GatewayError
from gateway.server.content_coding import CODINGS, decode_body

ENCODERS = {
    b"gzip": gzip.compress,
    b"deflate": zlib.compress,
    b"br": lambda body: brotli.compress(body, quality=4),
    b"zstd": zstd.compress,
}
BODY = b'{"model": "a", "messages": []}'


async def refused(body, coding, status, most=100):
    with pytest.raises(GatewayError) as caught:
        await decode_body(body, coding, most)
    assert caught.value.status == status
    return caught.value.message


def test_every_coding_is_tested():
    assert ENCODERS.keys() == CODINGS


@pytest.mark.parametrize("coding", ENCODERS)
class TestEveryCoding:
    @pytest.mark.parametrize("kind", [bytes, bytearray])
    async def test_what_was_encoded_comes_back_up_to_the_limit(self, coding, kind):
        body = os.urandom(50) * 2
        assert await decode_body(kind(ENCODERS[coding](body)), coding, 100) == body
        assert "at least 101" in await refused(ENCODERS[coding](body + b"x"), coding, 413)

    async def test_a_bomb_costs_its_limit_and_not_what_it_would_become(self, coding):
        bomb = ENCODERS[coding](b"\0" * 300_000_000)
        tracemalloc.start()
        try:
            await refused(bomb, coding, 413, most=1_000_000)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 12_000_000

    async def test_what_is_cut_short_goes_on_or_is_something_else_is_damaged(self, coding):
        whole = ENCODERS[coding](BODY)
        for damaged in (b"", BODY, whole[:-1], whole[: len(whole) // 2], whole + b"x", whole + whole):
            message = await refused(damaged, coding, 400)
            assert coding.decode() in message

    async def test_a_body_that_fills_the_limit_exactly_is_whole(self, coding):
        body = b"a" * 10_000
        assert await decode_body(ENCODERS[coding](body), coding, 10_000) == body

    @given(data=st.binary(max_size=200))
    async def test_anything_else_is_an_answer_too(self, coding, data):
        with contextlib.suppress(GatewayError):
            assert len(await decode_body(data, coding, 1000)) <= 1000


async def test_a_zstd_window_beyond_what_decoders_must_have_is_refused():
    options = {zstd.CompressionParameter.window_log: 27, zstd.CompressionParameter.enable_long_distance_matching: 1}
    compressor = zstd.ZstdCompressor(options=options)
    far = compressor.compress(os.urandom(100)) + compressor.flush()
    await refused(far, b"zstd", 400, most=1000)
