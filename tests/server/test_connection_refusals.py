"""Refusals outside of requests: all counted, ten lines a second logged."""

from gateway.domain.errors import Code, GatewayError
from gateway.server.connection_refusals import MOST_LINES_PER_SECOND, ConnectionRefusals
from gateway.telemetry.last_refusals import LastRefusals
from gateway.telemetry.metrics import Metrics

ERROR = GatewayError(Code.HEADERS_TOO_LARGE, "too many")


class Log:
    def __init__(self):
        self.lines = []

    def write(self, record):
        self.lines.append(record)


def test_a_flood():
    metrics, log, shown, now = Metrics(), Log(), LastRefusals(), [5.5]
    refusals = ConnectionRefusals(metrics, log, shown, lambda: now[0])
    for _ in range(25):
        refusals.note(ERROR)
    assert len(log.lines) == MOST_LINES_PER_SECOND
    now[0] = 6.0
    refusals.note(ERROR)
    assert len(log.lines) == len(shown.newest_first()) == MOST_LINES_PER_SECOND + 1
    assert (log.lines[0].status, log.lines[0].code, log.lines[0].message) == (431, "headers_too_large", "too many")
    page = metrics.render()[0].decode()
    counted = [line for line in page.splitlines() if line.startswith("gateway_re") and line.endswith(" 26.0")]
    assert len(counted) == 2
    assert any('outcome="refused"' in line for line in counted)
    assert any('reason="bad_request"' in line for line in counted)
