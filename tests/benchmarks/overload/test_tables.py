from io import StringIO

from rich.console import Console

from benchmarks.overload import judge, tables
from benchmarks.overload.scenarios import LOADS, cells_of
from benchmarks.overload.traffic import Habits, Stream, endless
from benchmarks.overload.upstream import MIXED
from benchmarks.overload.visit import Record, Slo, Visit

(CELL,) = cells_of(["loads"], LOADS[1:2])
REQUEST = next(endless(1, Stream("any", 1.0, ("polite0",), Habits(kind="text"))))


def printed(table):
    console = Console(file=StringIO(), width=300)
    console.print(table)
    return console.file.getvalue()


def figures(**record):
    visit = Visit(REQUEST, 3.0)
    visit.begin_attempt(3.0)
    visit.refuse("429 queue_full", 3.002, {})
    return judge.figures([Record([visit], 20.0, **record)], judge.Bar(Slo(4.0, 15.0), 20.0, MIXED, 1.0), seed=1)


def test_a_row_tells_its_errors_and_a_row_that_says_nothing_is_marked():
    table = printed(tables.cell_table(CELL, {"calm": figures(), "busy": figures(arm_cpu=0.95)}))
    calm, busy = (next(line for line in table.splitlines() if name in line) for name in ("calm", "busy"))
    assert "1 429 queue_full" in calm
    assert "busy !" in busy
    assert "bound by proxy CPU" in busy
    assert "first token 4 s, all 15 s" in table


def test_what_the_polite_keep_stands_with_its_interval():
    results = {"polite alone": {"x": figures()}, "greedy": {"x": figures()}}
    for row in results["polite alone"].values():
        row["tenants"]["polite0"]["in_slo"] = 1
    judge.compare(results)
    assert "polite kept 0 % (0-79.3, Wilson)" in printed(tables.cell_table(CELL, results["greedy"]))


def test_targets_that_the_machine_bounded_are_not_judged():
    assert tables.target_table({}) is None
    table = printed(tables.target_table({"load 3x": {"gateway": figures(load_cpu=0.9)}}))
    assert "O1 load 3x" in table
    assert "says nothing: load CPU" in table
