"""The pressure on an engine, and the rungs that it brings into force."""

from dataclasses import dataclass
from math import e

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.holdings import HoldingsStatistics
from gateway.domain.outcome import BUDGET_REASON, Reason
from gateway.domain.pressure import (
    CALM_SECONDS,
    UNMET_SECONDS,
    Band,
    Ladder,
    Pressure,
    Rung,
    Unmet,
    closed_error,
    pressure_on_images,
    pressure_on_texts,
    share_to_leave,
    shed_error,
)
from gateway.domain.priority import Priority
from gateway.domain.promise import NO_PROMISE, RetryAdvice
from gateway.domain.quantities import Amounts, Resource
from gateway.wire.errors import retry_headers

CAPACITY = (100, 10, 4_000, 40_000_000)
NOTHING = Amounts()


def held(*amounts, capacity=CAPACITY) -> HoldingsStatistics:
    """Of the first four resources; what else there is, is not enforced."""
    others = len(Resource) - len(capacity)
    return HoldingsStatistics((*capacity, *[None] * others), (*amounts, *[0] * others))


def test_an_idle_engine_is_under_no_pressure():
    idle = held(0, 0, 0, 0)
    assert pressure_on_images(idle, NOTHING, NOTHING).ratio == 0.0
    assert pressure_on_texts(idle, NOTHING).ratio == 0.0


def test_the_resource_that_is_short_of_most_tells():
    full = held(60, 10, 400, 0)
    assert pressure_on_images(full, NOTHING, NOTHING) == Pressure(1.0, Resource.SEQUENCES)
    assert pressure_on_images(full, NOTHING, Amounts(90, 5)) == Pressure(1.5, Resource.SEQUENCES)
    assert pressure_on_images(full, NOTHING, Amounts(140, 5)) == Pressure(2.0, Resource.KV_BLOCKS)


def test_texts_and_images_that_wait_are_in_the_way_of_images():
    full = held(100, 4, 0, 0)
    assert pressure_on_images(full, Amounts(30, 1), Amounts(70, 1)) == Pressure(2.0, Resource.KV_BLOCKS)


def test_a_wall_of_pictures_is_no_pressure_on_texts():
    walled = held(20, 3, 4_000, 40_000_000)
    pictures = Amounts(300, 30, 12_000, 360_000_000)
    assert pressure_on_images(walled, NOTHING, pictures) == Pressure(10.0, Resource.PREPROCESS_PIXELS)
    assert pressure_on_texts(walled, NOTHING) == Pressure(0.3, Resource.SEQUENCES)


def test_what_is_held_beyond_the_capacity_is_nobodys_wish_to_get_in():
    assert pressure_on_images(held(130, 1, 0, 50_000_000), NOTHING, NOTHING).ratio == 1.0


def test_a_resource_without_a_capacity_presses_nobody():
    unknown = held(500, 5, 90, 0, capacity=(None, 10, None, None))
    assert pressure_on_images(unknown, NOTHING, Amounts(500, 2, 9, 9)) == Pressure(0.7, Resource.SEQUENCES)
    nothing_known = held(5, 5, 5, 5, capacity=(None,) * 4)
    assert pressure_on_texts(nothing_known, Amounts(9, 9)).ratio == 0.0
    assert pressure_on_images(held(0, 1, 0, 0, capacity=(0, 1, 0, 0)), NOTHING, Amounts(2)).ratio == 2.0


@given(
    st.tuples(*[st.none() | st.integers(0, 50)] * len(Resource)),
    st.tuples(*[st.integers(0, 99)] * len(Resource)),
    st.builds(Amounts, *[st.integers(0, 99)] * 2),
    st.builds(Amounts, *[st.integers(0, 99)] * len(Resource)),
)
def test_it_is_never_more_on_texts_than_on_images(capacity, amounts, texts, images):
    at = HoldingsStatistics(capacity, amounts)
    assert pressure_on_texts(at, texts).ratio <= pressure_on_images(at, texts, images).ratio


TWO = {Rung.SHRINK: Band(1.5, 1.0), Rung.SHED: Band(3.0, 2.0)}


