"""While the engine turns requests away nobody is let in, and nobody is refused for it who can wait."""

from gateway.domain.admission import Admission
from gateway.domain.decision import Refusal, Verdict
from gateway.domain.errors import Code
from gateway.domain.holdings import Holdings
from gateway.domain.outcome import Reason
from gateway.domain.quantities import Amounts, Capacity
from gateway.domain.queue import QueuePolicy
from gateway.domain.ticket import Ticket


def admission(**policy: int) -> Admission:
    return Admission(Holdings(Capacity(100)), QueuePolicy(**policy), jitter=lambda: 0.0)


def ticket(arrived: float, wait: float = 30.0) -> Ticket:
    return Ticket(Amounts(1, 1), arrived, arrived + wait)


def test_who_comes_waits_until_the_pause_is_over() -> None:
    door, first, second = admission(), ticket(1.0), ticket(2.0)
    door.pause_until(5.0)
    for each in (first, second):
        assert door.offer(each, each.arrived) is Verdict.WAITING
    assert door.tick(4.9) == []
    assert door.next_deadline == 5.0
    assert door.tick(5.0) == [(first, Verdict.ADMITTED), (second, Verdict.ADMITTED)]
    assert door.next_deadline is None


def test_the_time_of_who_waits_goes_on() -> None:
    door, hasty = admission(), ticket(1.0, wait=2.0)
    door.pause_until(5.0)
    door.offer(hasty, 1.0)
    assert door.next_deadline == 3.0
    ((refused, decision),) = door.tick(3.0)
    assert refused is hasty
    assert isinstance(decision, Refusal)
    assert decision.reason is Reason.DEADLINE_PASSED


def test_a_pause_is_never_shortened_and_leaves_nothing_behind() -> None:
    door = admission()
    door.pause_until(5.0)
    door.pause_until(3.0)
    late, later = ticket(4.0), ticket(6.0)
    assert door.offer(late, 4.0) is Verdict.WAITING
    assert door.tick(5.0) == [(late, Verdict.ADMITTED)]
    assert door.offer(later, 6.0) is Verdict.ADMITTED


def test_without_a_queue_the_refusal_names_the_end_of_the_pause() -> None:
    door = admission(requests=0)
    door.pause_until(5.0)
    refusal = door.offer(ticket(3.0), 3.0)
    assert isinstance(refusal, Refusal)
    error = refusal.error(door.policy)
    assert (error.code, error.reason) == (Code.SERVER_IS_OVERLOADED, Reason.UPSTREAM_BACKPRESSURE)
    assert error.retry_after_seconds == 2.0
    assert error.message.startswith("The model server turns requests away and this gateway keeps no queue.")
    assert door.offer(ticket(5.0), 5.0) is Verdict.ADMITTED
