"""The ladder in a replayed day."""

import pytest

from gateway.domain.outcome import Fate, Reason
from tests.support.log_lines import line, picture, shown

AT_A_TENTH = {"enter": 0.1, "leave": 0.05}
TEN_PLACES = {"sequences": 10}
SHRINK = {"shrink": AT_A_TENTH | {"preset": "thumbnail"}}
PHOTO, OTHER = (picture(1400, 1400, digest) for digest in ("photo", "other"))


def shrunk(ended):
    return {arrived: each.shrunk_images for arrived, each in ended.items()}


def test_new_pictures_are_shrunk_under_pressure_and_so_they_are_in_later_turns(replay):
    lines = [
        line(0.0, **shown(PHOTO)),
        line(0.5, **shown(OTHER)),
        line(100.0, **shown(OTHER, PHOTO, picture(1400, 1400, None))),
        line(100.5, **shown(PHOTO, OTHER, new=1)),
    ]
    ended = replay(lines, budget=TEN_PLACES, pressure=SHRINK)
    assert shrunk(ended) == {0.0: 0, 0.5: 1, 100.0: 1, 100.5: 1}
    assert set(shrunk(replay(lines, budget=TEN_PLACES)).values()) == {0}


def test_rungs_that_come_and_go_in_a_replayed_day_are_no_affair_of_the_log(replay, caplog):
    replay([line(0.0), line(0.5)], budget=TEN_PLACES, pressure={"max_tokens": AT_A_TENTH})
    assert not caplog.records


def test_who_wants_his_pictures_as_they_are_gets_them_so(replay):
    lines = [line(0.0), line(0.5, asked_resize="off", **shown(PHOTO))]
    assert shrunk(replay(lines, budget=TEN_PLACES, pressure=SHRINK))[0.5] == 0


def test_conversations_that_begin_under_pressure_keep_fewer_pictures(replay):
    lines = [
        line(0.0, **shown(PHOTO)),
        line(0.5, **shown(OTHER)),
        line(100.0, **shown(PHOTO, OTHER)),
        line(200.0, **shown(OTHER, PHOTO)),
    ]
    settings = {"history": {"grid": 1}, "pressure": {"history": AT_A_TENTH | {"keep": 1}}}
    ended = replay(lines, budget=TEN_PLACES, **settings)
    assert {arrived: each.trimmed_images for arrived, each in ended.items()} == {0.0: 0, 0.5: 0, 100.0: 0, 200.0: 1}


def test_shorter_answers_free_their_place_sooner(replay):
    lines = [line(0.0), line(0.5, actual_output_tokens=60, total_ms=6000.0), line(0.6)]
    whole, capped = (
        replay(lines, budget={"sequences": 1}, **ladder)[0.6].wait_seconds
        for ladder in ({}, {"pressure": {"max_tokens": {"enter": 1.0, "leave": 0.5, "tokens": 6}}})
    )
    assert capped < whole / 2


@pytest.mark.parametrize(
    ("rung", "reason"), [({"shed": AT_A_TENTH}, Reason.SHED_PRIORITY), ({"refuse": AT_A_TENTH}, Reason.QUEUE_FULL)]
)
def test_who_is_refused_is_told_apart(replay, rung, reason):
    ended = replay([line(0.0), line(0.5, asked_priority="batch")], budget=TEN_PLACES, pressure=rung)
    assert (ended[0.5].fate, ended[0.5].reason) == (Fate.REFUSED, reason)
