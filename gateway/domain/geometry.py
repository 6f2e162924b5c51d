"""Sizes of images. No pixels here, only their number."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Size:
    """Width and height in pixels, as a viewer sees the image: after EXIF orientation."""

    width: int
    height: int

    @property
    def pixels(self) -> int:
        return self.width * self.height

    @property
    def aspect_ratio(self) -> float:
        """Long side divided by short side, at least 1."""
        return max(self.width, self.height) / min(self.width, self.height)

    @property
    def transposed(self) -> "Size":
        return Size(self.height, self.width)

    def __str__(self) -> str:
        return f"{self.width}x{self.height}"
