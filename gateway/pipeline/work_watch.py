"""Whether a server that owes answers does any work: judged at each look, for the breaker.

That its HTTP side answers proves nothing: with a frozen engine `/health` and `/metrics` go on saying 200.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from gateway.domain.breaker import FROZEN_SECONDS, Breaker, Progress
from gateway.upstream.client import UpstreamClient
from gateway.upstream.state import UpstreamState

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class WorkWatch:
    """An observer of the poller."""

    breaker: Breaker
    upstream: UpstreamClient
    clock: Callable[[], float]
    log_prefix: str = ""
    _progress: Progress = field(default_factory=Progress)
    _reported_at_seconds: float | None = None
    _is_frozen: bool = False

    def __call__(self, state: UpstreamState) -> None:
        now, report, statistics = self.clock(), state.report, self.upstream.statistics()
        # What could not be read anew says nothing of the engine now.
        is_news = state.reported_at_seconds != self._reported_at_seconds
        self._reported_at_seconds = state.reported_at_seconds
        runs = is_news and report is not None and report.steps is not None and bool(report.running)
        made = statistics.pieces, report and (report.steps, report.generated_tokens)
        is_frozen = self._progress.is_frozen(now, made, is_owed=runs or statistics.mid_answer > 0)
        if is_frozen:
            self.breaker.froze(now)
        if is_frozen and not self._is_frozen:
            _log.error("%sthe upstream owes answers, and has done nothing for %.0f s", self.log_prefix, FROZEN_SECONDS)
        elif self._is_frozen and not is_frozen:
            _log.warning("%sthe upstream works again, or nothing is owed any more", self.log_prefix)
        self._is_frozen = is_frozen
