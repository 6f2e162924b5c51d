"""NVLM-D: InternVL's grid, with a tag of plain text before each tile.

`<Image>`, `</Image>`, `<tile_N>` and `<tile_global_thumbnail>` are no tokens of their own in its vocabulary; what they
cost needs the tokenizer. Only the embeddings are exact: of each tag at least one token is sure, and at most one a byte.
Source: NVLM (arXiv:2409.11402); vLLM 0.32 `processors/nvlm_d.py`.
"""

from dataclasses import dataclass

from gateway.domain.geometry import Size
from gateway.domain.vision.base import BoundedTokens, ImageTokens
from gateway.domain.vision.internvl import InternVL, tile_of, tiles_of, tokens_of
from gateway.domain.vision.sources import Sources

_AROUND = ("<Image>", "</Image>")
_THUMBNAIL = "<tile_global_thumbnail>"
_TILE = "<tile_{}>"


@dataclass(frozen=True, slots=True)
class NvlmD:
    """`grid` prices the embeddings."""

    grid: InternVL

    @property
    def name(self) -> str:
        return self.grid.name

    @property
    def min_side(self) -> int:
        return self.grid.min_side

    @property
    def markers(self) -> int:
        return sum(map(len, _tags(self.grid.most_tiles, has_thumbnail=self.grid.has_thumbnail)))

    @property
    def max_image_tokens(self) -> int:
        return self.grid.tile_tokens * (self.grid.most_tiles + self.grid.has_thumbnail)

    def tokens(self, size: Size) -> ImageTokens:
        cost = self.grid.tokens(size)
        tiles = cost.model_size.pixels // self.grid.tile**2
        tags = _tags(tiles, has_thumbnail=self.grid.has_thumbnail)
        markers = sum(map(len, tags))
        soft, uncertain = cost.encoder, markers - len(tags)
        return BoundedTokens(soft, markers, soft, cost.model_size, cost.is_capped, uncertain=uncertain)

    def shrink(self, size: Size, max_tokens: int) -> Size | None:
        return self.grid.shrink(size, max_tokens + self._inside)

    @property
    def _inside(self) -> int:
        """Tokens that InternVL counts inside the replacement and that are no embeddings."""
        cost = self.grid.tokens(Size(1, 1))
        return cost.placeholder - cost.encoder


def _tags(tiles: int, *, has_thumbnail: bool) -> list[str]:
    thumbnail = [_THUMBNAIL] if has_thumbnail and tiles > 1 else []
    return [*_AROUND, *(_TILE.format(tile) for tile in range(1, tiles + 1)), *thumbnail]


def from_sources(name: str, read: Sources) -> NvlmD:
    tile, patch, ratio = tile_of(read)
    least, most, has_thumbnail = tiles_of(read)
    return NvlmD(InternVL(name, tile, tokens_of(tile, patch, ratio), least, most, has_thumbnail))
