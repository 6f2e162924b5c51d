from io import StringIO

import pytest
from rich.console import Console

from benchmarks import report
from benchmarks.goals import GOALS, Goal
from benchmarks.peers import PEERS
from benchmarks.scenarios import MIB, SCENARIOS, derive


def loaded(*, done=100, cpu_seconds=0.5, seconds=2.0, p50_us=1000.0, **more):
    return {
        "done": done,
        "events": 0,
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "p50_us": p50_us,
        "codes": {"200": done},
        "errors": 0,
        "broken_streams": 0,
        "cut_uploads": 0,
        **more,
    }


def printed(table):
    console = Console(file=StringIO(), width=200)
    console.print(table)
    return console.file.getvalue()


def test_figures_are_per_cpu_second_and_per_second():
    figures = derive(loaded(done=100, cpu_seconds=0.5, seconds=2.0), body_bytes=2 * MIB)
    assert figures["requests_per_cpu_second"] == 200
    assert figures["cpu_us_per_request"] == 5000
    assert figures["requests_per_second"] == 50
    assert figures["core_use"] == 0.25
    assert figures["mb_per_cpu_second"] == 400


def test_without_a_process_there_are_no_cpu_figures():
    figures = derive(loaded(cpu_seconds=0.0), body_bytes=1)
    assert figures["requests_per_cpu_second"] is None
    assert figures["core_use"] is None
    assert figures["requests_per_second"] == 50


def test_rounds_become_medians_and_codes_add_up():
    rounds = [derive(loaded(done=done, p50_us=p50), 1) for done, p50 in ((10, 900.0), (30, 700.0), (20, 800.0))]
    rounds[1]["codes"] = {"200": 29, "429": 1}
    rounds[1]["errors"] = 2
    figures = report.medians(rounds)
    assert (figures["done"], figures["p50_us"], figures["best_p50_us"]) == (20, 800.0, 700.0)
    assert figures["codes"] == {"200": 59, "429": 1}
    assert report.notes(figures) == "429: 1, errors: 2"


def test_what_a_peer_adds_is_counted_from_direct():
    rows = report.summary(
        {"direct": [derive(loaded(p50_us=200.0), 1)], "x": [derive(loaded(p50_us=900.0), 1)], "y": []}
    )
    assert rows["x"]["added_p50_us"] == 700
    assert "y" not in rows


def test_tables_rank_rows_and_divide_the_subject_by_each():
    rounds = {
        "slow": [derive(loaded(done=10), 1), derive(loaded(done=10), 1)],
        "ours": [derive(loaded(done=40), 1), derive(loaded(done=80), 1)],
    }
    rows = report.summary(rounds)
    table = printed(report.scenario_table(SCENARIOS["text"], rounds, rows))
    assert table.index("ours") < table.index("slow")
    assert "66.7" in table  # spread of 80 and 160 around 120
    ratios = printed(report.ratio_table("ours", {"text": rows}))
    assert "text: req per CPU-s" in ratios
    assert " 6 " in ratios


@pytest.mark.parametrize(
    ("goal", "measured", "verdict"),
    [
        (Goal("text", "f", "peer", floor=2, target=4), 5, "target"),
        (Goal("text", "f", "peer", floor=2, target=4), 2, "floor"),
        (Goal("text", "f", "peer", floor=2, target=4), 1.9, "below"),
        (Goal("text", "f", "peer", floor=2, target=1, less_is_better=True), 1, "target"),
        (Goal("text", "f", "peer", floor=2, target=1, less_is_better=True), 2.1, "below"),
    ],
)
def test_a_ratio_is_held_against_floor_and_target(goal, measured, verdict):
    assert goal.verdict(measured) == verdict


def test_a_goal_divides_by_a_peer_or_by_another_scenario_or_stands_alone():
    results = {"a": {"gateway": {"f": 6.0}, "peer": {"f": 2.0}}, "b": {"gateway": {"f": 12.0}}}
    assert Goal("a", "f", "peer", 1, 1).reached(results) == 3
    assert Goal("a", "f", "gateway", 1, 1, peer_scenario="b").reached(results) == 0.5
    assert Goal("a", "f", None, 1, 1).reached(results) == 6
    assert Goal("b", "f", "peer", 1, 1).reached(results) is None


def test_every_goal_names_scenarios_peers_and_figures_that_exist():
    for goal in GOALS:
        assert goal.figure in {column.key for column in SCENARIOS[goal.scenario].columns}
        assert {goal.subject, goal.peer or "direct"} <= set(PEERS)
        assert goal.peer_scenario is None or goal.peer_scenario in SCENARIOS


def test_goals_are_shown_once_both_rows_are_measured():
    assert report.goal_table({}) is None
    results = {"text": {"gateway": {"requests_per_cpu_second": 60.0}, "litellm": {"requests_per_cpu_second": 2.0}}}
    table = printed(report.goal_table(results))
    assert "litellm" in table
    assert "floor" in table.splitlines()[-2]


def test_a_list_of_targets_has_names_and_may_doubt_its_figures():
    goals = [
        Goal("a", "f", None, 1, 2, subject="gateway", name="O1"),
        Goal("a", "g", None, 1, 2, subject="gateway", name="O2"),
        Goal("b", "f", None, 1, 2, subject="gateway", name="O3"),
    ]
    results = {"a": {"gateway": {"f": 2.0, "g": 2.0}}}
    doubts = {"O2": "says nothing: proxy CPU"}
    table = printed(report.goal_table(results, goals, lambda goal: doubts.get(goal.name, "")))
    first, second = (next(line for line in table.splitlines() if name in line) for name in ("O1 a", "O2 a"))
    assert "target" in first
    assert "says nothing: proxy CPU" in second
    assert "O3" not in table
