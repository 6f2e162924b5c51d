import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.overload.intervals import bootstrap, jain, quantile, wilson


def test_quantiles_are_values_that_were_seen():
    assert quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert quantile([float(value) for value in range(100)], 0.99) == 99.0
    assert quantile([], 0.5) is None


def test_jains_index_is_one_for_equals_and_one_nth_for_one_who_has_all():
    assert jain([0.3, 0.3, 0.3]) == pytest.approx(1.0)
    assert jain([1.0, 0.0, 0.0, 0.0]) == pytest.approx(0.25)
    assert jain([0.0, 0.0]) is None


def test_wilson_is_the_textbook_interval():
    low, high = wilson(8, 10)
    assert (low, high) == pytest.approx((0.4902, 0.9433), abs=1e-4)
    assert wilson(0, 0) == (0.0, 1.0)
    assert wilson(10, 10)[1] == pytest.approx(1.0)
    assert wilson(0, 10)[0] == 0.0


@given(total=st.integers(1, 10_000), data=st.data())
def test_wilson_holds_the_share_it_is_of(total, data):
    successes = data.draw(st.integers(0, total))
    low, high = wilson(successes, total)
    assert 0.0 <= low <= successes / total + 1e-9
    assert successes / total - 1e-9 <= high <= 1.0


def test_the_bootstrap_follows_the_spread_of_the_blocks_and_the_seed():
    calm, wild = [10.0] * 30, [0.0, 20.0] * 15
    assert bootstrap(calm, sum, 1) == (300.0, 300.0)
    low, high = bootstrap(wild, sum, 1)
    assert low < 260
    assert high > 340
    assert bootstrap(wild, sum, 1) == (low, high)


def test_one_block_or_no_value_has_no_interval():
    assert bootstrap([1.0], sum, 1) is None
    assert bootstrap([[], []], lambda drawn: quantile([value for block in drawn for value in block], 0.5), 1) is None
