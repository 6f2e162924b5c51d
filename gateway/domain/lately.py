"""Which images an engine has encoded lately, so that its caches spare it the work when they come again.

Only charges depend on it, never a check: being wrong costs some waiting, not correctness.
"""

from collections import OrderedDict
from collections.abc import Hashable, Iterable

_MOST_IMAGES = 4096


class LatelyServed:
    """The last images that an engine answered for; the one not used for longest goes first."""

    __slots__ = ("_images", "_most_images")

    def __init__(self, most_images: int = _MOST_IMAGES) -> None:
        self._images: OrderedDict[Hashable, None] = OrderedDict()
        self._most_images = most_images

    def __contains__(self, image: Hashable) -> bool:
        return image in self._images

    def __len__(self) -> int:
        return len(self._images)

    def add(self, images: Iterable[Hashable]) -> None:
        """These were part of a request that the engine answered."""
        for image in images:
            self._images[image] = None
            self._images.move_to_end(image)
        while len(self._images) > self._most_images:
            self._images.popitem(last=False)

    def forget(self) -> None:
        """The engine was restarted: its caches are empty."""
        self._images.clear()
