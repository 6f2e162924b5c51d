"""How the best of a family's candidates is found, with families made up for it."""

from dataclasses import dataclass

import pytest

from gateway.domain.geometry import Size
from gateway.domain.vision.base import ImageTokens, UnservableImageError
from gateway.domain.vision.fitting import Fitted, inside, is_capped, stretched


@dataclass(frozen=True, slots=True)
class Listed(Fitted):
    """Sizes with their cost; all others cost 1000, and a size of a pixel none will take."""

    costs: dict[Size, int]

    def tokens(self, size):
        if size == Size(1, 1):
            raise UnservableImageError("too small")
        cost = self.costs.get(size, 1000)
        return ImageTokens(cost, 0, cost, size)

    def shapes(self, _size, /):
        return [*self.costs, Size(1, 1)]


def test_the_one_that_shows_most_is_taken_of_those_that_fit():
    family = Listed({Size(50, 50): 10, Size(80, 20): 10, Size(70, 70): 30})
    assert family.shrink(Size(100, 100), 10) == Size(50, 50)
    assert family.shrink(Size(100, 100), 30) == Size(70, 70)
    assert family.shrink(Size(100, 100), 9) is None


def test_no_image_is_enlarged_for_being_cheaper_then():
    assert Listed({Size(200, 50): 1, Size(50, 200): 1}).shrink(Size(100, 100), 10) is None


def test_what_the_model_refuses_is_no_candidate():
    assert Listed({}).shrink(Size(100, 100), 10) is None
    assert Listed({}).shrink(Size(100, 100), 1000) == Size(100, 100)


def test_an_image_that_the_model_refuses_may_become_one_that_it_takes():
    @dataclass(frozen=True, slots=True)
    class Square(Fitted):
        def tokens(self, size):
            if size.width != size.height:
                raise UnservableImageError("no square")
            return ImageTokens(size.width, 0, size.width, size)

        def shapes(self, size, /):
            return [Size(side, side) for side in range(1, size.width)]

    assert Square().shrink(Size(100, 90), 64) == Size(64, 64)


@dataclass(frozen=True, slots=True)
class Units(Fitted):
    """A token for each 10 x 10 pixels, and at least nine of them: smaller images are enlarged."""

    step: int = 10

    def tokens(self, size):
        columns, rows = (max(3, round(side / 10)) for side in (size.width, size.height))
        return ImageTokens(columns * rows, 0, columns * rows, Size(columns * 10, rows * 10))


@pytest.mark.parametrize(
    ("size", "budget", "target"),
    [
        (Size(100, 100), 64, Size(80, 80)),
        (Size(100, 50), 32, Size(80, 40)),
        (Size(50, 100), 32, Size(40, 80)),
        (Size(100, 100), 8, None),  # it would be enlarged again
        (Size(100, 100), 9, Size(30, 30)),
    ],
)
def test_whole_units_cover_the_images_shape(size, budget, target):
    assert Units().shrink(size, budget) == target


def test_of_the_images_own_shape_in_a_canvas():
    assert inside(Size(4000, 3000), Size(672, 672)) == Size(672, 504)
    assert inside(Size(3000, 4000), Size(672, 672)) == Size(504, 672)
    assert inside(Size(4000, 1), Size(672, 672)) == Size(672, 1)
    assert inside(Size(10, 10), Size(20, 30)) == Size(20, 20)


def test_of_a_grids_shape_within_the_image():
    assert stretched(Size(4000, 3000), (2, 1), 448) == Size(896, 448)
    assert stretched(Size(400, 300), (2, 1), 448) == Size(400, 200)
    assert stretched(Size(400, 1), (1, 2), 448) is None


def test_only_what_is_smaller_in_both_directions_may_be_handed_over_smaller():
    assert is_capped(Size(100, 100), Size(50, 100))
    assert not is_capped(Size(100, 100), Size(50, 200))
    assert not is_capped(Size(100, 100), Size(100, 100))
