import pytest

from benchmarks.overload.arms import ARMS
from benchmarks.overload.run import Options, estimate_seconds
from benchmarks.overload.scenarios import LOADS, SCENARIOS, cells_of, quickened
from benchmarks.overload.targets import GOALS
from benchmarks.overload.upstream import MIXED

CELLS = {cell.name: cell for cell in cells_of(list(SCENARIOS), LOADS)}


def test_every_target_names_a_cell_and_an_arm_that_exist():
    for goal in GOALS:
        assert goal.scenario in CELLS
        assert {goal.subject, goal.peer or goal.subject} <= set(ARMS)


def test_cells_of_one_server_stand_together():
    sizes = [cell.size for cell in CELLS.values()]
    assert len({sizes[place] for place in range(len(sizes)) if not place or sizes[place] != sizes[place - 1]}) == len(
        [place for place in range(len(sizes)) if not place or sizes[place] != sizes[place - 1]]
    )


@pytest.mark.parametrize(
    ("name", "seconds"),
    [("load 0.7x", 2000 / 21), ("load 5x", 2000 / 30), ("polite alone", 2000 / 30), ("refuse", 2000 / 30)],
)
def test_a_cell_lasts_until_its_answers_are_there(name, seconds):
    assert CELLS[name].seconds(2_000, 30.0) == pytest.approx(seconds)


def test_the_greedy_tenant_sends_a_hundred_times_as_much_as_a_polite_one():
    polite, greedy = CELLS["greedy"].streams
    assert greedy.load / (polite.load / len(polite.tenants)) == pytest.approx(100)


def test_the_estimate_grows_with_what_is_asked_for():
    few = [CELLS["load 3x"]]
    one = estimate_seconds(Options(), [ARMS["direct"]], few)
    assert one < estimate_seconds(Options(), [ARMS["direct"], ARMS["native"]], few)
    assert one < estimate_seconds(Options(answers=4_000), [ARMS["direct"]], few)


def test_the_ladder_is_for_two_arms_and_its_arm_for_nothing_else():
    for cell in CELLS.values():
        suited = {name for name, arm in ARMS.items() if cell.suits(arm)}
        is_ladder = cell.name == "pictures"
        assert suited == ({"gateway", "gateway-ladder"} if is_ladder else set(ARMS) - {"gateway-ladder"})


def test_the_quick_form_is_the_same_traffic_before_a_small_server():
    cell = quickened(CELLS["flood"])
    assert cell.streams == CELLS["flood"].streams
    assert cell.size.seats < MIXED.seats
    assert cell.patience_seconds < CELLS["flood"].patience_seconds
