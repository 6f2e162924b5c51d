"""Kimi-VL and Kimi-K2.5: whole patches of an image that is shrunk into a limit of patches, then padded.

Kimi-VL counts whole patches before it shrinks, and fails on 512 patches or more along a side: a long strip never fits.
K2.5 shrinks sides into that limit too. Two by two patches become one token; padding, not stretching, fills the last.
Source: Kimi-VL (arXiv:2504.07491), MoonViT; vLLM 0.32 `kimi_vl.py`, transformers 5.19 `kimi_k25`.
"""

import math
from dataclasses import dataclass

from gateway.domain.geometry import Size
from gateway.domain.vision.base import BoundedTokens, ImageTokens, UnservableImageError, refuse_empty
from gateway.domain.vision.fitting import Fitted
from gateway.domain.vision.sources import Sources

_SIDE_PATCHES = 512


@dataclass(frozen=True, slots=True)
class Kimi(Fitted):
    """`most_patches` of `patch` pixels in all; with `shrinks_sides` at most `side_patches` along a side, else fewer.

    `merge` patches along a side become one token. The template has `written` tokens, of which `uncertain` may not come.
    """

    name: str
    patch: int
    merge: int
    most_patches: int
    side_patches: int
    shrinks_sides: bool
    written: int
    uncertain: int = 0

    @property
    def markers(self) -> int:
        return self.written

    @property
    def max_image_tokens(self) -> int:
        """An upper bound, reached by no shape: a side has up to a patch more than its whole ones, and padding."""
        longest = min(self.side_patches, self.most_patches)
        shortest, more = self.most_patches / longest, 1 + self.merge
        return int((longest + more) * (shortest + more)) // self.merge**2

    def tokens(self, size: Size) -> ImageTokens:
        refuse_empty(size)
        scale = self._scale(size)
        if scale < 1:
            size = Size(int(size.width * scale), int(size.height * scale))
            size = self._within_sides(size) if self.shrinks_sides else size
        columns, rows = (-(-side // (self.patch * self.merge)) for side in (size.width, size.height))
        if not self.shrinks_sides and self.merge * max(columns, rows) >= self.side_patches:
            raise UnservableImageError(
                f"the image has {self.merge * max(columns, rows)} patches along its longer side once it is shrunk, "
                f"the model takes fewer than {self.side_patches}"
            )
        count = columns * rows
        return BoundedTokens(count, self.written, count, size, is_capped=scale < 1, uncertain=self.uncertain)

    @property
    def step(self) -> int:
        return self.patch * self.merge

    def _scale(self, size: Size) -> float:
        columns, rows = (side // self.patch for side in (size.width, size.height))
        if not self.shrinks_sides:
            patches = columns * rows
            return math.sqrt(self.most_patches / patches) if patches > self.most_patches else 1.0
        most = self.side_patches * self.patch
        return min(
            1.0,
            math.sqrt(self.most_patches / (max(1, columns) * max(1, rows))),
            most / size.height,
            most / size.width,
        )

    def _within_sides(self, size: Size) -> Size:
        most = self.side_patches * self.patch
        return Size(*(min(max(1, side), most) for side in (size.width, size.height)))


def kimi_vl(name: str, read: Sources) -> Kimi:
    """The template writes three tokens and the word `image` around the placeholder."""
    return Kimi(
        name,
        patch=read.side("patch_size", default=14),
        merge=read.pair("merge_kernel_size", default=(2, 2))[0],
        most_patches=read.whole("in_token_limit", default=4096),
        side_patches=_SIDE_PATCHES,
        shrinks_sides=False,
        written=4,
    )


def kimi_k2_5(name: str, read: Sources) -> Kimi:
    """What the template writes around the placeholder was not seen: at most as much as Kimi-VL's."""
    return Kimi(
        name,
        patch=read.side("patch_size", "media_proc_cfg.patch_size", default=14),
        merge=read.whole("merge_size", "media_proc_cfg.merge_kernel_size", default=2),
        most_patches=read.whole("max_patches", "media_proc_cfg.in_patch_limit", default=16384),
        side_patches=read.whole("size.max_height", "media_proc_cfg.patch_limit_on_one_side", default=_SIDE_PATCHES),
        shrinks_sides=True,
        written=4,
        uncertain=4,
    )
