"""A model of which it is not known for sure how it prices images: one of several arithmetics, or one that was wrong.

What is reserved is the most that any of its members makes of an image, which may be bounds of what was measured too
(measured.py); sure to come is the least that any of those makes that may still be true. Which these are is found by
calibration (domain/calibration.py), not here.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from gateway.domain.geometry import Size
from gateway.domain.vision.base import BoundedTokens, ImageTokens, UnservableImageError, VisionFamily, refuse_empty


@dataclass(frozen=True, slots=True)
class OneOf:
    """`members` bound the cost from above, with `factor` on the dearest; those that are `possible` from below. Nothing
    is possible where every arithmetic was seen to be wrong: then a single token is all that is sure.
    """

    name: str
    members: tuple[VisionFamily, ...]
    possible: tuple[VisionFamily, ...]
    factor: float = 1.0

    @property
    def min_side(self) -> int:
        return min(member.min_side for member in self.members)

    @property
    def max_image_tokens(self) -> int:
        return max(
            math.ceil(self.factor * (member.max_image_tokens + member.markers)) - member.markers
            for member in self.members
        )

    @property
    def markers(self) -> int:
        return max(member.markers for member in self.members)

    def tokens(self, size: Size) -> ImageTokens:
        """See VisionFamily. A size is refused where all members that are possible refuse it; a member that was wrong
        refuses nothing.
        """
        refuse_empty(size)
        least = list(_costs(self.possible, size))
        if self.possible and not least:
            raise UnservableImageError(f"the image is {size}: no family that this model may be of takes it")
        costs = list(_costs(self.members, size)) or [_dearest(member, size) for member in self.members]
        worst = max(costs, key=lambda cost: cost.prompt)
        prompt = math.ceil(self.factor * worst.prompt)
        encoder = math.ceil(self.factor * max(cost.encoder for cost in costs))
        # An image is only made smaller beforehand where all agree on what the processor would make of it.
        is_capped = all(cost.is_capped and cost.model_size == worst.model_size for cost in costs)
        return BoundedTokens(
            prompt - worst.markers,
            worst.markers,
            encoder,
            worst.model_size,
            is_capped,
            uncertain=prompt - min((cost.least_prompt for cost in least), default=1),
            uncertain_encoder=encoder - min((cost.least_encoder for cost in least), default=min(1, encoder)),
        )

    def shrink(self, size: Size, max_tokens: int) -> Size | None:
        """See VisionFamily: the largest of the members' own answers that costs no more by any of them."""
        if self._fits(size, max_tokens):
            return size
        offered = {target for member in self.members if (target := member.shrink(size, max_tokens)) is not None}
        fitting = [target for target in offered if self._fits(target, max_tokens)]
        return max(fitting, key=lambda target: (target.pixels, target.width), default=None)

    def _fits(self, size: Size, max_tokens: int) -> bool:
        try:
            return self.tokens(size).placeholder <= max_tokens
        except UnservableImageError:
            return False


def _dearest(family: VisionFamily, size: Size) -> ImageTokens:
    most = family.max_image_tokens
    return ImageTokens(most, family.markers, most, size)


def _costs(families: Iterable[VisionFamily], size: Size) -> Iterable[ImageTokens]:
    """Of those that take an image of that size."""
    for family in families:
        try:
            yield family.tokens(size)
        except UnservableImageError:
            continue
