"""From a start that was read to what is said of it: how it ended, what failed and why, what is wrong with its flags and
its numbers.
"""

from dataclasses import dataclass
from enum import StrEnum

from gateway.domain.doctor.advice import Advice
from gateway.domain.doctor.advice_table import ADVICE
from gateway.domain.doctor.arithmetic import Certainty, Contradiction, contradictions_of
from gateway.domain.doctor.flags import FlagNote, FlagVerdict, notes_of
from gateway.domain.doctor.measured import Sighting, Stage, Start
from gateway.domain.doctor.reader import Log
from gateway.domain.doctor.signs import REQUEST_KINDS, Kind
from gateway.domain.doctor.versions import version_of

_TOLD_BETTER_BY = {
    Kind.OUT_OF_MEMORY: frozenset({Kind.SAMPLER_WARMUP, Kind.LOAD_OUT_OF_MEMORY}),
}
"""A kind that is left out where one of these was seen: they name the same failure with more."""
_SAY_NO_CAUSE = frozenset({Kind.ENGINE_DIED})
"""Left out where anything else was seen."""


class Ending(StrEnum):
    """How the start ended, as far as the log goes."""

    STARTED = "started"
    FAILED = "failed"
    DIED = "died while serving"
    UNFINISHED = "the log ends before it was ready"
    COMMAND = "a command, not a log"
    NOTHING = "no line of vLLM's"


@dataclass(frozen=True, slots=True)
class Finding:
    """One failure. `stage` is what vLLM was at, `line` and `text` are where it shows first, `count` how often."""

    kind: Kind
    stage: Stage
    line: int
    text: str
    count: int
    advice: Advice

    @property
    def is_of_a_request(self) -> bool:
        """One request was refused; the server was not harmed."""
        return self.kind in REQUEST_KINDS


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All that is said of a log; `findings` with the cause first, those of single requests last. `notes` are sentences
    about what cannot be said.
    """

    ending: Ending
    start: Start
    starts_seen: int
    findings: tuple[Finding, ...]
    flag_notes: tuple[FlagNote, ...]
    contradictions: tuple[Contradiction, ...]
    notes: tuple[str, ...]

    @property
    def is_unexplained(self) -> bool:
        """It failed, on something that is only quoted."""
        return any(each.kind is Kind.UNRECOGNISED for each in self.findings)

    @property
    def is_well(self) -> bool:
        """It started, lives, and its numbers can be true; a command: vLLM would take its flags."""
        if self.ending is Ending.COMMAND:
            return all(note.verdict is FlagVerdict.MISLEADS for note in self.flag_notes)
        return self.ending is Ending.STARTED and not any(
            each.certainty is Certainty.IMPOSSIBLE for each in self.contradictions
        )


def diagnose(log: Log) -> Diagnosis:
    start = log.start
    findings = _findings(log)
    flag_notes = notes_of(start)
    return Diagnosis(
        ending=_ending(log, findings),
        start=start,
        starts_seen=log.starts_seen,
        findings=tuple(findings),
        flag_notes=tuple(flag_notes),
        contradictions=tuple(contradictions_of(start)),
        notes=tuple(_notes(log)),
    )


def _findings(log: Log) -> list[Finding]:
    """In the order of the log, which is that of causes: what fails first pulls the rest along."""
    start = log.start
    kinds = {Kind(name) for name in start.seen}
    kinds -= {kind for kind, better in _TOLD_BETTER_BY.items() if kinds & better}
    seen = dict(start.seen)
    if kinds - REQUEST_KINDS <= _SAY_NO_CAUSE and (error := _unexplained(log)) is not None:
        seen[Kind.UNRECOGNISED] = error
        kinds.add(Kind.UNRECOGNISED)
    if kinds - REQUEST_KINDS > _SAY_NO_CAUSE:
        kinds -= _SAY_NO_CAUSE
    found = [
        Finding(kind, each.stage, each.line, each.text, start.counts.get(name, 1), ADVICE[kind](start, each))
        for name, each in seen.items()
        if (kind := Kind(name)) in kinds
    ]
    return sorted(found, key=lambda each: each.is_of_a_request)


def _unexplained(log: Log) -> Sighting | None:
    """The error that ended a start; those of a text that is not vLLM's, or before a good start, are none."""
    is_of_vllm = log.vllm_lines > 0 or bool(log.start.marks)
    return log.start.last_error if is_of_vllm and log.start.stage is not Stage.SERVING else None


def _ending(log: Log, findings: list[Finding]) -> Ending:
    start = log.start
    fatal = [each for each in findings if not each.is_of_a_request]
    if start.stage is Stage.SERVING:
        return Ending.DIED if any(each.stage is Stage.SERVING for each in fatal) else Ending.STARTED
    if fatal:
        return Ending.FAILED
    if log.vllm_lines > 0 or start.marks - {"command"}:
        return Ending.UNFINISHED
    return Ending.COMMAND if "command" in start.marks else Ending.NOTHING


def _notes(log: Log) -> list[str]:
    start = log.start
    notes = []
    if log.starts_seen > 1:
        notes.append(f"The log has {log.starts_seen} starts; this is the last of them, from line {start.first_line}.")
    if start.engine == "V0":
        notes.append("This is engine V0, which vLLM no longer has. Its numbers are shown; there is no plan for it.")
    version = version_of(start.version)
    if version is None and start.version is not None:
        notes.append(f"Version {start.version} is a build of a branch; texts are read as those of 0.32.")
    if "namespace" in start.marks:
        notes.append("The log lists all arguments with their defaults, so flags are not judged by their names.")
    return notes
