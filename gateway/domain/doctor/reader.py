"""From the messages of a log to its starts: the one writer of `Start`.

A log of a container that was restarted holds several starts. Each is read by itself; the last is the one that counts,
the others are only counted.
"""

import re
from dataclasses import dataclass, field

from gateway.domain.doctor import command_line
from gateway.domain.doctor.fields import fields, value_of
from gateway.domain.doctor.lines import Line
from gateway.domain.doctor.measured import OutOfMemory, Sighting, Stage, Start, Term
from gateway.domain.doctor.patterns import FRAME, FRAMES, STAGE_LINES, numbers_of
from gateway.domain.doctor.signs import SIGNS

_LONGEST_TEXT = 400
_MOST_FLAGS = 400
_LONGEST_VALUE = 2000
_QUIET = frozenset({"DEBUG", "INFO", "WARNING"})

_BANNER = re.compile(r"vLLM (?:API )?server version ([^\s,]{1,80})|█ +version (\S{1,80})")
_ENGINE = re.compile(r"Initializing an? (?:(V\d) )?LLM engine \(v([^)\s]{1,80})\) with config: (.*)")
_ARGUMENTS = re.compile(r"non-default args: \{(.*)\}?")
_NAMESPACE = re.compile(r"\bargs: Namespace\((.*)\)?")
_UNKNOWN = re.compile(r"unrecognized arguments: (.*)")
_ARCHITECTURE = re.compile(r"Resolved architecture: (\w{1,120})")
_MODALITY = re.compile(r"profiled with \d+ (\w{1,40}) items")
_LOADED = re.compile(r"Starting to load model (\S{1,300}?)\.\.\.")
_PLATFORM = re.compile(r"Automatically detected platform (\w{1,20})")
_AUTO_FIT = re.compile(r"Auto-fit max_model_len: reduced from \d{1,12} to (\d{1,12})")
_TRIED = re.compile(
    r"out of memory\. Tried to allocate ([\d.]{1,12}) ([MG])iB"
    r"(?:.*?has a total capacity of ([\d.]{1,12}) GiB of which ([\d.]{1,12}) ([MG])iB is free)?"
    r"(?:.*?this process has ([\d.]{1,12}) GiB memory in use)?",
    re.IGNORECASE,
)
_EXCEPTION = re.compile(r"(?P<exception>(?:[a-z_]\w*\.){0,12}[A-Z]\w{0,80}(?:Error|Exception))(?::|$)")
_LOUD = frozenset({"ERROR", "CRITICAL"})
_MIB_PER_GIB = 1024


@dataclass(slots=True)
class Log:
    """What was read so far. `starts_seen` counts those before too; `lines` counts messages, `vllm_lines` those that
    said something.
    """

    start: Start = field(default_factory=lambda: Start(1))
    starts_seen: int = 1
    lines: int = 0
    vllm_lines: int = 0


class LogReader:
    """Takes messages one by one; `log` is what they said."""

    def __init__(self) -> None:
        self.log = Log()
        self._command = command_line.Collector()

    def take(self, line: Line) -> None:
        self.log.lines += 1
        is_new = self._is_new_start(line.message)
        if is_new:
            self.log.start = Start(line.number, last_line=line.number, marks=self.log.start.marks & {"command"})
            self.log.starts_seen += 1
        start = self.log.start
        said = False
        if start.stage is not Stage.SERVING:  # what may be gigabytes of log behind it has nothing more of the start
            said = _identity(start, line) | _numbers(start, line) | _stage(start, line)
        said |= _failures(start, line)
        self._flags(start, line)
        if said or line.level is not None:
            self.log.vllm_lines += 1
            start.last_line = line.number

    def _is_new_start(self, message: str) -> bool:
        """The banner comes once a start. The engines of one start come up together, so one that comes up when weights
        are loaded already, or something has failed, belongs to another.
        """
        start = self.log.start
        has_begun = start.stage > Stage.ARGUMENTS or bool(start.seen)
        if _BANNER.search(message) is not None:
            return has_begun
        return " LLM engine (v" in message and (start.stage > Stage.LOADING or (has_begun and bool(start.seen)))

    def _flags(self, start: Start, line: Line) -> None:
        if (match := _ARGUMENTS.search(line.message)) is not None:
            start.marks.add("arguments")
            for name, value in fields(match[1].removesuffix("}"), ":").items():
                _keep(start, name, value_of(value[:_LONGEST_VALUE]))
        elif (match := _NAMESPACE.search(line.message)) is not None:
            # All arguments with their defaults: which the operator gave cannot be told.
            start.marks.add("namespace")
            for name, value in fields(match[1].removesuffix(")")).items():
                _keep(start, name, value_of(value[:_LONGEST_VALUE]))
        elif (match := _UNKNOWN.search(line.message)) is not None:
            start.unknown_flags.extend(
                word for word in match[1][:_LONGEST_VALUE].split() if word.startswith("-") and len(word) > 1
            )
        elif (given := self._command.take(line.message)) is not None:
            start.marks.add("command")
            for name, value in given.items():
                _keep(start, name, value)


