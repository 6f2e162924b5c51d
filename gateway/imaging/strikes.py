"""Which pictures ended the process that decoded them: one that did so twice is never tried again."""

from collections import OrderedDict

MOST_STRIKES = 2
_MOST_PICTURES = 4096
_FORGOTTEN_SECONDS = 3600.0


class Strikes:
    """By the hash of a picture's base64; the one that struck longest ago is forgotten first, and a single strike after
    an hour: it may have been no fault of the picture's.
    """

    def __init__(self, most_pictures: int = _MOST_PICTURES) -> None:
        self._strikes: OrderedDict[bytes, tuple[int, float]] = OrderedDict()
        self._most_pictures = most_pictures

    def __len__(self) -> int:
        return len(self._strikes)

    def is_out(self, digest: bytes) -> bool:
        return self._strikes.get(digest, (0, 0.0))[0] >= MOST_STRIKES

    def add(self, digest: bytes, now: float) -> None:
        """`now` is of a monotonic clock, in seconds."""
        count, struck_at = self._strikes.get(digest, (0, now))
        is_forgotten = count < MOST_STRIKES and now - struck_at >= _FORGOTTEN_SECONDS
        self._strikes[digest] = (1 if is_forgotten else count + 1, now)
        self._strikes.move_to_end(digest)
        if len(self._strikes) > self._most_pictures:
            self._strikes.popitem(last=False)
