"""Levels of service in the settings."""

from math import inf

import pytest

from gateway.domain.priority import Priority
from gateway.settings.slo import LevelSettings, SloSettings, levels_of
from gateway.settings_sources import load
from tests.support.settings_mistakes import mistakes


def test_what_is_left_out_is_the_next_wider_levels():
    text = "slo: {first_token_seconds: 4, total_seconds: 60, classes: {interactive: {first_token_seconds: 1}}}"
    slo = load(file_text=text).settings.slo
    lab = LevelSettings(total_seconds=20)
    critical, interactive, default, batch = levels_of(slo, lab)
    assert critical == default == batch == (4.0, 20.0)
    assert interactive == (1.0, 20.0)
    assert levels_of(slo)[Priority.BATCH] == (4.0, 60.0)
    assert set(levels_of(SloSettings())) == {(inf, inf)}


def wrong_order(first, total, of_whom=""):
    due = f"the first token is due after {first} s and the whole answer after {total} s"
    return f"(file g.yaml): {of_whom}{due}; the first cannot come later"


def test_a_first_token_after_the_end_is_named_with_all_other_mistakes():
    lines = mistakes(
        file_text="""
        slo:
          first_token_seconds: 5
          total_seconds: 4
          total: 3
          classes: {interactive: {first_token_seconds: 0.5}, batch: {total_seconds: 2}, lazy: {}}
        tenants:
          - {name: default, weight: 0, slo: {first_token_seconds: 9, total_seconds: 8}}
        """,
        file_name="g.yaml",
    )
    assert lines == [
        f"slo.first_token_seconds {wrong_order(5, 4)}",
        f"slo.classes.batch {wrong_order(5, 2)}",
        "slo.classes.lazy (file g.yaml): there is no such setting",
        "slo.total (file g.yaml): there is no such setting",
        f"tenants.0.slo {wrong_order(9, 8, 'of critical requests ')}",
        "tenants.0.weight (file g.yaml): Input should be greater than or equal to 0.001",
    ]


def test_a_tenants_level_may_contradict_what_it_leaves_to_all():
    (line,) = mistakes(
        file_text="tenants: [{name: default, slo: {first_token_seconds: 9}}]", flags={"slo.total_seconds": "8"}
    )
    assert line.startswith("tenants.0.slo (file ): of critical requests the first token is due after 9 s")


@pytest.mark.parametrize("value", ["4", "{classes: 4}", "{classes: {batch: 4}}", "{total_seconds: soon}"])
def test_what_cannot_be_read_contradicts_nothing(value):
    (line,) = mistakes(file_text=f"slo: {value}")
    assert line.startswith("slo")


def test_only_seconds_above_zero():
    assert len(mistakes(file_text="slo: {first_token_seconds: 0, total_seconds: -1}")) == 2
