"""The largest size that costs at most so much, for families whose cost does not simply grow with the image.

A family offers candidates, sizes that its own processor keeps or uses to the full; the one that keeps most of the
image's detail and fits the budget is taken. Cost of tiles is not monotonic: a smaller image can cost more, so every
candidate is priced by the family itself before it is believed.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator

from gateway.domain.geometry import Size
from gateway.domain.vision.base import ImageTokens, UnservableImageError, refuse_empty
from gateway.domain.vision.grids import Grid


class Fitted(ABC):
    """What such a family is but for its arithmetic. Subclasses are frozen and have slots."""

    __slots__ = ()

    @property
    def min_side(self) -> int:
        return 1

    @property
    def markers(self) -> int:
        return 0

    @property
    def step(self) -> int:
        """Side in pixels of the squares that the cost grows by with the image. 0: it does not grow like that."""
        return 0

    @abstractmethod
    def tokens(self, size: Size) -> ImageTokens:
        """See VisionFamily."""
        ...

    def shapes(self, _size: Size, /) -> Iterable[Size]:
        """Sizes that an image of that size might be sent at instead; those that are larger are passed over."""
        return ()

    def shrink(self, size: Size, max_tokens: int) -> Size | None:
        """See VisionFamily. An image that the model refuses becomes one that it takes, where a candidate is one."""
        refuse_empty(size)
        if self._within(size, max_tokens):
            return size
        found = self._best({*self.shapes(size), *self._on_units(size, max_tokens, _covering)}, size, max_tokens)
        # Just above the least that an image costs only one that is a little narrower than its shape may do.
        return found or self._best(set(self._on_units(size, max_tokens, _within_shape)), size, max_tokens)

    def _on_units(self, size: Size, max_tokens: int, other_side: "_OtherSide") -> Iterator[Size]:
        if self.step:
            found = _on_units(size, self.step, lambda each: self._keeps(each, max_tokens), other_side)
            yield from (each for each in found if self._is_left_alone(each))

    def _best(self, candidates: set[Size], size: Size, max_tokens: int) -> Size | None:
        smaller = [each for each in candidates if _is_within(each, size)]
        seen = [(each, cost) for each in smaller if (cost := self._within(each, max_tokens))]
        if not seen:
            return None
        return max(seen, key=lambda pair: (_detail(pair[0], pair[1], size), pair[0].pixels, pair[0].width))[0]

    def _keeps(self, size: Size, max_tokens: int) -> bool:
        """Whether the model takes that size for so many tokens and does not shrink it any more; or enlarges it, so
        that a larger one may do.
        """
        cost = self._within(size, max_tokens)
        if cost is None:
            return self._is_enlarged(size)
        return not cost.is_capped

    def _is_enlarged(self, size: Size) -> bool:
        """By more than the model rounds."""
        try:
            model_size = self.tokens(size).model_size
        except UnservableImageError:
            return False
        return max(model_size.width - size.width, model_size.height - size.height) >= self.step

    def _is_left_alone(self, size: Size) -> bool:
        """But for what it rounds. What the model enlarges again has lost detail for nothing, and maybe its shape."""
        model_size = self.tokens(size).model_size
        changes = abs(model_size.width - size.width), abs(model_size.height - size.height)
        return max(changes) < self.step

    def _within(self, size: Size, max_tokens: int) -> ImageTokens | None:
        """The cost, where the model takes that size and it is no more than that."""
        try:
            cost = self.tokens(size)
        except UnservableImageError:
            return None
        return cost if cost.placeholder <= max_tokens else None


def is_capped(size: Size, model_size: Size) -> bool:
    """Whether the processor made the image smaller in both directions, and could as well be handed the smaller one."""
    return model_size != size and _is_within(model_size, size)


def inside(size: Size, canvas: Size) -> Size:
    """The largest size of the image's own shape within a canvas, larger or smaller than the image."""
    if canvas.width * size.height <= canvas.height * size.width:
        return Size(canvas.width, max(1, canvas.width * size.height // size.width))
    return Size(max(1, canvas.height * size.width // size.height), canvas.height)


def stretched(size: Size, grid: Grid, tile: int) -> Size | None:
    """The largest size of exactly the grid's shape, within its tiles and within the image. None: there is none."""
    columns, rows = grid
    side = min(tile, size.width // columns, size.height // rows)
    return Size(columns * side, rows * side) if side else None


_OtherSide = Callable[[Size, int, int], Size]


def _on_units(size: Size, unit: int, fits: Callable[[Size], bool], other_side: _OtherSide) -> Iterator[Size]:
    """The largest sizes that fit of those with whole units, once by width and once by height.

    Assumes that what fits still fits when it is made smaller.
    """
    if wide := _most(size.width // unit, lambda columns: fits(other_side(size, unit, columns))):
        yield other_side(size, unit, wide)
    if high := _most(size.height // unit, lambda rows: fits(other_side(size.transposed, unit, rows).transposed)):
        yield other_side(size.transposed, unit, high).transposed


def _covering(size: Size, unit: int, columns: int) -> Size:
    """The other side covers the image's shape."""
    rows = -(-columns * size.height // size.width)
    return Size(columns * unit, min(rows * unit, size.height))


def _within_shape(size: Size, unit: int, columns: int) -> Size:
    """The other side stays within the image's shape."""
    return Size(columns * unit, max(1, columns * size.height // size.width) * unit)


def _most(limit: int, holds: Callable[[int], bool]) -> int:
    """The greatest number up to `limit` for which it holds, given that it then holds for all smaller ones; 0: none."""
    least, most = 0, limit
    while least < most:
        middle = (least + most + 1) // 2
        least, most = (middle, most) if holds(middle) else (least, middle - 1)
    return least


def _is_within(size: Size, limit: Size) -> bool:
    return size.width <= limit.width and size.height <= limit.height


def _detail(size: Size, cost: ImageTokens, original: Size) -> float:
    """Pixels that the model sees of each of the original's, along the side that loses more."""
    width, height = min(size.width, cost.model_size.width), min(size.height, cost.model_size.height)
    return min(width / original.width, height / original.height)