def test_a_rung_comes_into_force_at_its_threshold_and_the_gentlest_first():
    ladder = Ladder(TWO)
    assert ladder.observe(1.49, 0.0) == set()
    assert ladder.observe(1.5, 1.0) == {Rung.SHRINK}
    assert ladder.observe(3.0, 2.0) == {Rung.SHRINK, Rung.SHED}
    assert ladder.in_force == {Rung.SHRINK, Rung.SHED}


def test_it_is_left_once_the_pressure_stayed_below_the_lower_threshold():
    ladder = Ladder(TWO)
    ladder.observe(3.0, 0.0)
    ladder.observe(2.0, 1.0)
    assert ladder.observe(1.99, 0.9 + CALM_SECONDS) == {Rung.SHRINK, Rung.SHED}
    assert ladder.observe(1.99, 1.0 + CALM_SECONDS) == {Rung.SHRINK}
    assert ladder.observe(0.0, 1.0 + 2 * CALM_SECONDS) == set()
    assert ladder.observe(1.2, 2.0 + 2 * CALM_SECONDS) == set()


def test_what_was_refused_brings_rungs_into_force_that_refuse_nobody():
    ladder = Ladder(TWO)
    assert ladder.observe(0.9, 0.0, unmet=9.0) == {Rung.SHRINK}
    assert ladder.observe(0.5, CALM_SECONDS, unmet=0.5) == {Rung.SHRINK}
    assert ladder.observe(0.5, 2 * CALM_SECONDS, unmet=0.4) == set()


def test_what_was_refused_fades_and_what_texts_wanted_is_in_the_way_of_images_too():
    unmet, capacity = Unmet(), held(*[0] * 4).capacity
    assert unmet.share(capacity, 0.0, on_images=True) == 0.0
    unmet.note(Amounts(50, 1), capacity, 10.0, has_images=False)
    unmet.note(Amounts(10, 1), capacity, 10.0, has_images=True)
    assert unmet.share(capacity, 10.0, on_images=True) == 0.6
    unmet.note(Amounts(0, 1, 0, 99_000_000, 500), capacity, 10.0, has_images=True)
    assert unmet.share(capacity, 10.0, on_images=False) == 0.5
    assert unmet.share(capacity, 10.0, on_images=True) == 1.0
    assert unmet.share(capacity, 10.0 + UNMET_SECONDS, on_images=True) == pytest.approx(1 / e)
    assert unmet.share([None] * len(Resource), 10.0, on_images=True) == 0.0


def test_what_texts_and_images_wanted_of_the_way_to_the_first_token_adds_up():
    unmet, capacity = Unmet(), [*[None] * 4, 2_000, 2_000]
    unmet.note(Amounts(1, 1).with_prefill(1_000), capacity, 0.0, has_images=False)
    unmet.note(Amounts(1, 1, 0, 500).with_prefill(1_000), capacity, 0.0, has_images=True)
    assert unmet.share(capacity, 0.0, on_images=True) == 1.0
    assert unmet.share(capacity, 0.0, on_images=False) == 0.5


def test_rungs_that_are_not_wanted_are_never_in_force():
    assert Ladder({}).observe(1000.0, 0.0) == set()


def test_bands_are_taken_in_the_order_of_the_rungs_however_they_are_written():
    turned = Ladder(dict(reversed(TWO.items())))
    assert turned.observe(2.0, 0.0) == {Rung.SHRINK}


@dataclass
class Seen:
    """A ladder under some history of pressures and of what was refused, a fraction of a second apart or many."""

    bands: dict[Rung, Band]
    looks: list[tuple[float, float, float]]


@st.composite
def histories(draw) -> Seen:
    rungs = sorted(draw(st.sets(st.sampled_from(Rung), min_size=1)), key=list(Rung).index)
    ratios = st.floats(0.1, 6.0)
    leaves = sorted(draw(st.lists(ratios, min_size=len(rungs), max_size=len(rungs))))
    enters: list[float] = []
    for leave in leaves:
        enters.append(max([leave + draw(st.floats(0.01, 2.0)), *enters[-1:]]))
    bands = {rung: Band(enter, leave) for rung, enter, leave in zip(rungs, enters, leaves, strict=True)}
    pauses = st.sampled_from([0.0, 0.3, 1.0, CALM_SECONDS, 60.0])
    looks = draw(st.lists(st.tuples(pauses, st.floats(0.0, 9.0), st.floats(0.0, 3.0)), min_size=1, max_size=40))
    return Seen(bands, looks)


