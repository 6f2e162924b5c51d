"""What is wrong with the flags of a start: names that vLLM has not, values that do not do what they are given for."""

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from gateway.domain.doctor.measured import Start
from gateway.domain.doctor.misleading import MISLEADING, is_refused
from gateway.domain.doctor.versions import version_of
from gateway.domain.vllm_flags.known_flags import GONE, INTERNAL_NAMES, NEVER
from gateway.domain.vllm_flags.naming import in_full, is_real, meant
from gateway.domain.vllm_flags.real_flags import VERSION

_NEWEST = (0, 32)
_MOST_NOTES = 40


class FlagVerdict(StrEnum):
    NEVER = "never existed"
    GONE = "gone"
    UNKNOWN = "unknown"
    REFUSED = "refused"
    MISLEADS = "misleads"


class FlagNote(NamedTuple):
    """One sentence about one flag. `flag` with its dashes; `value` as it was given, None where it is of no matter."""

    flag: str
    value: str | None
    verdict: FlagVerdict
    text: str


def notes_of(start: Start) -> list[FlagNote]:
    """In the order in which flags were given; unrecognised ones first, for these ended the start."""
    refused = [name.lstrip("-").partition("=")[0].partition(".")[0] for name in start.unknown_flags]
    notes = [note for name in dict.fromkeys(refused) if (note := _by_name(name, start, is_refused=True))]
    if "namespace" not in start.marks:
        given = [name.replace("_", "-") for name in start.flags if name not in INTERNAL_NAMES]
        notes += [note for name in given if name not in refused and (note := _by_name(name, start, is_refused=False))]
    return [*notes, *_by_value(start)][:_MOST_NOTES]


def _by_name(written: str, start: Start, *, is_refused: bool) -> FlagNote | None:
    name = written.lower().replace("_", "-")
    flag = f"--{written}"
    if name in NEVER:
        return FlagNote(flag, None, FlagVerdict.NEVER, f"vLLM has never had this flag: {NEVER[name]}")
    if name in GONE:
        return FlagNote(flag, None, FlagVerdict.GONE, _gone(name, start))
    if is_real(name) or in_full(name):
        return _refused_though_real(flag, start) if is_refused else None
    if _was_taken(start):
        return FlagNote(flag, None, FlagVerdict.GONE, f"vLLM {VERSION} has no such flag.{_still_taken(start)}")
    close = meant(name)
    question = f" Did you mean {close}?" if close else ""
    return FlagNote(flag, None, FlagVerdict.UNKNOWN, f"vLLM {VERSION} has no such flag.{question}")


def _was_taken(start: Start) -> bool:
    """An older vLLM listed it among the arguments that it was given."""
    version = version_of(start.version)
    return "arguments" in start.marks and version is not None and version < _NEWEST


def _still_taken(start: Start) -> str:
    return f" vLLM {start.version} still takes it; an upgrade ends with an error."


def _refused_though_real(flag: str, start: Start) -> FlagNote:
    of = f"vLLM {start.version}, which wrote this log," if start.version else "the vLLM that wrote this log"
    text = f"vLLM {VERSION} has this flag, {of} has not: upgrade vLLM, or leave it out."
    return FlagNote(flag, None, FlagVerdict.UNKNOWN, text)


def _gone(name: str, start: Start) -> str:
    gone = GONE[name]
    version = version_of(start.version)
    since = f"since {gone.since[0]}.{gone.since[1]}" if gone.since else f"in {VERSION}"
    is_older = gone.since is not None and version is not None and version < gone.since
    here = _still_taken(start) if is_older or _was_taken(start) else ""
    instead = f" Instead: {gone.instead}." if gone.instead else ""
    return f"The flag is gone {since}: {gone.why}.{instead}{here}"


def _by_value(start: Start) -> Iterator[FlagNote]:
    rules: Mapping[str, Callable[[Any, Start], str | None]] = MISLEADING
    for name, rule in rules.items():
        if name in start.flags and (text := rule(start.flags[name], start)) is not None:
            value = str(start.flags[name])[:80]
            verdict = FlagVerdict.REFUSED if is_refused(name, start) else FlagVerdict.MISLEADS
            yield FlagNote(f"--{name.replace('_', '-')}", value, verdict, text)
