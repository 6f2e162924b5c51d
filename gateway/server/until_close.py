"""Answers to clients of HTTP/1.0, which know no chunks: what has no length ends with its connection (RFC 9112 §6.3)."""

from typing import Any

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle


class UntilClose(RequestResponseCycle):
    """What uvicorn's own cycle becomes, which would send chunks to anybody."""

    _has_length = True

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self._has_length = any(name == b"content-length" for name, _ in message["headers"])
            if not self._has_length:
                self.chunked_encoding = False
        elif not self._has_length:
            # Without chunks uvicorn counts down a length: that of this piece is all that is known.
            self.expected_content_length = len(message["body"])
        await super().send(message)
