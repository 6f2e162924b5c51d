"""What was refused before there was a request: counted, and a sample of it logged and shown, so that no flood fills the
log.
"""

from collections.abc import Callable
from datetime import UTC, datetime

from gateway.domain.errors import GatewayError
from gateway.domain.outcome import Outcome
from gateway.server.door import new_request_id
from gateway.telemetry.last_refusals import LastRefusals
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.request_log import RequestLog, RequestRecord

MOST_LINES_PER_SECOND = 10
_UNKNOWN = "-"


class ConnectionRefusals:
    """Each counts as a refused request of no model and no endpoint; at most ten lines in a second are written."""

    __slots__ = ("_clock", "_lines", "_log", "_metrics", "_refusals", "_second")

    def __init__(self, metrics: Metrics, log: RequestLog, refusals: LastRefusals, clock: Callable[[], float]) -> None:
        self._metrics = metrics
        self._log = log
        self._refusals = refusals
        self._clock = clock
        self._second = 0
        self._lines = 0

    def note(self, error: GatewayError) -> None:
        self._metrics.request_ended(None, _UNKNOWN, Outcome.REFUSED)
        self._metrics.rejected(None, error.reason)
        if self._may_write():
            record = RequestRecord(
                time=datetime.now(UTC),
                request_id=new_request_id(),
                outcome=Outcome.REFUSED,
                endpoint=_UNKNOWN,
                method=_UNKNOWN,
                status=error.status,
                reason=error.reason,
                code=error.code,
                message=error.message,
            )
            self._log.write(record)
            self._refusals.note(record)

    def _may_write(self) -> bool:
        second = int(self._clock())
        if second != self._second:
            self._second, self._lines = second, 0
        self._lines += 1
        return self._lines <= MOST_LINES_PER_SECOND
