"""Options of `replay --generate`, read."""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, NamedTuple

import typer

from gateway.cli.options import fail
from gateway.domain.vision.checkpoints import checkpoint_of_model_name
from gateway.domain.vision.registry import resolve
from gateway.replay.synthetic import Mix, Traffic

_BURSTS = re.compile(r"(\d+(?:\.\d+)?)x(\d+(?:\.\d+)?)/(\d+(?:\.\d+)?)")


def _asked(words: str) -> typer.models.OptionInfo:
    made: typer.models.OptionInfo = typer.Option(help=f"With --generate: {words}")
    return made


Seed = Annotated[int, _asked("the same seed makes the same traffic.")]
Hours = Annotated[float, _asked("how long the traffic lasts.")]
Rate = Annotated[float, _asked("requests that begin a second; further turns come on top.")]
MixShares = Annotated[str, _asked("shares of questions, questions with a picture, and sessions.")]
Bursts = Annotated[str, _asked("FACTORxSECONDS/EVERY, so much more for so long out of so long.")]
TenantShares = Annotated[str, _asked("tenant classes and their shares of what begins.")]
Turns = Annotated[float, _asked("turns of a session on average.")]
ModelName = Annotated[str, _asked("the model's name, which says what its pictures cost.")]
KvBlocks = Annotated[int, _asked("KV blocks of the engine of that day.")]


class Asked(NamedTuple):
    """As the command line has them."""

    seed: int
    hours: float
    rate: float
    mix: str
    bursts: str
    tenants: str
    turns: float
    model: str
    kv_blocks: int


def read_traffic(asked: Asked) -> Traffic:
    """Ends the command with exit code 2 and every mistake named."""
    if mistakes := list(_mistakes(asked)):
        fail("\n".join(mistakes))
    checkpoint = checkpoint_of_model_name(asked.model)
    factor, seconds, every = _bursts(asked.bursts) or (1.0, 0.0, 1.0)
    shares = _shares(asked.mix)
    return Traffic(
        model=asked.model,
        family=resolve(checkpoint.family if checkpoint else "", checkpoint=checkpoint).family,
        seed=asked.seed,
        seconds=asked.hours * 3600,
        per_second=asked.rate,
        mix=Mix(*(shares.get(name, 0.0) for name in Mix._fields)),
        burst_factor=factor,
        burst_seconds=seconds,
        burst_every_seconds=every,
        turns=asked.turns,
        tenants=_shares(asked.tenants),
        kv_blocks=asked.kv_blocks,
    )


def _mistakes(asked: Asked) -> Iterator[str]:
    for name, value in (("hours", asked.hours), ("rate", asked.rate), ("kv-blocks", asked.kv_blocks)):
        if value <= 0:
            yield f"--{name} {value}: must be above 0"
    if asked.turns < 1:
        yield f"--turns {asked.turns}: a session has at least one"
    if not _shares(asked.mix) or set(_shares(asked.mix)) - set(Mix._fields):
        yield f"--mix {asked.mix}: write shares such as text=3,session=1; the kinds are {', '.join(Mix._fields)}"
    if not _shares(asked.tenants):
        yield f"--tenants {asked.tenants}: write shares such as team-a=3,team-b=1"
    if _bursts(asked.bursts) is None:
        yield f"--bursts {asked.bursts}: write FACTORxSECONDS/EVERY, such as 4x30/600; 1x0/600 is none"
    if checkpoint_of_model_name(asked.model) is None:
        yield f"--model {asked.model}: its name says nothing of a family that is known, such as Qwen/Qwen3-VL-8B"


def _bursts(text: str) -> tuple[float, float, float] | None:
    """Factor, seconds, and out of how many; None where that is not what is written."""
    match = _BURSTS.fullmatch(text)
    if match is None:
        return None
    factor, seconds, every = map(float, match.groups())
    return (factor, seconds, every) if factor >= 1 and every > 0 else None


def _shares(text: str) -> Mapping[str, float]:
    """By name; empty where that is not what is written."""
    shares = {}
    for entry in text.split(","):
        name, _, share = entry.partition("=")
        try:
            shares[name.strip()] = float(share)
        except ValueError:
            return {}
    is_usable = all(shares) and min(shares.values()) >= 0 and sum(shares.values()) > 0
    return shares if is_usable else {}
