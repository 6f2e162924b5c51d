"""What the command line asks to be planned: flags of vLLM out of what is left of it, models, cards and the version."""

import os
import re
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from difflib import get_close_matches
from typing import NamedTuple

from gateway.cli.manifest import line_of
from gateway.domain.memory.gpus import assumed_size, gpu_of, is_supported, known_total_gib, titles
from gateway.domain.memory.plan import NEWEST, Flags, Gpu, ModelSpec, Version
from gateway.domain.memory.serve_line import ServeLine, ServeLineError, read_arguments, read_command, refuse_gone
from gateway.domain.vllm_flags.known_flags import GONE, NEVER
from gateway.domain.vllm_flags.naming import is_real, meant
from gateway.models.hub import Hub
from gateway.models.spec_sources import find_spec, hub_cache, hub_itself, own_folder

_SERIES = "Qwen/Qwen2.5-VL-7B-Instruct"
"""Whose sizes `--compare 3B 7B` means where no model is named."""
_MOST_GIB = 1024
"""No card has as much; in MiB or bytes it would be more."""
_SIZE = re.compile(r"\d+(?:\.\d+)?B(?:-A\d+B)?", re.IGNORECASE)


class AskedError(ValueError):
    """The command line does not say what to plan; the text says what is missing."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One model and one card, or several to compare."""

    models: tuple[ModelSpec, ...]
    gpus: tuple[Gpu, ...]
    flags: Flags
    version: Version
    ignored: tuple[str, ...]
    unplanned: tuple[str, ...]


class Wish(NamedTuple):
    """The command's own options, as they were given."""

    model: str | None
    cards: Sequence[str]
    gpu_memory: float | None
    foreign: float
    command: str | None
    vllm_version: str | None
    compared: Sequence[str]
    is_hub_asked: bool = False
    own_flags: tuple[str, ...] = ()


def asked_of(words: Sequence[str], wish: Wish) -> Asked:
    """`words` are those that the command's own options left over. Raises AskedError, ServeLineError,
    NotPlannableError, HubError or ModelFilesError.
    """
    _refuse_misspelt(words, wish.own_flags)
    line, more = _line_of(words, wish.command)
    version = _version(wish.vllm_version or line.version)
    refuse_gone(line, version)
    named = wish.model or line.model
    if named is None and len(more) == 1 and not wish.compared:
        named, more = more[0], ()
    if more and not wish.compared:
        raise AskedError(f"{more[0]}: not understood; a flag of vLLM begins with two dashes")
    _check_amounts(wish)
    names = [_of_series(each, named or _SERIES) for each in (*wish.compared, *more)]
    if not names and named is not None:
        names = [named]
    if not names:
        raise AskedError("say which model: --model Qwen/Qwen2.5-VL-7B-Instruct, or --command with a whole line")
    if len(wish.cards) > 1 and not wish.compared:
        raise AskedError("several cards are planned side by side with --compare; for one model on many cards give -tp")
    return Asked(
        models=_specs(names, is_hub_asked=wish.is_hub_asked),
        gpus=tuple(_gpu(card, wish.gpu_memory, wish.foreign) for card in _cards(wish.cards, wish.gpu_memory)),
        flags=line.flags,
        version=version,
        ignored=(*line.ignored, *(f"--{name}" for name in line.gone)),
        unplanned=line.unplanned,
    )


def _refuse_misspelt(words: Sequence[str], own_flags: Sequence[str]) -> None:
    """What resembles one of the command's own flags more than any of vLLM's, or none of either; the others are looked
    at with the line.
    """
    for word in words:
        name = word.partition("=")[0]
        plain = name[2:].replace("_", "-").partition(".")[0]
        if not name.startswith("--") or is_real(plain) or plain in {*NEVER, *GONE}:
            continue
        of_vllm = meant(plain)
        close = get_close_matches(name, [*own_flags, *([of_vllm] if of_vllm else [])], n=1)
        if close and close[0] in own_flags:
            raise AskedError(f"{name} is neither a flag of this command nor of vLLM; did you mean {close[0]}?")
        if of_vllm is None:
            raise AskedError(f"{name} is neither a flag of this command nor of vLLM, and resembles none")


def _specs(names: Sequence[str], *, is_hub_asked: bool) -> tuple[ModelSpec, ...]:
    """The hub's token and address are those of HF_TOKEN and HF_ENDPOINT."""
    with closing(Hub(endpoint=os.environ.get("HF_ENDPOINT") or None)) as hub:
        finders = [own_folder, hub_cache(), *([hub_itself(hub.download)] if is_hub_asked else [])]
        return tuple(find_spec(name, finders) for name in names)


def _line_of(words: Sequence[str], command: str | None) -> tuple[ServeLine, tuple[str, ...]]:
    """The flags of vLLM, and words that are none."""
    if command is None:
        line = read_arguments(list(words))
        return line, line.positions
    if words:
        raise ServeLineError(f"{words[0]}: beside --command no other flags of vLLM are taken; write it into the line")
    return read_command(line_of(command)), ()


def _of_series(name: str, series: str) -> str:
    """A size alone stands for that size of the series."""
    return _SIZE.sub(name.upper(), series, count=1) if _SIZE.fullmatch(name) else name


def _check_amounts(wish: Wish) -> None:
    for option, amount, least in (("--gpu-memory", wish.gpu_memory, 1), ("--foreign", wish.foreign, 0)):
        if amount is not None and not least <= amount <= _MOST_GIB:
            raise AskedError(f"{option} {amount:g}: write GiB of one card, {least} to {_MOST_GIB}")


def _cards(cards: Sequence[str], gpu_memory: float | None) -> Sequence[str]:
    if cards:
        return cards
    if gpu_memory is None:
        raise AskedError(f"say which card: --gpu with one of {', '.join(titles())}, or --gpu-memory GIB")
    return [f"a card of {gpu_memory:g} GiB"]


def _gpu(name: str, gpu_memory: float | None, foreign: float) -> Gpu:
    total = gpu_memory or known_total_gib(name)
    if not is_supported(name):
        raise AskedError(f"--gpu {name}: only CUDA and ROCm cards are planned")
    if total is None:
        raise AskedError(
            f"--gpu {name}: not known by name. Known are {', '.join(titles())}; of another say with --gpu-memory what "
            "torch.cuda.mem_get_info() gives as its total"
        )
    return gpu_of(name, total, foreign, None if gpu_memory else assumed_size(name))


def _version(text: str | None) -> Version:
    if text is None:
        return NEWEST
    found = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", text)
    if not found:
        raise AskedError(f"--vllm-version {text}: write it as 0.11.0")
    return Version(int(found[1]), int(found[2]), int(found[3] or 0))
