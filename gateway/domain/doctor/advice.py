"""What a failure means and what helps, as values. The texts by kind are in the files beside this one."""

from collections.abc import Callable, Mapping
from math import floor
from typing import NamedTuple

from gateway.domain.doctor.measured import Sighting, Start, Term


class Advice(NamedTuple):
    """`title` names the failure, `cause` explains it with its numbers, `cures` are sentences, the best first, `flags`
    what to try next, ready to paste.
    """

    title: str
    cause: str
    cures: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()


Adviser = Callable[[Start, Sighting], Advice]


def always(title: str, cause: str, *cures: str, flags: tuple[str, ...] = ()) -> Adviser:
    """The same whatever the log says."""
    return lambda _start, _seen: Advice(title, cause, cures, flags)


def number(words: Mapping[str, str], name: str) -> float | None:
    """What the pattern cut out as a number, None if it is none."""
    try:
        return float(words[name].replace(",", ""))
    except (KeyError, ValueError):
        return None


def utilisation_of(start: Start) -> float | None:
    """As printed, else as given."""
    told = start.get(Term.UTILISATION)
    given = start.flags.get("gpu_memory_utilization")
    return float(given) if isinstance(given, int | float) and 0 < given <= 1 else told


def rounded_down(share: float) -> float:
    """Two places are as fine as anybody sets it."""
    return floor(share * 100 + 1e-6) / 100


def utilisation_flag(share: float) -> str:
    return f"--gpu-memory-utilization {share:.2f}"