def _keep(start: Start, name: str, value: object) -> None:
    if len(start.flags) < _MOST_FLAGS:
        start.flags[name.lstrip("-").replace("-", "_")] = value


def _identity(start: Start, line: Line) -> bool:
    """Versions and names."""
    message = line.message
    if (match := _BANNER.search(message)) is not None:
        start.version = (match[1] or match[2]).removeprefix("v")
    elif (match := _ENGINE.search(message)) is not None:
        start.engine, start.version = match[1] or "V0", match[2]
        start.config = fields(match[3])
        start.model = str(value_of(start.config.get("model", "None")) or "") or start.model
        context = value_of(start.config.get("max_seq_len", "None"))
        if isinstance(context, int):
            start.read(Term.CONTEXT, context, line.number)
    elif (match := _ARCHITECTURE.search(message)) is not None:
        start.architecture = match[1]
    elif (match := _LOADED.search(message)) is not None:
        start.model = start.model or match[1]
    elif (match := _MODALITY.search(message)) is not None:
        start.profiled_modality = match[1]
    elif (match := _PLATFORM.search(message)) is not None:
        start.platform = match[1]
    elif (match := _AUTO_FIT.search(message)) is not None:
        start.readings.pop(Term.CONTEXT, None)
        start.read(Term.CONTEXT, float(match[1]), line.number)
    elif "padding layers, may waste" in message:
        start.marks.add("padded")
    else:
        return False
    return True


def _numbers(start: Start, line: Line) -> bool:
    numbers = list(numbers_of(line.message))
    for term, value in numbers:
        start.read(term, value, line.number)
    if "model weights take" in line.message or "Memory profiling results" in line.message:
        start.engine = start.engine or "V0"
    return bool(numbers)


def _stage(start: Start, line: Line) -> bool:
    reached = [each.stage for each in STAGE_LINES if each.needle in line.message]
    for stage in reached:
        start.reach(stage)
    return bool(reached)


def _failures(start: Start, line: Line) -> bool:
    """Signs of failure. What vLLM only informs or warns of (a port that it tries again, advice) is none."""
    if line.level in _QUIET:
        return False
    if (frame := FRAME.search(line.message)) is not None and frame[1] in FRAMES:
        start.frames.add(frame[1])
    if (tried := _TRIED.search(line.message)) is not None:
        _keep_out_of_memory(start, tried, line)
    found = False
    for sign in SIGNS:
        if sign.needle in line.message and (match := sign.pattern.search(line.message)) is not None:
            found = True
            start.counts[sign.kind] = start.counts.get(sign.kind, 0) + 1
            words = {name: text for name, text in match.groupdict().items() if text is not None}
            if sign.kind not in start.seen:
                start.seen[sign.kind] = Sighting(line.number, start.stage, line.message[:_LONGEST_TEXT], words)
    if not found and start.stage is not Stage.SERVING:
        _keep_error(start, line)
    return found


def _keep_error(start: Start, line: Line) -> None:
    """The last one; an exception says more than another line of level ERROR, which may be of its traceback."""
    words = {} if (match := _EXCEPTION.match(line.message)) is None else match.groupdict()
    is_told_better = start.last_error is not None and bool(start.last_error.words)
    if words or (line.level in _LOUD and not is_told_better):
        start.last_error = Sighting(line.number, start.stage, line.message[:_LONGEST_TEXT], words)


def _keep_out_of_memory(start: Start, tried: re.Match[str], line: Line) -> None:
    """The first of them: what follows is told again by other ranks, or comes of it."""
    if start.out_of_memory is not None:
        return
    start.out_of_memory = OutOfMemory(
        line.number,
        start.stage,
        tried_gib=_gib(tried[1], tried[2]),
        total_gib=None if tried[3] is None else _gib(tried[3], "G"),
        free_gib=None if tried[4] is None else _gib(tried[4], tried[5]),
        in_use_gib=None if tried[6] is None else _gib(tried[6], "G"),
    )
    if start.out_of_memory.total_gib and Term.TOTAL_GIB not in start.readings:
        start.read(Term.TOTAL_GIB, start.out_of_memory.total_gib, line.number)


def _gib(digits: str, unit: str) -> float:
    try:
        amount = float(digits)
    except ValueError:
        return 0.0
    return amount if unit.upper() == "G" else amount / _MIB_PER_GIB
