"""Where a raw JSON value stands in the body it was decoded from.

msgspec hands out `Raw` values as views of the buffer that it read, without copying. An edit of the body needs the
offset of such a view. Searching for its bytes would be slow for a 20 MB picture and wrong where a picture occurs
twice, so the offset is read from the two addresses. Raw views are read-only, which `ctypes.from_buffer` refuses; the
buffer protocol itself (`PyObject_GetBuffer`, stable since Python 3.11) gives the address of any of them.
"""

import ctypes

import msgspec

from gateway.domain.request import Span

_PYBUF_SIMPLE = 0


class _PyBuffer(ctypes.Structure):
    """`Py_buffer` of CPython's stable interface."""

    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = (ctypes.py_object, ctypes.POINTER(_PyBuffer), ctypes.c_int)
_get_buffer.restype = ctypes.c_int
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = (ctypes.POINTER(_PyBuffer),)
_release_buffer.restype = None


def _address_and_length(view: object) -> tuple[int, int]:
    buffer = _PyBuffer()
    _get_buffer(view, ctypes.byref(buffer), _PYBUF_SIMPLE)
    try:
        return buffer.buf or 0, buffer.len
    finally:
        _release_buffer(ctypes.byref(buffer))


class SpanFinder:
    """Finds views of one body; the body must not move meanwhile, which its views prevent."""

    def __init__(self, body: bytes | bytearray) -> None:
        self._address, self._bytes = _address_and_length(body)

    def span_of(self, raw: msgspec.Raw) -> Span:
        """Byte offsets of `raw` in the body; AssertionError for a view of anything else."""
        raw_address, raw_bytes = _address_and_length(raw)
        start = raw_address - self._address
        assert 0 <= start <= self._bytes - raw_bytes, "the raw value is no view of this body"
        return Span(start, start + raw_bytes)
