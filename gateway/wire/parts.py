"""The raw parts of a body by their paths, for the few requests that need more than the URLs.

A second pass over the body, so only taken where an image is a bare string, is trimmed, or carries a `uuid`.
"""

from collections.abc import Mapping, Sequence

import msgspec

from gateway.domain.request import Path
from gateway.wire.read import decode_body

_Members = Mapping[str, msgspec.Raw] | Sequence[msgspec.Raw]

_object_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_list_decoder = msgspec.json.Decoder(list[msgspec.Raw])


class RawParts:
    """Values inside of a body that was parsed before; views, valid as long as the body. Of duplicate keys the last.

    What one path goes through is decoded once for all.
    """

    def __init__(self, body: bytes | bytearray) -> None:
        self._body = body
        self._members: dict[Path, _Members] = {}

    def part(self, path: Path) -> msgspec.Raw:
        """The JSON of the value that `path` leads to, which is there. Raises GatewayError invalid_json."""
        members = self._members_of(path[:-1])
        last = path[-1]
        return members[last]  # type: ignore[index]

    def _members_of(self, path: Path) -> _Members:
        known = self._members.get(path)
        if known is None:
            raw = self.part(path) if path else self._body
            is_list = bytes(memoryview(raw)[:1]) == b"["
            known = decode_body(_list_decoder, raw) if is_list else decode_body(_object_decoder, raw)
            self._members[path] = known
        return known
