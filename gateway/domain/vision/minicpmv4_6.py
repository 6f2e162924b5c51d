"""MiniCPM-V 4.6: the views of MiniCPM-V in the image's own shape, so that each costs what its patches are worth.

A view keeps the image's shape at about 448 x 448 pixels, in whole units of four patches; a small image that is not
sliced is enlarged to that. Sixteen patches become one embedding (`4x`: four do). Start and end of each view, newlines
between rows and the image's number come on top.
Source: transformers 5.19 `minicpmv4_6`, vLLM 0.32 `minicpmv4_6.py`.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from gateway.domain.geometry import Size
from gateway.domain.vision.base import BoundedTokens, ImageTokens, ProcessorConfigError, refuse_empty
from gateway.domain.vision.fitting import Fitted, inside
from gateway.domain.vision.minicpmv import ID_TAGS, MORE_DIGITS, TAGS, by_area, sliced_grid, within_area
from gateway.domain.vision.sources import MOST_TILES, Sources

_MERGES = 4
"""Patches along a side that must be whole together."""


@dataclass(frozen=True, slots=True)
class MiniCPMV4_6(Fitted):  # noqa: N801 - the model's name
    """`scale` is the side of a view and `patch` that of a patch in pixels; `pooled` patches become one embedding.

    The placeholder is the embeddings alone; what stands around views is counted among the markers, where it is not
    known to the last token.
    """

    name: str
    scale: int
    patch: int
    pooled: int
    most_slices: int

    @property
    def markers(self) -> int:
        return _structure(self.most_slices, self.most_slices)

    @property
    def max_image_tokens(self) -> int:
        """An upper bound: a view's sides are rounded up by at most half a unit each."""
        unit = self.patch * _MERGES
        side = -(-self.scale // unit) + 1
        longest = self.scale**2 // unit
        view = max(side * side, longest + side) * unit**2 // (self.patch**2 * self.pooled)
        return (1 + self.most_slices) * view

    def tokens(self, size: Size) -> ImageTokens:
        refuse_empty(size)
        columns, rows = sliced_grid(size, self.scale, self.most_slices, prefers_rows=True)
        soft = self._embeddings(self._view(size.width, size.height))
        if columns:
            soft += columns * rows * self._embeddings(self._slice(size, columns, rows))
        markers = _structure(columns * rows, rows)
        seen = within_area(size, max(1, columns * rows) * self.scale**2)
        return BoundedTokens(soft, markers, soft, seen, uncertain=MORE_DIGITS + max(0, rows - 1))

    def shapes(self, size: Size, /) -> Iterator[Size]:
        """Each a few pixels narrower too: what the sides are rounded to decides how many patches a slice has."""
        for shape in by_area(size, self.scale, self.most_slices):
            narrower = range(min(self.most_slices + 1, shape.width, shape.height))
            yield from (inside(size, Size(shape.width - less, shape.height)) for less in narrower)

    def _slice(self, size: Size, columns: int, rows: int) -> Size:
        wide, high = _nearest(size.width, columns), _nearest(size.height, rows)
        return self._view(wide / columns, high / rows)

    def _view(self, width: float, height: float) -> Size:
        """All views are resized: what is not sliced is enlarged, and what is sliced is larger than a view."""
        ratio, unit = width / height, self.patch * _MERGES
        scaled = int(self.scale / math.sqrt(ratio))
        return Size(_nearest(int(scaled * ratio), unit), _nearest(scaled, unit))

    def _embeddings(self, view: Size) -> int:
        return view.pixels // (self.patch**2 * self.pooled)


def _nearest(side: float, unit: int) -> int:
    """Rounded half to even, at least one unit."""
    return max(round(side / unit) * unit, unit)


def _structure(slices: int, rows: int) -> int:
    return (1 + slices) * TAGS + max(0, rows - 1) + ID_TAGS + MORE_DIGITS


def from_sources(name: str, read: Sources) -> MiniCPMV4_6:
    mode = read.value("downsample_mode", default="16x")
    if mode not in {"16x", "4x"}:
        raise ProcessorConfigError("downsample_mode", f"must be 16x or 4x, not {mode!r}")
    most = read.whole("max_slice_nums", default=9, most=MOST_TILES)
    return MiniCPMV4_6(
        name,
        scale=read.whole("scale_resolution", default=448),
        patch=read.side("patch_size", default=14),
        pooled=16 if mode == "16x" else 4,
        most_slices=most if read.flag("slice_mode", default=True) else 1,
    )
