import asyncio
import random

import pytest

from gateway.domain.errors import GatewayError
from gateway.domain.growth import OutputGrowth
from gateway.domain.outcome import Ending, Reason
from gateway.domain.priority import Priority
from gateway.domain.quantities import Amounts, Capacity, Resource
from gateway.domain.queue import QueuePolicy
from gateway.domain.ticket import Newcomer, Ticket
from gateway.ledger.gate import Gate
from gateway.ledger.local import LocalLedger

MEGAPIXEL = 1_000_000


@pytest.fixture
def gate(clock) -> Gate:
    return gate_with(clock)


def gate_with(clock, **policy) -> Gate:
    ledger = LocalLedger(Capacity(10, None, 1_000))
    return Gate(ledger, QueuePolicy(**policy), clock=clock, call_later=clock.call_later, jitter=lambda: 0.0)


def ticket(clock, blocks=10, *, wait=30.0, encoder=0, pixels=0, reserved_tokens=64, **fields) -> Ticket:
    amounts, growth = Amounts(blocks, 1, encoder, pixels), OutputGrowth(reserved_tokens)
    return Ticket(amounts, clock.now, clock.now + wait, body_bytes=100, growth=growth, **fields)


def held(gate) -> tuple[int, ...]:
    return gate.statistics().holdings.held


async def waiting(gate, one) -> asyncio.Task:
    """A task that stands in line."""
    depth = gate.statistics().admission.queue_depth
    task = asyncio.create_task(gate.admit(one))
    await asyncio.sleep(0)
    assert gate.statistics().admission.queue_depth == depth + 1
    return task


class TestAdmission:
    async def test_at_once_where_there_is_room(self, gate, clock):
        lease = await gate.admit(ticket(clock, 4))
        assert lease.held == Amounts(4, 1)
        assert lease.queue_seconds == 0.0
        assert gate.statistics().leases == 1
        assert clock.pending == []

    async def test_a_waiter_is_woken_by_the_one_who_leaves(self, gate, clock):
        first = await gate.admit(ticket(clock))
        task = await waiting(gate, ticket(clock))
        clock.advance(3.0)
        first.close(Ending.DONE)
        second = await task
        assert second.queue_seconds == 3.0
        assert held(gate) == (10, 1, 0, 0, 0, 0)

    async def test_the_line_is_kept(self, gate, clock):
        first = await gate.admit(ticket(clock))
        tasks = [await waiting(gate, ticket(clock, blocks)) for blocks in (10, 1, 1)]
        first.close(Ending.DONE)
        second = await tasks[0]
        assert not tasks[1].done()
        second.close(Ending.DONE)
        for task in tasks[1:]:
            (await task).close(Ending.DONE)
        assert held(gate) == (0, 0, 0, 0, 0, 0)

    async def test_a_deadline_ends_the_wait(self, gate, clock):
        await gate.admit(ticket(clock))
        task = await waiting(gate, ticket(clock, wait=30.0))
        clock.advance(29.9)
        await asyncio.sleep(0)
        assert not task.done()
        clock.advance(0.1)
        with pytest.raises(GatewayError) as caught:
            await task
        assert (caught.value.status, caught.value.reason) == (503, Reason.DEADLINE_PASSED)
        assert gate.statistics().admission.queue_depth == 0

    async def test_one_timer_serves_all_deadlines(self, gate, clock):
        await gate.admit(ticket(clock))
        late = await waiting(gate, ticket(clock, wait=20.0))
        middle = await waiting(gate, ticket(clock, wait=30.0))
        early = await waiting(gate, ticket(clock, wait=10.0))
        assert clock.pending == [110.0]
        clock.advance(25.0)
        await asyncio.sleep(0)
        assert (early.done(), late.done(), middle.done()) == (True, True, False)
        clock.advance(5.0)
        results = await asyncio.gather(early, late, middle, return_exceptions=True)
        assert [result.reason for result in results] == [Reason.DEADLINE_PASSED] * 3
        assert clock.pending == []

    async def test_a_full_queue_refuses_here_and_at_the_door(self, clock):
        gate = gate_with(clock, requests=1)
        gate.refuse_if_full(Newcomer(100))
        first = await gate.admit(ticket(clock))
        gate.refuse_if_full(Newcomer(100))
        task = await waiting(gate, ticket(clock))
        with pytest.raises(GatewayError, match="The queue is full: 1 requests wait") as caught:
            await gate.admit(ticket(clock))
        assert (caught.value.status, caught.value.reason) == (429, Reason.QUEUE_FULL)
        with pytest.raises(GatewayError, match="The queue is full"):
            gate.refuse_if_full(Newcomer(100))
        first.close(Ending.DONE)
        (await task).close(Ending.DONE)
        gate.refuse_if_full(Newcomer(100))

    async def test_what_fits_past_the_line_is_let_in_when_it_comes(self, gate, clock):
        image = await gate.admit(ticket(clock, 1, encoder=900, pixels=MEGAPIXEL))
        task = await waiting(gate, ticket(clock, 1, encoder=900, pixels=MEGAPIXEL))
        text = await gate.admit(ticket(clock, 1))
        assert text.queue_seconds == 0.0
        image.close(Ending.DONE)
        assert (await task).held.encoder_tokens == 900

    async def test_who_loses_his_place_is_told_at_once(self, clock):
        gate = gate_with(clock, requests=1)
        holder = await gate.admit(ticket(clock))
        loser = await waiting(gate, ticket(clock, priority=Priority.BATCH))
        winner = asyncio.create_task(gate.admit(ticket(clock)))
        with pytest.raises(GatewayError, match="A more urgent request took the place") as caught:
            await loser
        assert (caught.value.status, caught.value.reason) == (429, Reason.SHED_PRIORITY)
        holder.close(Ending.DONE)
        assert (await winner).held == Amounts(10, 1)

    async def test_more_capacity_wakes_waiters(self, gate, clock):
        await gate.admit(ticket(clock))
        task = await waiting(gate, ticket(clock))
        gate.set_capacity(Resource.KV_BLOCKS, 20)
        assert (await task).held == Amounts(10, 1)


