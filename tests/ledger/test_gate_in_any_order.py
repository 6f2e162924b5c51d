"""Whatever tasks, clock and engine do, and in whichever turn of the event loop: what is held is what somebody has."""

import asyncio

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.domain.decision import Refusal, Verdict
from gateway.domain.errors import GatewayError
from gateway.domain.forecast import Forecast
from gateway.domain.growth import OutputGrowth
from gateway.domain.outcome import Ending
from gateway.domain.priority import Priority
from gateway.domain.quantities import Amounts, Resource
from gateway.domain.queue import QueuePolicy
from gateway.domain.slo import ServiceLevel
from gateway.domain.ticket import Ticket
from gateway.ledger.gate import Gate
from gateway.ledger.lease import Lease
from gateway.ledger.local import LocalLedger
from tests.support.clock import FakeClock

PLACES = 6
CAPACITY = {Resource.KV_BLOCKS: 10, Resource.SEQUENCES: 4, Resource.ENCODER_TOKENS: 1_000}

REQUESTS = {
    "blocks": st.integers(0, 12),
    "sequences": st.integers(1, 3),
    "encoder": st.sampled_from([0, 0, 300, 1_200]),
    "wait": st.floats(0, 5),
    "tenant": st.sampled_from("ab"),
    "priority": st.sampled_from(Priority),
}


class AnyOrder(RuleBasedStateMachine):
    """Tasks that sleep in `admit`, and askers that do not sleep; each turn of the event loop is a step of its own."""

    def __init__(self):
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = FakeClock()
        ledger = LocalLedger(tuple(CAPACITY.get(resource) for resource in Resource))
        policy = QueuePolicy(requests=PLACES)
        self.gate = Gate(
            ledger,
            policy,
            clock=self.clock,
            call_later=self.clock.call_later,
            jitter=lambda: 0.5,
            forecast=Forecast.of(ServiceLevel(4.0)),
        )
        self.tasks: list[asyncio.Task[Lease]] = []
        self.asking: dict[Ticket, list[Verdict | Refusal]] = {}
        self.leases: list[Lease] = []
        self.sent: set[Lease] = set()

    def ticket(self, blocks, sequences, encoder, wait, tenant, priority) -> Ticket:
        amounts = Amounts(blocks, sequences, encoder, 20_000 * encoder).with_prefill(500 * sequences)
        now = self.clock.now
        return Ticket(amounts, now, now + wait, 100, growth=OutputGrowth(64), tenant=tenant, priority=priority)

    @rule(**REQUESTS)
    def comes(self, **request):
        self.tasks.append(self.loop.create_task(self.gate.admit(self.ticket(**request))))

    @rule(**REQUESTS)
    def asks(self, **request):
        one, told = self.ticket(**request), []
        decision = self.gate.ask(one, told.append)
        if decision is Verdict.WAITING:
            self.asking[one] = told
            self.hear()
        elif decision is Verdict.ADMITTED:
            self.leases.append(self.gate.lease(one, 0.0))

    def hear(self):
        """Those who asked and were told act on it at once."""
        for one, told in [*self.asking.items()]:
            if told:
                (decision,) = told
                del self.asking[one]
                if decision is Verdict.ADMITTED:
                    self.leases.append(self.gate.lease(one, 0.0))

    @rule()
    def the_loop_turns(self):
        self.loop.run_until_complete(asyncio.sleep(0))
        for task in [task for task in self.tasks if task.done()]:
            self.tasks.remove(task)
            if task.cancelled():
                continue
            error = task.exception()
            assert error is None or isinstance(error, GatewayError)
            if error is None:
                self.leases.append(task.result())
        self.hear()

    @precondition(lambda self: self.tasks)
    @rule(index=st.integers(0, 20))
    def its_client_leaves(self, index):
        self.tasks[index % len(self.tasks)].cancel()

    @precondition(lambda self: self.asking)
    @rule(index=st.integers(0, 20))
    def an_asker_withdraws(self, index):
        one = list(self.asking)[index % len(self.asking)]
        if not self.asking[one]:
            del self.asking[one]
            self.gate.withdraw(one)
            self.hear()

    @precondition(lambda self: self.leases)
    @rule(index=st.integers(0, 20), what=st.sampled_from(["sent", "sent streamed", "first event", "grows"]))
    def it_goes_on(self, index, what):
        lease = self.leases[index % len(self.leases)]
        if what == "first event":
            lease.first_event()
        elif what == "grows":
            lease.grow(40 * index)
        elif lease not in self.sent:
            self.sent.add(lease)
            lease.sent(is_streamed=what == "sent streamed")
        self.hear()

    @precondition(lambda self: self.leases)
    @rule(index=st.integers(0, 20), ending=st.sampled_from(Ending))
    def it_ends(self, index, ending):
        lease = self.leases.pop(index % len(self.leases))
        lease.close(ending)
        lease.abandon()
        self.hear()

    @rule(seconds=st.floats(0, 3))
    def time_passes(self, seconds):
        self.clock.advance(seconds)
        self.hear()

    @rule(seconds=st.floats(0.1, 2))
    def the_engine_turns_away(self, seconds):
        self.gate.pause_until(self.clock.now + seconds)

    @rule(resource=st.sampled_from([*CAPACITY]), share=st.floats(0.1, 1))
    def the_ceiling_moves(self, resource, share):
        self.gate.set_capacity(resource, max(1, int(share * CAPACITY[resource])))
        self.hear()

    @invariant()
    def nobody_holds_what_nobody_has(self):
        statistics = self.gate.statistics()
        had = [sum(lease.held[resource] for lease in self.leases) for resource in Resource]
        # A task may have been let in and not know it yet.
        on_its_way = [held - mine for held, mine in zip(statistics.holdings.held, had, strict=True)]
        assert min(on_its_way) >= 0
        assert self.tasks or not any(on_its_way)
        assert statistics.leases >= len(self.leases)
        assert statistics.admission.queue_depth <= min(PLACES, len(self.tasks) + len(self.asking))

    @invariant()
    def who_waits_is_looked_at_again(self):
        due = self.gate._admission.next_deadline
        assert due is None or min(self.clock.pending) <= due

    def teardown(self):
        for task in self.tasks:
            task.cancel()
        while self.tasks:
            self.the_loop_turns()
        self.clock.advance(60.0)
        self.hear()
        while self.leases:
            self.it_ends(0, Ending.DONE)
        statistics = self.gate.statistics()
        assert not self.asking
        assert not any(statistics.holdings.held)
        assert statistics.leases == statistics.admission.queue_depth == statistics.admission.queue_bytes == 0
        self.loop.close()


AnyOrder.TestCase.settings = settings(max_examples=150, stateful_step_count=50)
TestAnyOrder = AnyOrder.TestCase
