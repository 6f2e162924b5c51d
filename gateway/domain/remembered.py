"""What pressure did to pictures and conversations, so that the same is done to them in every later turn.

vLLM's caches are keyed by the bytes of a picture and by the prefix of a prompt: what was made smaller once has to be
made smaller again, whatever the pressure is then. What was left alone is remembered too, or else the same picture in a
newer conversation would change it in an older one. Being forgotten costs a miss in these caches, never correctness: an
image that is not known is sent in its own size. How large images get is decided in resize.py.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Generic, NamedTuple, TypeVar

from gateway.domain.resize import Preset

REMEMBERED_SECONDS = 24 * 3600.0
"""Since it was needed last. vLLM keeps what fits into its caches, for however long."""

MOST_REMEMBERED = 32_768
"""Of each kind: some 10 MiB. What was not needed for longest goes first."""

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class ImageKey(NamedTuple):
    """A picture as one tenant sends it to one model: `digest` is the hash of its content, `encoder_id` names what would
    encode it anew.
    """

    tenant: str
    model: str
    digest: bytes
    encoder_id: str


class Treatment(NamedTuple):
    """What pressure did to an image when it was new: brought it under `preset`, or nothing (None)."""

    preset: Preset | None


class ConversationKey(NamedTuple):
    """A conversation of one tenant with one model: `digest` is the hash of all that was said before the first answer.

    That stays the same while the history grows. Conversations that begin alike share the prefix of their prompts, and
    so should share the rule that trims it.
    """

    tenant: str
    model: str
    digest: bytes


class Remembered(Generic[K, V]):
    """Values by key: the first that was kept stays until it was not asked for during a day, or others need its place.

    `now` is in seconds on the caller's clock, never less than before.
    """

    __slots__ = ("_entries", "_most")

    def __init__(self, most: int = MOST_REMEMBERED) -> None:
        self._entries: OrderedDict[K, tuple[V, float]] = OrderedDict()
        self._most = most

    def __len__(self) -> int:
        return len(self._entries)

    def recall(self, key: K, now: float) -> V | None:
        """What was kept for `key`; None: nothing, or too long ago."""
        entry = self._entries.get(key)
        return None if entry is None or now - entry[1] >= REMEMBERED_SECONDS else entry[0]

    def keep(self, key: K, value: V, now: float) -> None:
        """It was used: `value`, unless another one is kept already, which then stays."""
        known = self.recall(key, now)
        self.renew(key, value if known is None else known, now)

    def renew(self, key: K, value: V, now: float) -> None:
        """It was used: `value` from now on."""
        self._entries[key] = value, now
        self._entries.move_to_end(key)
        while len(self._entries) > self._most or self._oldest_seconds(now) >= REMEMBERED_SECONDS:
            self._entries.popitem(last=False)

    def lose(self, key: K, is_meant: Callable[[V], bool]) -> None:
        """What is kept for `key`, if it is what is meant."""
        entry = self._entries.get(key)
        if entry is not None and is_meant(entry[0]):
            del self._entries[key]

    def clear(self) -> None:
        self._entries.clear()

    def _oldest_seconds(self, now: float) -> float:
        return now - next(iter(self._entries.values()))[1]


def treat(
    keys: Mapping[int, ImageKey],
    new: Iterable[int],
    preset: Preset | None,
    memory: Remembered[ImageKey, Treatment],
    now: float,
) -> dict[int, Treatment]:
    """What becomes of each image, by ordinal: what is remembered; else, for `new` ones, `preset` (None: no pressure).

    One that stands in the history as well goes as it went there. Nothing is kept yet: the request may still be refused.
    """
    fresh = set(new)
    decided: dict[ImageKey, Treatment] = {}
    for ordinal in sorted(keys, key=lambda each: each in fresh):
        key = keys[ordinal]
        if key not in decided:
            known = memory.recall(key, now)
            decided[key] = Treatment(preset if ordinal in fresh else None) if known is None else known
    return {ordinal: decided[key] for ordinal, key in keys.items()}
