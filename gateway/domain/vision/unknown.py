"""What an image costs on a model of which no family is known: at most what the dearest one of this house makes of it.

A bound and no guess: a place is kept for as much, and nothing is refused for more than the one token that every image
has. It is the dearest of the families that are known here; a model of yet another kind may cost more.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from gateway.domain.geometry import Size
from gateway.domain.vision.base import BoundedTokens, ImageTokens, UnservableImageError, VisionFamily, refuse_empty
from gateway.domain.vision.checkpoints import CHECKPOINTS
from gateway.domain.vision.registry import resolve

UNKNOWN = "unknown"
_KEPT_SIZES = 4096  # pictures of one source are of few sizes, and to ask all families takes half a millisecond


@dataclass(frozen=True, slots=True)
class UnknownFamily:
    """The families of all `rules`, each as its checkpoints are published."""

    rules: tuple[VisionFamily, ...] = field(repr=False)
    dearest: Callable[[Size], tuple[int, int]] = field(repr=False, compare=False)
    name: str = UNKNOWN
    min_side: int = 1
    markers: int = 0

    @property
    def max_image_tokens(self) -> int:
        return max(rule.max_image_tokens + rule.markers for rule in self.rules)

    def tokens(self, size: Size) -> ImageTokens:
        refuse_empty(size)
        prompt, encoder = self.dearest(size)
        return BoundedTokens(prompt, 0, encoder, size, uncertain=prompt - 1, uncertain_encoder=encoder - 1)

    def shrink(self, size: Size, max_tokens: int) -> Size | None:
        """No size is known to cost less than another."""
        return size if self.tokens(size).placeholder <= max_tokens else None


@lru_cache(maxsize=1)
def unknown_family() -> UnknownFamily:
    """Made when it is first needed: most gateways know their models."""
    rules = tuple(resolve(checkpoint.family, checkpoint=checkpoint).family for checkpoint in CHECKPOINTS)

    @lru_cache(maxsize=_KEPT_SIZES)
    def dearest(size: Size) -> tuple[int, int]:
        costs = list(_costs(rules, size))
        return max(cost.prompt for cost in costs), max(cost.encoder for cost in costs)

    dearest(Size(1024, 1024))  # fills the families' own tables of grids, which takes a hundred times as long
    return UnknownFamily(rules, dearest)


def _costs(rules: tuple[VisionFamily, ...], size: Size) -> Iterator[ImageTokens]:
    """Of those that take such an image; some take all."""
    for rule in rules:
        try:
            yield rule.tokens(size)
        except UnservableImageError:
            continue
