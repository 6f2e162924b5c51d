"""The raw content parts of a chat body, for the few requests that need more than the URLs.

A second pass over the body, so only taken where an image is a bare string, is trimmed, or carries a `uuid`.
"""

import msgspec

from gateway.wire.read import decode_body


class _Message(msgspec.Struct):
    content: list[msgspec.Raw] | str | None = None


class _Body(msgspec.Struct):
    messages: list[_Message]


_decoder = msgspec.json.Decoder(_Body)


class RawParts:
    """Content parts of a body that was parsed before, by message and part index; views, valid as long as the body."""

    def __init__(self, body: bytes | bytearray) -> None:
        self._messages = decode_body(_decoder, body).messages

    def part(self, message_index: int, part_index: int) -> msgspec.Raw:
        """The JSON of one part."""
        content = self._messages[message_index].content
        assert isinstance(content, list), "only lists hold parts"
        return content[part_index]
