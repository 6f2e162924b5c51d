import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.domain.outcome import Reason
from gateway.domain.priority import Priority
from gateway.domain.quantities import Amounts
from gateway.domain.queue import QueuePolicy, WaitQueue
from gateway.domain.ticket import SMALL_BODY_BYTES, Newcomer, Ticket

LARGE = SMALL_BODY_BYTES + 1


def ticket(body_bytes=100, deadline=30.0, **fields) -> Ticket:
    return Ticket(Amounts(sequences=1), 0.0, deadline, body_bytes=body_bytes, cost_tokens=7, **fields)


def queue_with(*tickets, **policy) -> WaitQueue:
    queue = WaitQueue(QueuePolicy(**policy))
    for each in tickets:
        queue.join(each)
    return queue


def test_first_come_first_served():
    first, second = ticket(), ticket()
    queue = queue_with(first, second)
    assert list(queue.candidates(0.0)) == [first, second]
    queue.leave(first)
    assert list(queue.candidates(0.0)) == [second]
    queue.leave(second)
    assert list(queue.candidates(0.0)) == []


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
    assert list(queue.candidates(0.0)) == [one]


def test_what_waiters_will_take_is_summed_for_texts_and_for_images():
    text, image = ticket(), ticket()
    image.amounts = Amounts(30, 1, 400, 784_000)
    queue = queue_with(text, image, ticket())
    assert (queue.wanted_by_texts, queue.wanted_by_images) == (Amounts(0, 2), image.amounts)
    queue.leave(text)
    queue.admit(image, 1.0, in_turn=True)
    assert (queue.wanted_by_texts, queue.wanted_by_images) == (Amounts(0, 1), Amounts())


def test_deadlines_pass_in_their_own_order():
    late, early, middle = ticket(deadline=30.0), ticket(deadline=10.0), ticket(deadline=20.0)
    queue = queue_with(late, early, middle)
    assert queue.next_deadline == 10.0
    assert queue.pop_expired(9.9) is None
    assert queue.pop_expired(20.0) is early
    assert queue.pop_expired(20.0) is middle
    assert queue.pop_expired(20.0) is None
    assert list(queue.candidates(20.0)) == [late]
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


def test_admission_takes_it_out_of_the_sums_too():
    first, second = ticket(), ticket(LARGE, deadline=10.0)
    queue = queue_with(first, second)
    queue.admit(second, 1.0, in_turn=False)
    assert (len(queue), queue.body_bytes, queue.cost_tokens, queue.next_deadline) == (1, 100, 7, 30.0)
    with pytest.raises(KeyError):
        queue.admit(second, 1.0, in_turn=True)


class TestWhoMakesRoom:
    """Places that are short only for large bodies come free only where a large one goes; so do bytes."""

    def test_large_places(self):
        large = [ticket(LARGE, priority=Priority.BATCH) for _ in range(3)]
        queue = queue_with(*large, ticket(priority=Priority.BATCH), requests=4)
        assert queue.displaced_by(Newcomer(LARGE)) is large[-1]

    def test_a_place_of_a_small_one_where_large_ones_have_places_left(self):
        small = ticket(priority=Priority.BATCH)
        queue = queue_with(*[ticket(LARGE) for _ in range(2)], ticket(), small, requests=4)
        assert queue.displaced_by(Newcomer(LARGE)) is small

    def test_a_small_one_displaces_a_large_one(self):
        large = ticket(LARGE, priority=Priority.BATCH)
        queue = queue_with(ticket(priority=Priority.BATCH), large, requests=2)
        assert queue.displaced_by(Newcomer(100)) is large

    def test_not_one_whose_place_was_kept(self):
        waiting, kept = ticket(tenant="greedy"), ticket(tenant="greedy")
        kept.keeps_place = True
        assert queue_with(waiting, kept, requests=2).displaced_by(Newcomer(tenant="polite")) is waiting

    def test_bytes(self):
        bodies = [ticket(size, tenant="greedy") for size in (500, 300, 200)]
        queue = queue_with(*bodies, body_bytes=1_000)
        assert queue.displaced_by(Newcomer(200, tenant="polite")) is bodies[2]
        assert queue.displaced_by(Newcomer(300, tenant="polite")) is bodies[1]
        assert queue.displaced_by(Newcomer(501, tenant="polite")) is None

    def test_the_large_share_of_the_bytes(self):
        bodies = [ticket(size, tenant="greedy") for size in (2 * LARGE, LARGE)]
        queue = queue_with(*bodies, ticket(100, tenant="greedy"), body_bytes=4 * LARGE)
        assert queue.displaced_by(Newcomer(LARGE, tenant="polite")) is bodies[1]
        assert queue.displaced_by(Newcomer(2 * LARGE, tenant="polite")) is bodies[0]
        assert queue.displaced_by(Newcomer(3 * LARGE, tenant="polite")) is None


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
        assert next(queue.candidates(0.0), None) is (waiting[0] if waiting else None)
        assert len(queue) == len(waiting) <= policy.requests
        assert queue.body_bytes == sum(each.body_bytes for each in waiting) <= policy.body_bytes
        assert queue.cost_tokens == 7 * len(waiting)
        assert queue.next_deadline == min((each.deadline for each in waiting), default=None)
        assert len(large) <= policy.large_requests
        assert len(large) <= 1 or sum(large) <= policy.large_body_bytes