@given(histories())
def test_no_rung_is_in_force_without_those_before_it(seen):
    ladder, now, order = Ladder(seen.bands), 0.0, list(seen.bands)
    for pause, ratio, unmet in seen.looks:
        now += pause
        in_force = ladder.observe(ratio, now, unmet)
        assert in_force == set(order[: len(in_force)])


@given(histories(), st.data())
def test_more_pressure_never_means_fewer_rungs(seen, data):
    more, less, now = Ladder(seen.bands), Ladder(seen.bands), 0.0
    for pause, ratio, unmet in seen.looks:
        now += pause
        lower = data.draw(st.floats(0.0, ratio))
        fewer = data.draw(st.floats(0.0, unmet))
        assert more.observe(ratio, now, unmet) >= less.observe(lower, now, fewer)


@given(histories(), st.data())
def test_inside_the_band_nothing_changes(seen, data):
    ladder, now = Ladder(seen.bands), 0.0
    for pause, ratio, unmet in seen.looks:
        now += pause
        ladder.observe(ratio, now, unmet)
    rung = data.draw(st.sampled_from(list(seen.bands)))
    band, was_in_force = seen.bands[rung], rung in ladder.in_force
    for _ in range(20):
        now += data.draw(st.sampled_from([0.0, 1.0, 3 * CALM_SECONDS]))
        inside = data.draw(st.floats(band.leave, band.enter, exclude_max=True))
        assert (rung in ladder.observe(inside, now)) == was_in_force


@given(histories())
def test_a_rung_comes_at_most_once_in_the_time_that_it_takes_to_leave_it(seen):
    ladder, now, came_at = Ladder(seen.bands), 0.0, {}
    before = frozenset()
    for pause, ratio, unmet in seen.looks:
        now += pause
        in_force = ladder.observe(ratio, now, unmet)
        for rung in in_force - before:
            assert now - came_at.get(rung, -CALM_SECONDS) >= CALM_SECONDS
            came_at[rung] = now
        before = in_force


@pytest.mark.parametrize("ratio", [0.0, 5.0])
def test_looking_again_changes_nothing(ratio):
    ladder = Ladder(TWO)
    ladder.observe(ratio, 0.0)
    assert ladder.observe(ratio, 0.0) is ladder.in_force


@pytest.mark.parametrize(
    ("ratio", "leave", "share"), [(3.0, 2.0, 0.5), (3.0, 1.0, 1.0), (3.0, 0.5, 1.0), (0.9, 0.5, 1.0)]
)
def test_so_many_of_the_waiters_have_to_leave_before_a_rung_is_left(ratio, leave, share):
    assert share_to_leave(ratio, leave) == share


def test_what_is_shed_is_told_why_and_promised_nothing():
    error = shed_error(Pressure(3.21, Resource.KV_BLOCKS), Band(3.0, 2.0), Priority.BATCH)
    assert (error.status, error.reason, error.short) == (429, Reason.SHED_PRIORITY, "kv_blocks")
    assert error.message == (
        "Requests of priority batch are turned away: what is held and waited for is 3.2 times all that the engine has "
        "(kv_blocks), and they are let in again once that stays below 2. Send it later, or let it be more urgent if it "
        "is."
    )
    assert dict(retry_headers(error, 0.0)) == {b"retry-after": b"60", b"x-should-retry": b"false"}


@pytest.mark.parametrize("resource", Resource)
def test_who_is_refused_because_all_are_is_told_what_is_short_and_when_a_place_is_expected(resource):
    error = closed_error(Pressure(4.0, resource), Band(4.0, 3.5), RetryAdvice(2.5, is_promise=True))
    assert (error.reason, error.short) == (BUDGET_REASON[resource], resource.label)
    assert "4.0 times all" in error.message
    assert "stays below 3.5. A place is expected in 2.5 s." in error.message
    assert (b"retry-after-ms", b"2500") in retry_headers(error, 0.0)


def test_where_none_is_expected_that_is_said():
    error = closed_error(Pressure(4.0, Resource.SEQUENCES), Band(4.0, 3.5), NO_PROMISE)
    assert error.message.endswith("No place is expected soon.")
    assert (b"x-should-retry", b"false") in retry_headers(error, 0.0)
