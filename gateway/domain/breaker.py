"""Whether a model server is worth sending to, judged by what became of the last requests and by whether it works.

A breaker is closed while all is well, open after too many failures, and half open once its time is up: then one request
at a time is sent to see. Only what says that the server is broken counts: connections that fail, 5xx answers, silence.
Back-pressure (429, 503) says that it is busy, client errors say that it works.
"""

from collections import deque
from collections.abc import Hashable

_LAST_OUTCOMES = 10
_TOO_MANY_FAILURES = 5
_FORGOTTEN_SECONDS = 30.0
_OPEN_SECONDS = 5.0
_LONGEST_OPEN_SECONDS = 60.0
_PROBE_SECONDS = 1.0
FROZEN_SECONDS = 15.0
"""An engine that owes an answer takes a step many times a second; the longest step of a large prefill takes some."""


class Breaker:
    """Opens when five of the last ten requests failed within half a minute. Stays open for 5 s, after each failed trial
    for twice as long, a minute at most. Times are seconds of the caller's clock.
    """

    __slots__ = ("_is_closed", "_next_probe", "_open_seconds", "_open_until", "_outcomes")

    def __init__(self) -> None:
        self._is_closed = True
        self._outcomes: deque[tuple[float, bool]] = deque(maxlen=_LAST_OUTCOMES)
        self._open_seconds = _OPEN_SECONDS
        self._open_until = 0.0
        self._next_probe = 0.0

    def allows(self, now: float) -> bool:
        """A request may be sent now, for all that is known here."""
        return self._is_closed or (now >= self._open_until and now >= self._next_probe)

    def sent(self, now: float) -> None:
        """A request is on its way. Half open, it is the trial, and the next may follow in a second: an end that says
        nothing, such as a client that left, must not keep the server out for ever.
        """
        if not self._is_closed:
            self._next_probe = now + _PROBE_SECONDS

    def succeeded(self, now: float) -> None:
        """An answer came whole, or one that says that the client was wrong."""
        if not self._is_closed:
            if now >= self._open_until:
                self._close()
        elif self._outcomes:
            self._note(now, has_failed=False)

    def failed(self, now: float) -> None:
        if self._is_closed:
            self._note(now, has_failed=True)
            if sum(has_failed for _, has_failed in self._outcomes) >= _TOO_MANY_FAILURES:
                self._open(now)
        elif now >= self._open_until:
            self._open_seconds = min(2 * self._open_seconds, _LONGEST_OPEN_SECONDS)
            self._open(now)

    def froze(self, now: float) -> None:
        """It owes answers and does no work. To be told again as long as it is so."""
        self._open(now)

    def _open(self, now: float) -> None:
        self._is_closed = False
        self._open_until = now + self._open_seconds
        self._outcomes.clear()

    def _close(self) -> None:
        self._is_closed = True
        self._open_seconds = _OPEN_SECONDS

    def _note(self, now: float, *, has_failed: bool) -> None:
        self._outcomes.append((now, has_failed))
        while self._outcomes and now - self._outcomes[0][0] > _FORGOTTEN_SECONDS:
            self._outcomes.popleft()
        if not any(has_failed for _, has_failed in self._outcomes):
            self._outcomes.clear()


class Progress:
    """Whether a server that owes answers still works, looked at now and then.

    That it answers `/health` says nothing: it does so with a frozen engine too.
    """

    __slots__ = ("_made", "_moved_at")

    def __init__(self) -> None:
        self._made: Hashable = None
        self._moved_at = 0.0

    def is_frozen(self, now: float, made: Hashable, *, is_owed: bool) -> bool:
        """`made` is whatever changes when work gets done, such as counts of steps and of pieces of answers."""
        if made != self._made or not is_owed:
            self._made = made
            self._moved_at = now
        return now - self._moved_at >= FROZEN_SECONDS
