"""A model that no arithmetic here fits: what its server made of a few pictures bounds what it makes of others.

No more than a bound from above. It holds for servers that spend no more on a pixel of large pictures than of small
ones, as all families do, and is generous to most: it is what is reserved, and nothing is refused for it.
"""

from dataclasses import dataclass

from gateway.domain.geometry import Size
from gateway.domain.vision.base import MOST_PIXELS, BoundedTokens, ImageTokens, refuse_empty


@dataclass(frozen=True, slots=True)
class Measured:
    """`most_tokens` are those of the dearest picture that was counted; the largest had `pixels`, None where all cost
    the same, so that size is no matter.
    """

    name: str
    most_tokens: int
    pixels: int | None

    @property
    def min_side(self) -> int:
        return 1

    @property
    def markers(self) -> int:
        return 0

    @property
    def max_image_tokens(self) -> int:
        return self._most(MOST_PIXELS)

    def tokens(self, size: Size) -> ImageTokens:
        """See VisionFamily."""
        refuse_empty(size)
        most = self._most(size.pixels)
        return BoundedTokens(most, 0, most, size, uncertain=most - 1, uncertain_encoder=most - 1)

    def shrink(self, size: Size, max_tokens: int) -> Size | None:
        """See VisionFamily. Nobody knows what a smaller one would cost."""
        return size if self.tokens(size).placeholder <= max_tokens else None

    def _most(self, pixels: int) -> int:
        if self.pixels is None or pixels <= self.pixels:
            return self.most_tokens
        return -(-self.most_tokens * pixels // self.pixels)
