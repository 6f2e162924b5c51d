"""A family whose pictures cost what it says, but for what the chat template writes around each: calibration measures
that (domain/calibration.py) on prompts of one picture, so of several it is no more than a bound.
"""

from dataclasses import dataclass

from gateway.domain.geometry import Size
from gateway.domain.vision.base import BoundedTokens, ImageTokens, VisionFamily


@dataclass(frozen=True, slots=True)
class Written:
    """`written` tokens stand around each picture beyond what `family` is known for; below 0: as many are left out."""

    family: VisionFamily
    written: int

    @property
    def name(self) -> str:
        return self.family.name

    @property
    def min_side(self) -> int:
        return self.family.min_side

    @property
    def max_image_tokens(self) -> int:
        return self.family.max_image_tokens

    @property
    def markers(self) -> int:
        return self.family.markers + max(0, self.written)

    def tokens(self, size: Size) -> ImageTokens:
        """See VisionFamily. What the template may write is reserved, and what it may leave out is not sure to come."""
        cost = self.family.tokens(size)
        return BoundedTokens(
            cost.placeholder,
            cost.markers + max(0, self.written),
            cost.encoder,
            cost.model_size,
            cost.is_capped,
            uncertain=cost.prompt - cost.least_prompt + abs(self.written),
            uncertain_encoder=cost.encoder - cost.least_encoder,
        )

    def shrink(self, size: Size, max_tokens: int) -> Size | None:
        """See VisionFamily."""
        return self.family.shrink(size, max_tokens)


def written_around(family: VisionFamily, written: int) -> VisionFamily:
    return Written(family, written) if written else family
