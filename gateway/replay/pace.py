"""How long the engine takes, as the log shows it: a few lines of arithmetic, not a simulation of vLLM.

A first token takes a start, so much for each token of the prompt, and more for each other request in work (the engine's
own line); each further one so much alone, and more for each other one in work (decoding is a batch: its steps grow with
it). All are least squares over finished answers. An answer that was recorded keeps its own time, stretched by how much
more crowded the engine is than it was.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from gateway.domain.outcome import Outcome
from gateway.replay.lines import Line

_ENOUGH_SAMPLES = 20
_LEAST_TOKENS = 8  # shorter answers say more about their beginning than about the pace


class Pace(NamedTuple):
    """The engine's. The defaults are those of a small model on one GPU, for logs without finished answers."""

    start_seconds: float = 0.1
    prompt_token_seconds: float = 1 / 8000
    token_seconds: float = 0.02
    crowding_seconds: float = 0.0
    queueing_seconds: float = 0.0

    def first_seconds_among(self, others: int, prompt_tokens: int) -> float:
        """To the first token, with so many others in work."""
        return self.start_seconds + self.prompt_token_seconds * prompt_tokens + self.queueing_seconds * others

    def token_seconds_among(self, others: int) -> float:
        """For each token of one sequence, with so many others in work."""
        return self.token_seconds + self.crowding_seconds * others


class Service(NamedTuple):
    """What one request takes of the engine: seconds to its first token and to its end, tokens of all its answers."""

    first_seconds: float
    whole_seconds: float
    output_tokens: int

    def seconds_at(self, tokens: int) -> float:
        """When so many of its tokens are there; it has at least one."""
        return self.first_seconds + (self.whole_seconds - self.first_seconds) * tokens / self.output_tokens


class Recording:
    """What a log says of one engine: its pace, how crowded it was, and answers to draw from."""

    def __init__(self, lines: Sequence[Line]) -> None:
        served = [line for line in lines if line.was_sent]
        self._begins = sorted(line.sent for line in served)
        self._ends = sorted(line.ended for line in served)
        finished = [line for line in served if line.outcome is Outcome.FINISHED and line.output_tokens]
        self._output_tokens = [line.output_tokens // line.answers for line in finished]
        self.pace = self._learned(finished)

    def others(self, line: Line) -> int:
        """Requests in work when this one was sent, itself not among them."""
        begun = bisect_left(self._begins, line.sent)
        return max(0, begun - bisect_right(self._ends, line.sent))

    def service(self, line: Line, number: int, prompt_tokens: int, most_tokens: int | None, others: int) -> Service:
        """What `line`, the log's `number`th, takes among so many others, with a prompt of `prompt_tokens` in all.

        `most_tokens` bounds each answer (None: no bound).
        """
        if line.was_sent:
            return self._as_recorded(line, prompt_tokens, most_tokens, others)
        tokens = self._drawn_tokens(number, most_tokens)
        first = self.pace.first_seconds_among(others, prompt_tokens)
        return Service(first, first + tokens * self.pace.token_seconds_among(others), tokens * line.answers)

    def _as_recorded(self, line: Line, prompt_tokens: int, most_tokens: int | None, others: int) -> Service:
        pace, crowd = self.pace, self.others(line)
        whole, all_tokens = line.ended - line.sent, line.output_tokens
        usual_first = max(pace.first_seconds_among(crowd, line.prompt_tokens or 0), 1e-6)
        usual_rest = pace.token_seconds_among(crowd) * (all_tokens // line.answers)
        shown = _first_seconds(line) if line.is_streaming and line.first_event_ms is not None else None
        first = whole * usual_first / (usual_first + usual_rest) if shown is None else min(shown, whole)
        tokens = all_tokens if most_tokens is None else min(all_tokens, most_tokens * line.answers)
        kept = tokens / all_tokens if all_tokens else 1.0
        stretch = pace.token_seconds_among(others) / pace.token_seconds_among(crowd)
        begun = first * pace.first_seconds_among(others, prompt_tokens) / usual_first
        return Service(begun, begun + (whole - first) * kept * stretch, tokens)

    def _drawn_tokens(self, number: int, most_tokens: int | None) -> int:
        """Another request's answer, the same one each time the log is replayed."""
        answers = self._output_tokens
        tokens = answers[number * 7919 % len(answers)] if answers else 256
        return tokens if most_tokens is None else max(0, min(tokens, most_tokens))

    def _learned(self, finished: Sequence[Line]) -> Pace:
        streams = [line for line in finished if line.is_streaming and line.first_event_ms is not None]
        usual = Pace()
        crowds = [(self.others(line), _first_seconds(line)) for line in streams]
        _, queueing = _line_through(crowds, (usual.start_seconds, usual.queueing_seconds))
        firsts = [
            (line.prompt_tokens or 0, max(0.0, first - queueing * others))
            for line, (others, first) in zip(streams, crowds, strict=True)
        ]
        start, prompt_token = _line_through(firsts, (usual.start_seconds, usual.prompt_token_seconds))
        tokens = [(self.others(line), seconds) for line in streams or finished if (seconds := _token_seconds(line))]
        token, crowding = _line_through(tokens, (usual.token_seconds, usual.crowding_seconds))
        return Pace(start, prompt_token, max(token, 1e-6), crowding, queueing)


def recordings_of(lines: Sequence[Line]) -> dict[str | None, Recording]:
    """Of each model server, by its name; None is the only one, which has none."""
    by_server: dict[str | None, list[Line]] = {}
    for line in lines:
        by_server.setdefault(line.upstream, []).append(line)
    return {name: Recording(its) for name, its in by_server.items()}


def _first_seconds(line: Line) -> float:
    return max(0.0, line.arrived + (line.first_event_ms or 0.0) / 1000 - line.sent)


def _token_seconds(line: Line) -> float:
    """Of one token after the first; 0 where there are too few."""
    tokens = line.output_tokens // line.answers
    if tokens < _LEAST_TOKENS:
        return 0.0
    first = _first_seconds(line) if line.first_event_ms is not None and line.is_streaming else 0.0
    return max(0.0, line.ended - line.sent - first) / tokens


def _line_through(points: Sequence[tuple[float, float]], usual: tuple[float, float]) -> tuple[float, float]:
    """Start and slope, neither below 0, of the line nearest to the points; `usual` where they are too few."""
    if len(points) < _ENOUGH_SAMPLES:
        return usual
    count = len(points)
    mean_x = sum(x for x, _ in points) / count
    mean_y = sum(y for _, y in points) / count
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0
    slope = min(max(slope, 0.0), mean_y / mean_x if mean_x else 0.0)
    return mean_y - slope * mean_x, slope
