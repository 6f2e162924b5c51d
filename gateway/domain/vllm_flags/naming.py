"""Whether vLLM has a flag of that name, and what a name that it has not was meant for."""

from difflib import get_close_matches

from gateway.domain.vllm_flags.command import SHORT
from gateway.domain.vllm_flags.real_flags import REAL_FLAGS

_SIMILARITY = 0.75


def is_real(name: str) -> bool:
    """Real, or the negation of a boolean one. Names have dashes and no dashes before them."""
    return name in REAL_FLAGS or name.removeprefix("no-") in REAL_FLAGS


def in_full(name: str) -> str | None:
    """The real one of which it is all, or the unique beginning, which the parser takes too."""
    found = [each for each in REAL_FLAGS if each.startswith(name)]
    return name if name in REAL_FLAGS else found[0] if len(found) == 1 else None


def meant(name: str) -> str | None:
    """The real flag that resembles it most, with its dashes; None where none does."""
    if name in SHORT:
        return f"-{name}"
    shortened = [each for each in REAL_FLAGS if _shortens(name, each)]
    if len(shortened) == 1:
        return f"--{shortened[0]}"
    close = get_close_matches(name, sorted(REAL_FLAGS), n=1, cutoff=_SIMILARITY)
    return f"--{close[0]}" if close else None


def _shortens(name: str, real: str) -> bool:
    """Each of its parts begins one of the real name, as in gpu-mem-util."""
    parts, of = name.split("-"), real.split("-")
    return len(parts) == len(of) and all(whole.startswith(part) for part, whole in zip(parts, of, strict=True))
