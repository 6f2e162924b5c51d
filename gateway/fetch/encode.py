"""Base64 as the bytes come, so that a picture is never held twice."""

import pybase64

_SPARE = 8  # what grows piece by piece has an eighth of room to grow


def encoded_bytes(file_bytes: int) -> int:
    """Memory that a file of so many bytes takes at most while it is written, as base64."""
    encoded = (file_bytes + 2) // 3 * 4
    return encoded + encoded // _SPARE


class Base64Writer:
    """Takes the pieces of a file in order. `file_bytes` have come."""

    __slots__ = ("_carried", "_written", "file_bytes")

    def __init__(self) -> None:
        self._written = bytearray()
        self._carried = b""
        self.file_bytes = 0

    def write(self, piece: bytes) -> None:
        self.file_bytes += len(piece)
        piece = self._carried + piece if self._carried else piece
        whole = len(piece) - len(piece) % 3
        self._written += pybase64.b64encode(memoryview(piece)[:whole])
        self._carried = piece[whole:]

    def close(self) -> memoryview:
        """All of it, to be read only; nothing more may be written."""
        self._written += pybase64.b64encode(self._carried)
        return memoryview(self._written).toreadonly()
