"""Bodies that were compressed on their way: gzip, deflate, br and zstd, one coding at a time.

Every decoder is asked for no more than one byte beyond the limit, so a bomb costs its limit and not what it would
become. What zstd may look back on is bounded too (its window is memory), by what RFC 8878 asks every decoder to have.
"""

import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import brotli
from backports import zstd

from gateway.domain.errors import Code, GatewayError
from gateway.pipeline.beside import in_thread
from gateway.server.receive import too_large

_DECODING = ThreadPoolExecutor(2, thread_name_prefix="decompress")
_ZSTD_OPTIONS = {int(zstd.DecompressionParameter.window_log_max): 23}


class _Decoded(NamedTuple):
    """At most as much as was asked for, and whether it was all of one whole stream."""

    body: bytes
    is_whole: bool


def _inflate(body: bytes | bytearray, most_bytes: int, window_bits: int) -> _Decoded:
    decoder = zlib.decompressobj(window_bits)
    decoded = decoder.decompress(body, most_bytes)
    return _Decoded(decoded, decoder.eof and not decoder.unused_data)


def _gunzip(body: bytes | bytearray, most_bytes: int) -> _Decoded:
    return _inflate(body, most_bytes, 16 + zlib.MAX_WBITS)


def _undeflate(body: bytes | bytearray, most_bytes: int) -> _Decoded:
    return _inflate(body, most_bytes, zlib.MAX_WBITS)


def _unbrotli(body: bytes | bytearray, most_bytes: int) -> _Decoded:
    decoder = brotli.Decompressor()
    pieces = [decoder.process(body, output_buffer_limit=most_bytes)]
    come = len(pieces[0])
    while come < most_bytes and not decoder.is_finished() and not decoder.can_accept_more_data():
        pieces.append(decoder.process(b"", output_buffer_limit=most_bytes - come))
        come += len(pieces[-1])
    return _Decoded(b"".join(pieces), decoder.is_finished())


def _unzstd(body: bytes | bytearray, most_bytes: int) -> _Decoded:
    decoder = zstd.ZstdDecompressor(options=_ZSTD_OPTIONS)
    decoded = decoder.decompress(body, most_bytes)
    return _Decoded(decoded, decoder.eof and not decoder.unused_data)


_DECODERS: dict[bytes, Callable[[bytes | bytearray, int], _Decoded]] = {
    b"gzip": _gunzip,
    b"deflate": _undeflate,
    b"br": _unbrotli,
    b"zstd": _unzstd,
}
CODINGS = frozenset(_DECODERS)


async def decode_body(body: bytes | bytearray, coding: bytes, max_decoded_bytes: int) -> bytes:
    """Undo one of `CODINGS`, in a thread. Raises GatewayError 413 for what becomes too long, 400 for damaged data."""
    return await in_thread(_DECODING, _decoded, body, coding, max_decoded_bytes)


def _decoded(body: bytes | bytearray, coding: bytes, max_decoded_bytes: int) -> bytes:
    name = coding.decode()
    try:
        decoded, is_whole = _DECODERS[coding](body, max_decoded_bytes + 1)
    except (zlib.error, brotli.error, zstd.ZstdError) as error:
        raise GatewayError(Code.INVALID_REQUEST, f"The body is not valid {name}: {error}.") from None
    if len(decoded) > max_decoded_bytes:
        raise too_large(len(decoded), max_decoded_bytes)
    if not is_whole:
        raise GatewayError(
            Code.INVALID_REQUEST, f"The body is not one complete {name} stream: cut short or with a tail."
        )
    return decoded
