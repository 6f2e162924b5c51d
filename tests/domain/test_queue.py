import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.domain.cost import EngineLimits, estimate
from gateway.domain.outcome import Reason
from gateway.domain.quantities import Amounts, Bounds
from gateway.domain.queue import SMALL_BODY_BYTES, QueuePolicy, Ticket, WaitQueue
from gateway.domain.request import VisionRequest

LARGE = SMALL_BODY_BYTES + 1


def ticket(body_bytes=100, deadline=30.0) -> Ticket:
    return Ticket(Amounts(sequences=1), 0.0, deadline, body_bytes=body_bytes, cost_tokens=7)


def queue_with(*tickets, **policy) -> WaitQueue:
    queue = WaitQueue(QueuePolicy(**policy))
    for each in tickets:
        queue.join(each)
    return queue


def test_first_come_first_served():
    first, second = ticket(), ticket()
    queue = queue_with(first, second)
    assert queue.head() is first
    queue.leave(first)
    assert queue.head() is second
    assert first not in queue
    assert second in queue
    queue.leave(second)
    assert queue.head() is None


def test_leaving_twice_is_an_error():
    gone = ticket()
    queue = queue_with(gone)
    queue.leave(gone)
    with pytest.raises(KeyError):
        queue.leave(gone)


def test_equal_tickets_are_still_two():
    one, other = ticket(), ticket()
    queue = queue_with(one, other)
    queue.leave(other)
    assert queue.head() is one


def test_deadlines_pass_in_their_own_order():
    late, early, middle = ticket(deadline=30.0), ticket(deadline=10.0), ticket(deadline=20.0)
    queue = queue_with(late, early, middle)
    assert queue.next_deadline == 10.0
    assert queue.pop_expired(9.9) is None
    assert queue.pop_expired(20.0) is early
    assert queue.pop_expired(20.0) is middle
    assert queue.pop_expired(20.0) is None
    assert queue.head() is late
    assert queue.pop_expired(30.0) is late
    assert queue.next_deadline is None
    assert queue.pop_expired(99.0) is None


def test_full_by_count():
    queue = queue_with(*[ticket() for _ in range(4)], requests=4)
    assert queue.obstacle(1) is Reason.QUEUE_FULL
    assert queue.free_places == 0


def test_a_quarter_of_the_places_is_kept_for_small_bodies():
    queue = queue_with(*[ticket(LARGE) for _ in range(3)], requests=4)
    assert queue.obstacle(LARGE) is Reason.QUEUE_FULL
    assert queue.obstacle(SMALL_BODY_BYTES) is None


def test_full_by_bytes():
    queue = queue_with(ticket(900), body_bytes=1_000)
    assert queue.obstacle(100) is None
    assert queue.obstacle(101) is Reason.QUEUE_BYTES


def test_a_quarter_of_the_bytes_is_kept_for_small_bodies():
    queue = queue_with(ticket(2 * LARGE), body_bytes=4 * LARGE)
    assert queue.obstacle(LARGE) is None
    assert queue.obstacle(LARGE + 1) is Reason.QUEUE_BYTES
    assert queue.obstacle(SMALL_BODY_BYTES) is None


def test_a_body_larger_than_the_large_share_waits_as_the_only_large_one():
    queue = queue_with(ticket(100), body_bytes=4 * LARGE)
    assert queue.obstacle(4 * LARGE - 100) is None
    queue.join(ticket(LARGE))
    assert queue.obstacle(3 * LARGE - 200) is Reason.QUEUE_BYTES


def test_departures_until_there_is_room():
    queue = queue_with(*[ticket() for _ in range(4)], requests=4)
    assert queue.departures_until_room(1) == 1
    assert queue_with(ticket()).departures_until_room(1) == 0
    assert queue_with().departures_until_room(1) == 0


def test_departures_until_there_are_enough_bytes_at_their_mean_size():
    queue = queue_with(*[ticket(250) for _ in range(4)], body_bytes=1_000)
    assert queue.departures_until_room(250) == 1
    assert queue.departures_until_room(251) == 2
    assert queue.departures_until_room(1_000) == 4


def test_departures_until_a_large_one_left():
    smalls = [ticket(0) for _ in range(5)]
    queue = queue_with(ticket(LARGE), ticket(LARGE), ticket(LARGE), *smalls, requests=100, body_bytes=4 * LARGE)
    assert queue.departures_until_room(LARGE) == 3
    crowd = queue_with(*[ticket(LARGE) for _ in range(3)], requests=4)
    assert crowd.departures_until_room(LARGE) == 1


def test_what_a_ticket_takes_from_the_cost():
    request = VisionRequest("m", n=2, prompt_token_ids=100)
    cost = estimate(request, (), (), text=Bounds.exact(20), output_tokens=16, limits=EngineLimits(), body_bytes=3_000)
    made = Ticket.of(cost, arrived=5.0, wait_seconds=30.0, is_return=True)
    assert made.amounts == cost.amounts
    assert made.growth == cost.growth
    assert (made.arrived, made.deadline, made.body_bytes, made.cost_tokens) == (5.0, 35.0, 3_000, 152)
    assert made.is_return


@settings(max_examples=40)
@given(
    joins=st.lists(
        st.tuples(st.sampled_from([0, 100, SMALL_BODY_BYTES, LARGE, 3 * LARGE]), st.floats(0, 100)), max_size=40
    ),
    data=st.data(),
)
def test_the_sums_are_those_of_the_tickets(joins, data):
    policy = QueuePolicy(requests=20, body_bytes=12 * LARGE)
    queue, waiting = WaitQueue(policy), []
    for body_bytes, deadline in joins:
        if queue.obstacle(body_bytes) is None:
            waiting.append(ticket(body_bytes, deadline))
            queue.join(waiting[-1])
        elif waiting:
            queue.leave(waiting.pop(data.draw(st.integers(0, len(waiting) - 1))))
        large = [each.body_bytes for each in waiting if each.body_bytes > SMALL_BODY_BYTES]
        assert queue.head() is (waiting[0] if waiting else None)
        assert len(queue) == len(waiting) <= policy.requests
        assert queue.body_bytes == sum(each.body_bytes for each in waiting) <= policy.body_bytes
        assert queue.cost_tokens == 7 * len(waiting)
        assert queue.next_deadline == min((each.deadline for each in waiting), default=None)
        assert len(large) <= policy.large_requests
        assert len(large) <= 1 or sum(large) <= policy.large_body_bytes