class TestClientLeft:
    async def test_in_line_it_leaves_no_trace_and_makes_way(self, gate, clock):
        await gate.admit(ticket(clock, 6))
        head = await waiting(gate, ticket(clock, 9))
        second = await waiting(gate, ticket(clock, 4, cost_tokens=2))
        head.cancel()
        lease = await second
        assert head.cancelled()
        assert lease.held.kv_blocks == 4
        assert held(gate) == (10, 2, 0, 0, 0, 0)

    async def test_cancelled_in_the_moment_of_admission(self, gate, clock):
        first = await gate.admit(ticket(clock))
        task = await waiting(gate, ticket(clock))
        after = await waiting(gate, ticket(clock))
        first.close(Ending.DONE)
        task.cancel()
        lease = await after
        assert task.cancelled()
        assert held(gate) == (10, 1, 0, 0, 0, 0)
        lease.close(Ending.DONE)
        assert held(gate) == (0, 0, 0, 0, 0, 0)

    async def test_admitted_in_the_moment_of_cancellation(self, gate, clock):
        first = await gate.admit(ticket(clock))
        task = await waiting(gate, ticket(clock))
        task.cancel()
        first.close(Ending.DONE)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert held(gate) == (0, 0, 0, 0, 0, 0)
        assert gate.statistics().leases == 0

    async def test_cancelled_in_the_moment_of_refusal(self, gate, clock):
        first = await gate.admit(ticket(clock))
        task = await waiting(gate, ticket(clock, wait=5.0))
        clock.advance(5.0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        first.close(Ending.DONE)
        assert held(gate) == (0, 0, 0, 0, 0, 0)

    async def test_any_mixture_of_endings_leaves_nothing_behind(self, clock):
        gate, dice = gate_with(clock, requests=20), random.Random(7)

        async def visit() -> None:
            lease = await gate.admit(
                ticket(clock, dice.randint(1, 12), wait=dice.uniform(0, 3), encoder=dice.choice([0, 300]), pixels=9)
            )
            try:
                for _ in range(dice.randint(0, 4)):
                    await asyncio.sleep(0)
                lease.sent(is_streamed=dice.random() < 0.5)
                await asyncio.sleep(0)
                lease.first_event()
                lease.grow(dice.randint(0, 500))
                await asyncio.sleep(0)
                if dice.random() < 0.5:
                    lease.close(Ending.DONE)
            finally:
                lease.abandon()

        tasks: list[asyncio.Task] = []
        for _ in range(400):
            tasks.append(asyncio.create_task(visit()))
            if dice.random() < 0.4:
                dice.choice(tasks).cancel()
            if dice.random() < 0.3:
                await asyncio.sleep(0)
            clock.advance(dice.uniform(0, 0.3))
        for _ in range(50):
            await asyncio.sleep(0)
            clock.advance(1.0)
        results = await asyncio.gather(*tasks, return_exceptions=True)
        kinds = {type(result) for result in results}
        assert kinds == {type(None), asyncio.CancelledError, GatewayError}
        statistics = gate.statistics()
        assert statistics.holdings.held == (0, 0, 0, 0, 0, 0)
        assert statistics.leases == statistics.admission.queue_depth == statistics.admission.queue_bytes == 0


class TestLease:
    async def test_the_first_event_frees_encoder_and_preprocessing(self, gate, clock):
        lease = await gate.admit(ticket(clock, encoder=900, pixels=MEGAPIXEL))
        lease.sent(is_streamed=True)
        assert held(gate) == (10, 1, 900, MEGAPIXEL, 0, 0)
        clock.advance(1.0)
        lease.first_event()
        assert held(gate) == (10, 1, 0, 0, 0, 0)
        assert lease.held == Amounts(10, 1)
        lease.first_event()
        lease.close(Ending.DONE)
        assert held(gate) == (0, 0, 0, 0, 0, 0)
        assert clock.pending == []

    async def test_the_first_event_frees_blocks_that_lie_before_the_windows(self, gate, clock):
        lease = await gate.admit(ticket(clock, encoder=900, prefill_kv_blocks=6))
        lease.sent(is_streamed=True)
        lease.grow(64 + 16)
        assert held(gate) == (14, 1, 900, 0, 0, 0)
        for _ in range(2):
            lease.first_event()
            assert held(gate) == (8, 1, 0, 0, 0, 0)
        lease.close(Ending.DONE)
        assert held(gate) == (0, 0, 0, 0, 0, 0)

    async def test_what_the_first_event_frees_lets_waiters_in(self, gate, clock):
        lease = await gate.admit(ticket(clock, 1, encoder=900, pixels=MEGAPIXEL))
        task = await waiting(gate, ticket(clock, 1, encoder=900, pixels=MEGAPIXEL))
        lease.sent(is_streamed=True)
        lease.first_event()
        assert (await task).held.encoder_tokens == 900

    async def test_without_a_stream_they_are_freed_when_the_thread_should_be_through(self, gate, clock):
        first = await gate.admit(ticket(clock, 1, encoder=100, pixels=10 * MEGAPIXEL))
        second = await gate.admit(ticket(clock, 1, encoder=100, pixels=20 * MEGAPIXEL))
        for lease in (first, second):
            lease.sent(is_streamed=False)
        clock.advance(0.49)
        assert held(gate) == (2, 2, 200, 30 * MEGAPIXEL, 0, 0)
        clock.advance(0.01)
        assert held(gate) == (2, 2, 100, 20 * MEGAPIXEL, 0, 0)
        clock.advance(1.0)
        assert held(gate) == (2, 2, 0, 0, 0, 0)

    async def test_an_answer_before_that_leaves_no_timer(self, gate, clock):
        lease = await gate.admit(ticket(clock, encoder=100, pixels=10 * MEGAPIXEL))
        lease.sent(is_streamed=False)
        lease.close(Ending.DONE)
        assert clock.pending == []
        assert held(gate) == (0, 0, 0, 0, 0, 0)

    async def test_text_has_nothing_to_free(self, gate, clock):
        lease = await gate.admit(ticket(clock))
        lease.sent(is_streamed=False)
        lease.first_event()
        assert clock.pending == []
        assert lease.held == Amounts(10, 1)

    async def test_a_stream_that_ends_before_its_first_event(self, gate, clock):
        lease = await gate.admit(ticket(clock, encoder=100, pixels=MEGAPIXEL))
        lease.sent(is_streamed=True)
        lease.close(Ending.DROPPED)
        assert held(gate) == (0, 0, 0, 0, 0, 0)
        assert gate.statistics().preprocess_rate == 20e6
        after = await gate.admit(ticket(clock, pixels=30 * MEGAPIXEL))
        after.sent(is_streamed=True)
        clock.advance(0.5)
        after.first_event()
        assert gate.statistics().preprocess_rate == 40e6

    async def test_first_events_teach_the_rate_and_so_the_capacity(self, gate, clock):
        lease = await gate.admit(ticket(clock, pixels=30 * MEGAPIXEL))
        lease.sent(is_streamed=True)
        clock.advance(0.5)
        lease.first_event()
        assert gate.statistics().preprocess_rate == 40e6
        assert (
            gate.statistics().holdings.capacity[Resource.PREPROCESS_PIXELS] == 95_000_000
        )  # two seconds, and half of the largest

    async def test_growth_beyond_the_reservation_shows_and_stops_newcomers(self, gate, clock):
        lease = await gate.admit(ticket(clock, 8, reserved_tokens=64))
        lease.grow(64)
        assert held(gate)[0] == 8
        for generated in (65, 100, 128):
            lease.grow(generated)
            assert held(gate)[0] == 12
        assert gate.holdings().overcommit_blocks == 2
        task = await waiting(gate, ticket(clock, 1))
        lease.grow(129)
        assert lease.held.kv_blocks == 16
        lease.close(Ending.DONE)
        assert (await task).held.kv_blocks == 1
        assert held(gate)[0] == 1

    async def test_closed_exactly_once(self, gate, clock):
        lease = await gate.admit(ticket(clock))
        assert lease.is_open
        lease.close(Ending.DONE)
        assert not lease.is_open
        assert lease.held == Amounts()
        with pytest.raises(RuntimeError, match="closed before"):
            lease.close(Ending.DONE)
        lease.abandon()
        lease.first_event()
        lease.sent(is_streamed=True)
        lease.grow(10_000)
        assert held(gate) == (0, 0, 0, 0, 0, 0)

    async def test_abandon_closes_what_nobody_closed(self, gate, clock):
        (await gate.admit(ticket(clock))).abandon()
        assert held(gate) == (0, 0, 0, 0, 0, 0)
        assert gate.statistics().endings == {Ending.DONE: 0, Ending.IGNORED: 1, Ending.DROPPED: 0}


class SharedLedger(LocalLedger):
    """A ledger that got more of the engine in the background."""

    __slots__ = ("is_stopped", "on_more")

    async def start(self, on_more, waiting):
        assert waiting().depth == 0
        self.on_more = on_more

    async def stop(self):
        self.is_stopped = True


async def test_a_share_that_grew_in_the_background_wakes_waiters(clock):
    ledger = SharedLedger(Capacity(10))
    gate = Gate(ledger, QueuePolicy(), clock=clock, call_later=clock.call_later, jitter=lambda: 0.0)
    await gate.start()
    first = await gate.admit(ticket(clock))
    task = await waiting(gate, ticket(clock))
    ledger.set_capacity(Resource.KV_BLOCKS, 20)
    ledger.on_more()
    for lease in (first, await task):
        lease.close(Ending.DONE)
    await gate.stop()
    assert ledger.is_stopped
    assert clock.pending == []


async def test_stopping_an_idle_gate(gate, clock):
    await gate.start()
    await gate.stop()
    assert clock.pending == []


async def test_runs_on_the_event_loops_own_clock():
    loop = asyncio.get_running_loop()
    gate = Gate(
        LocalLedger(Capacity(10)),
        QueuePolicy(),
        clock=loop.time,
        call_later=loop.call_later,
        jitter=random.random,
    )
    first = await gate.admit(Ticket(Amounts(10), loop.time(), loop.time() + 30.0))
    with pytest.raises(GatewayError, match="waited for its turn in vain"):
        await gate.admit(Ticket(Amounts(10), loop.time(), loop.time()))
    first.close(Ending.DONE)
