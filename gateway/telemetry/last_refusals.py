"""The last refusals, for the status page: a part of their log lines, kept for a while."""

from collections import deque

from gateway.telemetry.request_log import RequestRecord
from gateway.wire.status import RefusalStatus

MOST_REFUSALS = 50
_LONGEST_MESSAGE = 400


class LastRefusals:
    """A ring: the oldest goes when there are too many."""

    __slots__ = ("_refusals",)

    def __init__(self, most: int = MOST_REFUSALS) -> None:
        self._refusals: deque[RefusalStatus] = deque(maxlen=most)

    def note(self, record: RequestRecord) -> None:
        """Keeps what the page shows of a refusal, or in shadow mode of what would be one; nothing of all else."""
        reason = record.reason or record.shadow_reason
        if reason is None:
            return
        self._refusals.append(
            RefusalStatus(
                time=record.time,
                request_id=record.request_id,
                endpoint=record.endpoint,
                reason=reason,
                status=record.status,
                message=_shortened(record.message),
                short=record.short,
                model=record.model,
                tenant=record.tenant,
                priority=record.priority,
                upstream=record.upstream,
                images=record.images,
                queue_ms=record.queue_ms,
                is_told=record.reason is None,
            )
        )

    def newest_first(self) -> list[RefusalStatus]:
        return [*reversed(self._refusals)]


def _shortened(message: str | None) -> str | None:
    """Also without what JSON cannot say, such as half a surrogate pair in a client's text."""
    if message is None:
        return None
    text = message if len(message) <= _LONGEST_MESSAGE else message[:_LONGEST_MESSAGE] + "…"
    return text.encode(errors="replace").decode()
