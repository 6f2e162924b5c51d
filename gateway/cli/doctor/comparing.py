"""A plan for the start that a log is of: which model and which card it is, and the plan beside what was measured."""

from math import isfinite
from typing import NamedTuple

from gateway.cli.manifest import line_of
from gateway.domain.doctor.command_line import flags_of as flags_of_command
from gateway.domain.doctor.measured import Start, Term
from gateway.domain.doctor.planned import Comparison, compare, flags_of, total_gib, version_for_plan
from gateway.domain.memory.gpus import gpu_of, known_total_gib
from gateway.domain.memory.planning import make_plan
from gateway.models.spec_sources import find_spec, hub_cache, own_folder

_ANY_CARD_GIB = 80.0
_CONTEXT_GIB = 1.0
_CONSUMER_ROCM_GIB = 40.0
"""AMD's cards with less have no attention kernel for vision towers; the planner knows them by name."""


class Assumed(NamedTuple):
    """What the operator says where the log or the server does not. `command` is a `vllm serve` line."""

    model: str | None = None
    gpu: str | None = None
    command: str | None = None


def assume(start: Start, assumed: Assumed) -> None:
    """Adds what the operator says; what the log says stands. Raises ValueError for a card that is none."""
    if assumed.command is not None:
        start.flags = {**flags_of_command(line_of(assumed.command)), **start.flags}
    said = _said_gib(assumed.gpu)
    if said is not None and total_gib(start) is None:
        start.read(Term.TOTAL_GIB, said, 0)


def compare_with_plan(start: Start, assumed: Assumed) -> Comparison:
    """Never raises: what stands in the way of a plan is told."""
    name = assumed.model or start.model or start.setting("model")
    if start.engine == "V0":
        return Comparison(why_not="engine V0 is not planned.")
    if not isinstance(name, str):
        return Comparison(why_not="the model is not named; give --model.")
    try:
        spec = find_spec(name, (own_folder, hub_cache()))
    except (ValueError, OSError, RuntimeError) as unknown:  # a log may give a model any name, also one that is no path
        return Comparison(
            why_not=f"{str(unknown).partition('. ')[0]}; give --model with its published name or its folder."
        )
    total = total_gib(start)
    is_consumer_rocm = start.platform == "rocm" and (total or 0) < _CONSUMER_ROCM_GIB
    card = assumed.gpu or ("Radeon" if is_consumer_rocm else "the card")
    try:
        plan = make_plan(
            spec, gpu_of(card, total or _ANY_CARD_GIB, _foreign_gib(start)), flags_of(start), version_for_plan(start)
        )
    except ValueError as refused:
        return Comparison(why_not=f"{refused}.")
    return compare(start, plan, is_card_known=total is not None)


def _foreign_gib(start: Start) -> float:
    """What others held when it started. Some of what is not free is the process's own CUDA context."""
    total, free = start.get(Term.TOTAL_GIB), start.get(Term.FREE_GIB)
    held = 0.0 if total is None or free is None else total - free
    return held if held > _CONTEXT_GIB else 0.0


def _said_gib(gpu: str | None) -> float | None:
    """Of a card's name, or its GiB as torch sees them."""
    if gpu is None:
        return None
    try:
        gib: float | None = float(gpu)
    except ValueError:
        gib = known_total_gib(gpu)
    if gib is None:
        raise ValueError(
            f"--gpu {gpu}: not known by name; give the GiB that torch.cuda.mem_get_info() has as its total"
        )
    if not (isfinite(gib) and gib > 0):
        raise ValueError(f"--gpu {gpu}: a card has a number of GiB above 0")
    return gib
