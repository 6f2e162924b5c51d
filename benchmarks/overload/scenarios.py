"""Which traffic meets which server, and by what level it is judged. Values only."""

from dataclasses import dataclass, replace

from benchmarks.overload.arms import OURS, SHRINKING, Arm
from benchmarks.overload.traffic import Habits, Stream
from benchmarks.overload.upstream import MIXED, QUICK, SLOW, SMALL_KV, ServerSize
from benchmarks.overload.visit import Slo

LOADS = (0.7, 3.0, 5.0)
TEAMS = tuple(f"team{number}" for number in range(5))
POLITE = tuple(f"polite{number}" for number in range(3))
POLITE_LOAD = 0.25  # of all three together
GREED = 100  # times one of the polite
ALONE_BELOW = 0.5
LEVEL = Slo(first_token_seconds=4.0, total_seconds=15.0)
MIX = Habits()
ONE_KIND = Habits(kind="medium", output_median=48, output_spread=0.0, retrying=0.0)
TEXT = Habits(kind="text")
PHOTOS = Habits(kind="12mp")
# Prompts small beside their answers, so what is held grows long after it was let in.
GROWING = Habits(kind="growing", images=((224, 224),), output_median=90, output_spread=0.0)


@dataclass(frozen=True, slots=True)
class Cell:
    """One row of the tables for each arm. Capacity is measured with `probe` on the same size of server.

    `arms` are the only ones that it is for, if it names any.
    """

    name: str
    what: str
    streams: tuple[Stream, ...]
    size: ServerSize = MIXED
    probe: Habits = MIX
    slo: Slo = LEVEL
    patience_seconds: float = 20.0
    arms: tuple[str, ...] = ()

    def suits(self, arm: Arm) -> bool:
        return arm.name in self.arms if self.arms else not arm.is_special

    @property
    def load(self) -> float:
        """Of all streams, as a share of the capacity."""
        return sum(stream.load for stream in self.streams)

    def seconds(self, answers: int, capacity_per_second: float) -> float:
        """How long it takes to see so many answers.

        What runs alone for comparison lasts as long as what it is compared with.
        """
        is_alone = self.load < ALONE_BELOW
        share = 1.0 if is_alone else min(1.0, self.load)
        return answers / (share * capacity_per_second)


def _loads(loads: tuple[float, ...]) -> list[Cell]:
    return [
        Cell(f"load {load:g}x", f"the mix at {load:g} times the capacity, five equal tenants", (_mixed(load),))
        for load in loads
    ]


def _mixed(load: float) -> Stream:
    return Stream("mix", load, TEAMS)


def _greedy(_: tuple[float, ...]) -> list[Cell]:
    polite = Stream("polite", POLITE_LOAD, POLITE)
    greedy = Stream("greedy", GREED * POLITE_LOAD / len(POLITE), ("greedy",))
    return [
        Cell("polite alone", f"three polite tenants at {POLITE_LOAD:g}x in all", (polite,)),
        Cell("greedy", f"the same beside one tenant that sends {GREED} times as much as one of them", (polite, greedy)),
    ]


def _flood(_: tuple[float, ...]) -> list[Cell]:
    readers = Stream("readers", 0.3, ("reader0", "reader1"), TEXT)
    photos = Stream("photos", 3.0, ("photos0", "photos1"), PHOTOS)
    return [
        Cell("readers alone", "text at 0.3x", (readers,)),
        Cell("flood", "the same texts beside 12 MP pictures at 3x", (readers, photos)),
    ]


def _preempt(_: tuple[float, ...]) -> list[Cell]:
    stream = Stream("growing", 3.0, TEAMS[:3], GROWING)
    what = "a KV pool too small for the seats, answers that grow, 3x"
    return [Cell("small KV", what, (stream,), SMALL_KV, GROWING, Slo(4.0, 30.0), 45.0)]


def _single(_: tuple[float, ...]) -> list[Cell]:
    what = "pictures of 1024x1024, 48 tokens each, no retries, patient clients, 3x"
    return [Cell("one kind", what, (Stream("kind", 3.0, TEAMS, ONE_KIND),), probe=ONE_KIND, patience_seconds=40.0)]


def _refuse(_: tuple[float, ...]) -> list[Cell]:
    stream = Stream("refuse", 10.0, TEAMS, TEXT)
    return [Cell("refuse", "texts only, at 10x of a slower server", (stream,), SLOW, TEXT)]


def _ladder(_: tuple[float, ...]) -> list[Cell]:
    stream = Stream("pictures", 3.0, TEAMS, PHOTOS)
    return [Cell("pictures", "12 MP pictures only, at 3x", (stream,), probe=PHOTOS, arms=(OURS, SHRINKING))]


# By name: what it is, and its cells for the loads that were asked for.
SCENARIOS = {
    "loads": ("mixed traffic at each of --loads", _loads),
    "single": ("single-kind image traffic at 3x", _single),
    "refuse": ("how fast small bodies are refused at 10x", _refuse),
    "greedy": ("three polite tenants alone, then beside one that sends 100 times as much", _greedy),
    "flood": ("readers alone, then beside a flood of 12 MP pictures", _flood),
    "ladder": ("12 MP pictures at 3x, with the pressure ladder's `shrink` and without", _ladder),
    "preempt": ("a KV pool that is too small for the seats, 3x", _preempt),
}


def cells_of(names: list[str], loads: tuple[float, ...]) -> list[Cell]:
    """The cells of the scenarios named, those on the same server together."""
    found = [cell for name in names for cell in SCENARIOS[name][1](loads)]
    return sorted(found, key=lambda cell: cell.size is not MIXED)


def quickened(cell: Cell) -> Cell:
    """The same on a server so small and for clients so impatient that it is over in a second or two."""
    size = replace(QUICK, kv_blocks=cell.size.kv_blocks // 8)
    return replace(cell, size=size, patience_seconds=4.0, slo=Slo(2.0, 3.0))
