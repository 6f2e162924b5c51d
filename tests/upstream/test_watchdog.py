"""A pause of this process is nobody's silence."""

from gateway.upstream.watchdog import Deadline, UpstreamTimeouts, Watchdog


class Loop:
    """A clock that is set, and the one timer."""

    def __init__(self):
        self.now = 0.0
        self.look = None

    def time(self):
        return self.now

    def call_later(self, _seconds, look):
        self.look = look

    def look_at(self, now):
        self.now = now
        self.look()


class Waiting:
    def __init__(self, timeouts):
        self.deadline = Deadline(0.0, timeouts, is_streaming=True)
        self.verdicts = []

    def time_out(self, verdict):
        self.verdicts.append(verdict)


def watched(**limits):
    timeouts = UpstreamTimeouts(**limits)
    loop, waiting = Loop(), Waiting(timeouts)
    watchdog = Watchdog(loop, timeouts.look_seconds)
    watchdog.watch(waiting)
    return loop, waiting


def test_silence_is_ended():
    loop, waiting = watched(first_event_seconds=10.0)
    for second in range(1, 10):
        loop.look_at(float(second))
    assert waiting.verdicts == []
    loop.look_at(10.0)
    assert waiting.verdicts == ["nothing came within the limit for silence"]


def test_a_pause_is_added_and_silence_behind_it_is_ended_still():
    loop, waiting = watched(first_event_seconds=10.0)
    loop.look_at(1.0)
    loop.look_at(32.0)  # thirty seconds late
    assert waiting.verdicts == []
    for second in range(33, 40):
        loop.look_at(float(second))
    assert waiting.verdicts == []
    loop.look_at(40.0)
    assert len(waiting.verdicts) == 1


def test_a_loop_that_is_only_busy_is_pardoned_nothing():
    loop, waiting = watched(first_event_seconds=2.0)
    for tenths in (9, 18, 27):
        loop.look_at(tenths / 10)
    assert len(waiting.verdicts) == 1
