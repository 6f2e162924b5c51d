"""What is known of a vLLM server, and how one more look at it changes that. Pure: `now` is handed in.

`is_up` says that the HTTP server answers, no more: with a frozen engine `/health`, `/metrics` and `/v1/models` go on
answering 200 and the numbers only grow old unseen (measured). Whether work gets done is for those to judge who see
requests finish.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from gateway.wire.vllm_metrics import EngineReport

_SILENCES_UNTIL_DOWN = 3  # a busy API process may leave one look unanswered for seconds


class Health(StrEnum):
    """How `/health` answered."""

    OK = "ok"
    REFUSING = "refusing"
    """No connection, or an error status: nobody could be served now."""
    SILENT = "silent"
    """No answer in time: busy or frozen, which one look cannot tell apart."""


class UpstreamModel(NamedTuple):
    """One entry of `/v1/models`; `max_model_len` in tokens, None for what does not state it. `root` is the folder or
    repository that vLLM was given to load, `parent` of an adapter the name of the model that it changes.
    """

    id: str
    max_model_len: int | None
    root: str | None = None
    parent: str | None = None


@dataclass(frozen=True, slots=True)
class Observation:
    """One look. None stands for what did not answer or could not be read; `trouble` says why, for the operator."""

    health: Health
    models: tuple[UpstreamModel, ...] | None = None
    version: str | None = None
    report: EngineReport | None = None
    trouble: str | None = None


@dataclass(frozen=True, slots=True)
class UpstreamState:
    """All that is known. Times are of the clock that was handed in, in seconds.

    `models`, `version` and `report` are the last that were seen, also while the server is away; `models` is the same
    object as long as the list does not change. `is_loading` until it
    has answered for the first time: vLLM opens its port only when the model is loaded. `starts` counts how often the
    server was seen to have started anew, `newest_start` is when it last did by its own clock.
    """

    is_up: bool = False
    has_been_up: bool = False
    models: tuple[UpstreamModel, ...] = ()
    version: str | None = None
    report: EngineReport | None = None
    reported_at_seconds: float | None = None
    changed_at_seconds: float | None = None
    misses: int = 0
    trouble: str | None = "not looked at yet"
    starts: int = 0
    newest_start: int | None = None

    @property
    def is_loading(self) -> bool:
        return not self.has_been_up

    def report_age_seconds(self, now_seconds: float) -> float | None:
        """How old the report is; None without one."""
        return None if self.reported_at_seconds is None else now_seconds - self.reported_at_seconds


def next_state(state: UpstreamState, seen: Observation, now_seconds: float) -> UpstreamState:
    """The state after one more look.

    A refusal counts at once, since nobody could be served; silence only the third time in a row.
    """
    misses = 0 if seen.health is Health.OK else state.misses + 1
    is_up = seen.health is Health.OK or (state.is_up and seen.health is Health.SILENT and misses < _SILENCES_UNTIL_DOWN)
    return replace(
        state,
        is_up=is_up,
        has_been_up=state.has_been_up or is_up,
        models=state.models if seen.models is None or seen.models == state.models else seen.models,
        version=seen.version or state.version,
        report=seen.report or state.report,
        reported_at_seconds=now_seconds if seen.report else state.reported_at_seconds,
        changed_at_seconds=now_seconds if is_up != state.is_up else state.changed_at_seconds,
        misses=misses,
        trouble=seen.trouble,
        starts=state.starts + _has_started(state, seen),
        newest_start=_newest_start(state, seen.report),
    )


def _has_started(state: UpstreamState, seen: Observation) -> bool:
    """Whether the server is another than at the last report: its own clock says so, or else its counters, or else that
    it was away. A balancer may show several servers in turn, so only a start later than all others is one.
    """
    report, before = seen.report, state.report
    if report is None:
        return False
    if before is None:
        return state.misses > 0
    if report.started_at is not None and state.newest_start is not None:
        return report.started_at > state.newest_start
    if report.generated_tokens is not None and before.generated_tokens is not None:
        return report.generated_tokens < before.generated_tokens
    return not state.is_up


def _newest_start(state: UpstreamState, report: EngineReport | None) -> int | None:
    told = None if report is None else report.started_at
    return max((start for start in (state.newest_start, told) if start is not None), default=None)


@dataclass(frozen=True, slots=True)
class PollPace:
    """Seconds between looks: `busy` while requests are under way, `idle` otherwise, up to `away` while it is down."""

    busy_seconds: float = 1.0
    idle_seconds: float = 5.0
    away_seconds: float = 10.0

    def wait_seconds(self, state: UpstreamState, *, is_busy: bool, chance: float) -> float:
        """How long to wait for the next look; `chance` from 0 to 1 spreads many gateways by a tenth either way.

        While the server is away the pace starts at the busy one and halves with every miss.
        """
        if state.misses:
            seconds = min(self.busy_seconds * 2.0 ** min(state.misses - 1, 16), self.away_seconds)
        else:
            seconds = self.busy_seconds if is_busy else self.idle_seconds
        return seconds * (0.9 + 0.2 * chance)
