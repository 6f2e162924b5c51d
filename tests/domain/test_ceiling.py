"""The ceiling that follows the server: its three causes, its bounds, and a simulated engine under it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.ceiling import BackPressure, Ceiling, ForeignLoad, Look, PressureShare
from tests.support.pressed_engine import simulate

STATIC = 950
QUIET = Look(running=10, waiting=0, fill=0.5, held_sequences=10, preemptions=0, kv_usage=0.5)


def after(*looks: Look) -> Ceiling:
    ceiling = Ceiling()
    for look in looks:
        ceiling.look(look)
    return ceiling


def blocks(ceiling: Ceiling) -> int:
    return ceiling.kv_blocks(STATIC, STATIC)


def preempted(times: int, *, fill: float = 0.95) -> Look:
    return QUIET._replace(preemptions=times, fill=fill)


CROWDED = QUIET._replace(waiting=3, kv_usage=0.97, fill=0.95, held_sequences=13)


class TestPressure:
    def test_without_any_the_budget_is_static(self):
        assert blocks(Ceiling()) == blocks(after(QUIET, QUIET)) == STATIC

    def test_preemptions_lower_by_a_tenth_and_quiet_looks_raise_by_a_hundredth(self):
        ceiling = after(QUIET, preempted(2))
        assert (blocks(ceiling), ceiling.is_pressed) == (STATIC * 90 // 100, True)
        ceiling.look(preempted(2))
        assert blocks(ceiling) == int(0.91 * STATIC)

    def test_preemptions_before_the_first_look_are_nobodys(self):
        assert not after(preempted(500)).is_pressed

    def test_counters_that_fell_or_are_not_told_are_no_pressure(self):
        assert not after(preempted(5), preempted(0), QUIET._replace(preemptions=None), preempted(9)).is_pressed

    def test_one_overload_is_punished_once_until_what_is_held_has_come_down(self):
        ceiling = after(QUIET, preempted(1), *(preempted(n, fill=1.1) for n in range(2, 10)))
        assert blocks(ceiling) == int(0.90 * STATIC)
        ceiling.look(preempted(10, fill=1.0))
        assert blocks(ceiling) == int(0.81 * STATIC)

    def test_what_a_preemption_makes_preempt_in_the_next_two_looks_is_the_same_overload(self):
        ceiling, seen = after(QUIET), []
        for times in range(1, 8):
            ceiling.look(preempted(times, fill=1.0))
            seen.append(blocks(ceiling))
        assert seen == [int(share * STATIC) for share in (0.9, 0.9, 0.9, 0.81, 0.81, 0.81, 0.72)]

    def test_requests_that_stand_waiting_before_a_full_pool(self):
        assert not after(CROWDED).is_pressed
        assert after(CROWDED, CROWDED).is_pressed

    @pytest.mark.parametrize(
        "look",
        [
            CROWDED._replace(kv_usage=0.6),  # they wait for seats, or for the next step
            CROWDED._replace(kv_usage=None),
            CROWDED._replace(fill=0.3),  # this gateway is not the one that fills it
            CROWDED._replace(waiting=0),
        ],
    )
    def test_other_waiting_is_no_pressure(self, look):
        assert not after(*[look] * 5).is_pressed

    @given(st.lists(st.tuples(st.booleans(), st.floats(0, 2)), max_size=80))
    def test_its_floor_and_its_way_back(self, story):
        share = PressureShare()
        for is_pressed, fill in story:
            share.observe(is_pressed=is_pressed, fill=fill)
            assert PressureShare.LEAST <= share.share <= 1.0
        for _ in range(PressureShare.QUIET_LOOKS_TO_RECOVER):
            share.observe(is_pressed=False, fill=1.0)
        assert share.share == 1.0

    def test_endless_pressure_ends_at_the_floor(self):
        share = PressureShare()
        for _ in range(30):
            share.observe(is_pressed=True, fill=0.9)
        assert share.share == PressureShare.LEAST

    def test_it_is_on_sequences_where_the_pool_is_not_known(self):
        ceiling = after(QUIET, preempted(2))
        assert ceiling.sequences(100, None, is_kv_known=False) == 90
        assert ceiling.sequences(100, None, is_kv_known=True) == 100


class TestForeignLoad:
    def test_what_stands_for_three_looks_counts_and_goes_as_slowly(self):
        load, seen = ForeignLoad(), []
        for reported in (40, 40, 40, 8, 8, 8, 8):
            load.observe(reported, held=8)
            seen.append(load.amount)
        assert seen == [0, 0, 31, 31, 31, 0, 0]

    def test_our_own_growth_is_not_others_load(self):
        load = ForeignLoad()
        for held in (0, 10, 40, 90, 128, 128, 60, 10, 0):  # the engine still shows what was held at the look before
            load.observe(held, held=held)
            assert load.amount == 0
        for reported, held in ((128, 60), (60, 10), (10, 0), (0, 0)):
            load.observe(reported, held)
            assert load.amount == 0

    @given(st.integers(8, 200), st.lists(st.floats(-0.12, 0.12), min_size=3, max_size=50))
    def test_an_eighth_is_fluctuation(self, held, noises):
        load = ForeignLoad()
        for noise in noises:
            load.observe(int(held * (1 + noise)), held)
        assert load.amount == 0

    def test_a_swing_of_ours_does_not_swing_the_ceiling(self):
        load, seen = ForeignLoad(), []
        for _ in range(10):
            for reported, held in ((140, 80), (128, 92), (132, 88)):
                load.observe(reported, held)
                seen.append(load.amount)
        assert len(set(seen[4:])) == 1

    def test_requests_and_blocks_of_others_are_taken_off(self):
        ceiling = after(*[Look(running=50, waiting=10, held_sequences=20, used_blocks=500, held_blocks=200)] * 3)
        assert (ceiling.foreign_requests, ceiling.foreign_blocks) == (38, 275)
        assert ceiling.sequences(128, 128, is_kv_known=True) == 90
        assert blocks(ceiling) == STATIC - 275
        assert not ceiling.is_pressed

    def test_an_operators_share_is_not_what_others_take(self):
        ceiling = after(*[Look(running=60, waiting=0, used_blocks=500)] * 3)
        assert ceiling.sequences(64, None, is_kv_known=True) == 64
        assert ceiling.kv_blocks(400, STATIC) == 400
        assert ceiling.kv_blocks(600, STATIC) == STATIC - 500


class TestShadow:
    def test_what_was_sent_without_a_place_is_no_load_of_others(self):
        """Forty run, of which eight have a place."""
        seen = Look(running=40, waiting=0, held_sequences=8, used_blocks=400, held_blocks=80)
        others, ours = after(seen, seen, seen), after(*[seen.beside(32, 320)] * 3)
        assert (others.foreign_requests, others.foreign_blocks) == (31, 310)
        assert (ours.foreign_requests, ours.foreign_blocks) == (0, 0)

    def test_its_preemptions_do_not_lower_what_the_others_get(self):
        looks = [CROWDED._replace(preemptions=times) for times in range(6)]
        assert blocks(after(*looks)) < STATIC
        assert blocks(after(*(look.beside(30, 0) for look in looks))) == STATIC


class TestStart:
    def test_a_quarter_then_twice_as_much_with_each_quiet_look(self):
        ceiling, seen = after(QUIET), []
        ceiling.started()
        for look in (QUIET, QUIET, QUIET):
            seen.append((ceiling.sequences(128, 128, is_kv_known=True), ceiling.is_starting))
            ceiling.look(look)
        assert seen == [(32, True), (64, True), (128, False)]
        assert blocks(ceiling) == STATIC

    def test_pressure_stops_the_rise(self):
        ceiling = Ceiling()
        ceiling.started()
        ceiling.look(QUIET)
        ceiling.look(preempted(3))
        assert blocks(ceiling) == STATIC // 2
        assert ceiling.is_starting

    def test_a_start_forgets_what_was_before(self):
        ceiling = after(QUIET, preempted(1))
        ceiling.started()
        assert not ceiling.is_pressed


class TestStaleNumbers:
    def test_they_count_until_three_looks_missed(self):
        ceiling = after(QUIET, preempted(9))
        ceiling.missed()
        ceiling.missed()
        assert (blocks(ceiling), ceiling.is_stale) == (int(0.9 * STATIC), False)
        ceiling.missed()
        assert (blocks(ceiling), ceiling.is_stale) == (STATIC, True)

    def test_what_happened_unseen_is_no_pressure(self):
        ceiling = after(QUIET)
        for _ in range(3):
            ceiling.missed()
        ceiling.look(preempted(100))
        assert (ceiling.is_stale, ceiling.is_pressed) == (False, False)


COUNTS = st.integers(0, 300)
LOOKS = st.builds(
    Look,
    running=COUNTS,
    waiting=COUNTS,
    fill=st.floats(0, 3),
    held_sequences=COUNTS,
    preemptions=st.none() | COUNTS,
    kv_usage=st.none() | st.floats(0, 1),
    used_blocks=st.integers(0, 2000),
    held_blocks=st.integers(0, 2000),
)


@given(st.lists(LOOKS | st.sampled_from(["missed", "started"])), st.integers(1, 1000), st.integers(0, 1000))
def test_never_above_the_static_budget_and_never_below_a_quarter(story, static, more):
    ceiling = Ceiling()
    for each in story:
        if isinstance(each, Look):
            ceiling.look(each)
        elif each == "missed":
            ceiling.missed()
        else:
            ceiling.started()
        for allowed in (
            ceiling.kv_blocks(static, static + more),
            ceiling.sequences(static, static + more, is_kv_known=True),
            ceiling.sequences(static, None, is_kv_known=False),
        ):
            assert max(1, static // 4) <= allowed <= static


@given(st.lists(LOOKS | st.sampled_from(["missed", "started"])), st.integers(1, 1000))
def test_after_fifty_quiet_looks_alone_the_budget_is_whole(story, static):
    ceiling = Ceiling()
    for each in story:
        if isinstance(each, Look):
            ceiling.look(each)
        elif each == "missed":
            ceiling.missed()
        else:
            ceiling.started()
    ceiling.look(QUIET._replace(preemptions=None))
    for _ in range(PressureShare.QUIET_LOOKS_TO_RECOVER):
        ceiling.look(QUIET)
    assert ceiling.kv_blocks(static, static) == ceiling.sequences(static, static, is_kv_known=False) == static


class TestBackPressure:
    def test_a_second_then_twice_as_long_up_to_eight(self):
        pauses, now, back_pressure = [], 100.0, BackPressure()
        for _ in range(6):
            until = back_pressure.pushed_back(now)
            pauses.append(until - now)
            now = until
        assert pauses == [1, 2, 4, 8, 8, 8]

    def test_all_that_come_during_a_pause_belong_to_it(self):
        back_pressure = BackPressure()
        assert {back_pressure.pushed_back(5.0 + n / 100) for n in range(90)} == {6.0}

    def test_after_a_quiet_time_it_begins_anew(self):
        back_pressure = BackPressure()
        back_pressure.pushed_back(0.0)
        assert back_pressure.pushed_back(1.0) == 3.0
        assert back_pressure.pushed_back(11.0) == 12.0

    def test_the_engines_own_word_counts_up_to_half_a_minute(self):
        back_pressure = BackPressure()
        assert back_pressure.pushed_back(0.0, 3.0) == 3.0
        assert back_pressure.pushed_back(1.0, 1.0) == 3.0
        assert back_pressure.pushed_back(1.0, 5.0) == 6.0
        assert back_pressure.pushed_back(6.0, 3600.0) == 36.0


class TestAgainstASimulatedEngine:
    """Seconds of `tests/support/pressed_engine.py`; the first half is for settling."""

    def test_answers_far_above_their_reservation_preempt_less(self):
        without, with_it = (simulate(120, follows=follows, longest_answer=800) for follows in (False, True))
        assert _sum(with_it, "preemptions") < 0.7 * _sum(without, "preemptions")
        assert _sum(with_it[60:], "finished") > 0.93 * _sum(without[60:], "finished")

    def test_beside_others_nearly_nothing_is_thrown_away_and_more_gets_done(self):
        without, with_it = (simulate(120, follows=follows, longest_answer=120, others=8) for follows in (False, True))
        assert _sum(with_it[60:], "preemptions") < 0.1 * _sum(without[60:], "preemptions")
        assert _sum(with_it, "finished") >= _sum(without, "finished")

    @pytest.mark.parametrize("load", [{"longest_answer": 120}, {"longest_answer": 800}, {"others": 8}])
    def test_under_a_steady_load_it_stays_within_two_steps_down(self, load):
        ratios = [second.ratio for second in simulate(120, follows=True, **load)[60:]]
        assert max(ratios) - min(ratios) <= 0.2

    def test_alone_and_within_its_reservations_it_never_gives_anything_away(self):
        story = simulate(60, follows=True, longest_answer=60)
        assert {(second.ratio, second.foreign_requests, second.preemptions) for second in story} == {(1.0, 0, 0)}


def _sum(story, name):
    return sum(getattr(second, name) for second in story)
