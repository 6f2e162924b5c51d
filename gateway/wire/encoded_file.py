"""A file that is still base64: its size, its first bytes, the whole, each at the least cost.

Only the standard alphabet is read. Characters outside it are never skipped: what a lenient reader drops and a strict
one does not would be two different pictures.
"""

from dataclasses import dataclass

import pybase64

from gateway.domain.errors import Code, GatewayError


@dataclass(frozen=True, slots=True)
class EncodedFile:
    """Base64 of a file, without blanks (data_url.py takes them out); padding may be missing.

    `payload` may be a view of the request's body; it is what content hashes are made of. `param` names the part in
    errors.
    """

    payload: memoryview | bytes
    param: str | None = None

    @property
    def _padding_bytes(self) -> int:
        return bytes(self.payload[-2:]).count(b"=")

    @property
    def file_bytes(self) -> int:
        """Size of the decoded file, without decoding it."""
        return (len(self.payload) - self._padding_bytes) * 3 // 4

    def prefix(self, byte_count: int) -> bytes:
        """The first `byte_count` bytes of the file, fewer where it is shorter. Raises invalid_base64_image."""
        quads = -(-byte_count // 3)
        return self._decoded(bytes(self.payload[: quads * 4]))[:byte_count]

    def decode(self) -> bytes:
        """The whole file. Raises GatewayError invalid_base64_image."""
        return self._decoded(self.payload)

    def padded(self) -> bytes:
        """The payload as strict readers want it: with its padding."""
        return bytes(self.payload) + b"=" * (-len(self.payload) % 4)

    def _decoded(self, payload: memoryview | bytes) -> bytes:
        try:
            if len(payload) % 4:
                payload = bytes(payload) + b"=" * (-len(payload) % 4)
            return pybase64.b64decode(payload, validate=True)
        except ValueError as error:
            raise GatewayError(
                Code.INVALID_BASE64_IMAGE,
                "The image's base64 is damaged, cut off, or holds characters outside the standard alphabet "
                "(A-Z a-z 0-9 + / =). URL-safe and percent-encoded base64 are not accepted.",
                param=self.param,
            ) from error
