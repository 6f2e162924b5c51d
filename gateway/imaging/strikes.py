"""Which pictures ended the process that decoded them: one that did so twice is never tried again."""

from collections import OrderedDict

MOST_STRIKES = 2
_MOST_PICTURES = 4096


class Strikes:
    """By the hash of a picture's base64; the one that struck longest ago is forgotten first."""

    def __init__(self, most_pictures: int = _MOST_PICTURES) -> None:
        self._strikes: OrderedDict[bytes, int] = OrderedDict()
        self._most_pictures = most_pictures

    def __len__(self) -> int:
        return len(self._strikes)

    def is_out(self, digest: bytes) -> bool:
        return self._strikes.get(digest, 0) >= MOST_STRIKES

    def add(self, digest: bytes) -> None:
        self._strikes[digest] = self._strikes.get(digest, 0) + 1
        self._strikes.move_to_end(digest)
        if len(self._strikes) > self._most_pictures:
            self._strikes.popitem(last=False)
