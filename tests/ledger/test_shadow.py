import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.domain.decision import Refusal, Verdict
from gateway.domain.forecast import Forecast
from gateway.domain.growth import OutputGrowth
from gateway.domain.outcome import Ending, Reason
from gateway.domain.quantities import Amounts, Capacity, Resource
from gateway.domain.queue import QueuePolicy
from gateway.domain.slo import ServiceLevel
from gateway.domain.ticket import Ticket
from gateway.ledger.gate import Gate
from gateway.ledger.local import LocalLedger
from gateway.ledger.shadow import ShadowLease, UnadmittedLease
from tests.support.clock import FakeClock

MEGAPIXEL = 1_000_000


@pytest.fixture
def gate(clock):
    return gate_with(clock)


def gate_with(clock, forecast=None, **policy):
    ledger = LocalLedger(Capacity(10, None, 1000))
    return Gate(
        ledger,
        QueuePolicy(**policy),
        clock=clock,
        call_later=clock.call_later,
        jitter=lambda: 0.0,
        forecast=forecast,
    )


def ticket(clock, blocks=10, *, wait=30.0, encoder=0, pixels=0, prefill=0, reserved_tokens=64):
    amounts, growth = Amounts(blocks, 1, encoder, pixels).with_prefill(prefill), OutputGrowth(reserved_tokens)
    return Ticket(amounts, clock.now, clock.now + wait, growth=growth)


def held(gate):
    return gate.statistics().holdings.held


class TestWhatWouldHaveBeen:
    def test_who_fits_holds_what_it_takes(self, gate, clock):
        lease = ShadowLease(gate, ticket(clock))
        assert (lease.decision, lease.held.kv_blocks, lease.would_wait_seconds) == (Verdict.ADMITTED, 10, 0.0)
        assert gate.unadmitted == Amounts()
        lease.close(Ending.DONE)
        assert (held(gate), gate.statistics().leases) == ((0, 0, 0, 0, 0, 0), 0)

    def test_who_asks_for_no_place_gets_none_and_is_at_the_engine(self, gate, clock):
        lease = UnadmittedLease(gate, ticket(clock, 4, encoder=100))
        assert (gate.unadmitted, lease.held) == (Amounts(4, 1, 100), Amounts())
        lease.sent(is_streamed=True)
        lease.first_event()
        lease.grow(1000)
        assert (gate.unadmitted, lease.held) == (Amounts(4, 1), Amounts())
        assert gate.statistics().leases == 1
        lease.close(Ending.DONE)
        assert (gate.unadmitted, held(gate), gate.statistics().leases) == (Amounts(), (0, 0, 0, 0, 0, 0), 0)

    def test_who_is_let_in_at_once_has_waited_for_nothing_however_long_asking_took(self, gate, clock):
        asked = ticket(clock)
        clock.advance(0.01)
        assert ShadowLease(gate, asked).would_wait_seconds == 0.0

    def test_who_would_wait_holds_nothing_until_its_turn(self, gate, clock):
        first, second = ShadowLease(gate, ticket(clock)), ShadowLease(gate, ticket(clock, 4))
        assert (second.decision, second.held, second.is_open) == (Verdict.WAITING, Amounts(), True)
        assert (held(gate)[0], gate.unadmitted) == (10, Amounts(4, 1))
        clock.advance(3.0)
        assert second.would_wait_seconds == 3.0
        first.close(Ending.DONE)
        assert (second.decision, second.held, second.would_wait_seconds) == (Verdict.ADMITTED, Amounts(4, 1), 3.0)
        assert gate.unadmitted == Amounts()
        clock.advance(5.0)
        assert second.would_wait_seconds == 3.0
        second.close(Ending.DONE)
        assert held(gate) == (0, 0, 0, 0, 0, 0)

    def test_who_waits_when_its_answer_ends_leaves_the_line(self, gate, clock):
        first, second = ShadowLease(gate, ticket(clock)), ShadowLease(gate, ticket(clock))
        clock.advance(1.0)
        second.close(Ending.DONE)
        assert gate.statistics().admission.queue_depth == 0
        assert (second.decision, second.would_wait_seconds, gate.unadmitted) == (Verdict.WAITING, 1.0, Amounts())
        first.close(Ending.DONE)
        assert gate.statistics().leases == 0

    def test_who_would_wait_in_vain_is_told_so_and_holds_nothing(self, gate, clock):
        ShadowLease(gate, ticket(clock))
        second = ShadowLease(gate, ticket(clock, wait=2.0))
        clock.advance(2.0)
        assert isinstance(second.decision, Refusal)
        assert (second.decision.reason, second.held) == (Reason.DEADLINE_PASSED, Amounts())
        assert gate.unadmitted == Amounts(10, 1)
        second.abandon()
        assert gate.unadmitted == Amounts()

    def test_who_would_be_refused_keeps_nobody_out(self, clock):
        gate = gate_with(clock, requests=0)
        first = ShadowLease(gate, ticket(clock, 8))
        second = ShadowLease(gate, ticket(clock, 8))
        assert second.decision.reason is Reason.KV_BUDGET
        assert ShadowLease(gate, ticket(clock, 2)).is_admitted
        first.close(Ending.DONE)
        assert ShadowLease(gate, ticket(clock, 8)).is_admitted

    def test_it_closes_once(self, gate, clock):
        lease = ShadowLease(gate, ticket(clock))
        lease.close(Ending.DONE)
        lease.abandon()
        with pytest.raises(RuntimeError):
            lease.close(Ending.DONE)
        assert gate.statistics().endings == {Ending.DONE: 1, Ending.IGNORED: 0, Ending.DROPPED: 0}


class TestOnTheWay:
    def test_what_is_not_held_does_not_grow_and_is_caught_up_with(self, gate, clock):
        first, second = ShadowLease(gate, ticket(clock)), ShadowLease(gate, ticket(clock, 4))
        second.grow(100)
        assert second.held == Amounts()
        first.close(Ending.DONE)
        second.grow(101)
        assert second.held == Amounts(8, 1)

    def test_pictures_that_are_through_before_the_turn_has_come_are_not_held(self, gate, clock):
        first = ShadowLease(gate, ticket(clock))
        second = ShadowLease(gate, ticket(clock, 4, encoder=900, pixels=MEGAPIXEL))
        second.sent(is_streamed=True)
        second.first_event()
        first.close(Ending.DONE)
        assert second.held == Amounts(4, 1)
        assert held(gate)[Resource.ENCODER_TOKENS] == 0

    def test_pictures_that_are_decoded_before_the_turn_has_come_are_in_the_way_of_texts_from_then_on(self, clock):
        gate = gate_with(clock, forecast=Forecast.of(ServiceLevel(4.0)))
        first = ShadowLease(gate, ticket(clock))
        second = ShadowLease(gate, ticket(clock, 4, pixels=MEGAPIXEL, prefill=300))
        second.sent(is_streamed=True)
        clock.advance(1.0)
        assert second.held == Amounts()
        first.close(Ending.DONE)
        assert second.held == Amounts(4, 1, 0, MEGAPIXEL, 300, 0)
        second.close(Ending.DONE)
        assert held(gate) == (0, 0, 0, 0, 0, 0)

    def test_the_way_to_the_first_token_is_learned_from_all(self, gate, clock):
        """A thousand tokens take a second, whoever has a place."""
        leases = [ShadowLease(gate, ticket(clock, prefill=1000)) for _ in range(3)]
        for number, lease in enumerate(leases):
            assert gate.tokens_to_begin(ticket(clock)) == 3000 - 1000 * number
            lease.sent(is_streamed=True)
            lease.first_event()
        assert gate.tokens_to_begin(ticket(clock)) == 0
        assert gate.unadmitted == Amounts(20, 2)

    def test_the_pace_of_preprocessing_is_learned_from_all(self, gate, clock):
        """They share one thread, whoever has a place."""
        ShadowLease(gate, ticket(clock))
        second = ShadowLease(gate, ticket(clock, 4, pixels=200 * MEGAPIXEL))
        before = gate.statistics().preprocess_rate
        second.sent(is_streamed=True)
        clock.advance(2.0)
        second.first_event()
        assert gate.statistics().preprocess_rate > before


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("come"), st.integers(1, 12), st.integers(0, 3)),
        st.tuples(st.sampled_from(["end", "first", "grow"]), st.integers(0, 20), st.just(0)),
        st.tuples(st.just("wait"), st.integers(1, 9), st.just(0)),
    ),
    max_size=60,
)


@settings(max_examples=150)
@given(steps=STEPS, requests=st.sampled_from([0, 2, 256]))
def test_whatever_happens_everything_comes_back(steps, requests):
    clock = FakeClock()
    gate, leases = gate_with(clock, Forecast.of(ServiceLevel(60.0)), requests=requests), []
    for what, number, megapixels in steps:
        if what == "come":
            pixels = megapixels * MEGAPIXEL
            one = ticket(clock, number, wait=5.0, encoder=100 * megapixels, pixels=20 * pixels, prefill=40 * number)
            leases.append(ShadowLease(gate, one))
            leases[-1].sent(is_streamed=number % 2 == 0)
        elif what == "wait":
            clock.advance(number)
        elif leases:
            lease = leases[number % len(leases)]
            if what == "end":
                lease.abandon()
            elif lease.is_open and what == "first":
                lease.first_event()
            elif lease.is_open:
                lease.grow(64 * number)
        admitted = [lease for lease in leases if lease.is_admitted]
        assert held(gate)[0] == sum(lease.held.kv_blocks for lease in admitted)
        assert gate.unadmitted.sequences == sum(lease.is_open and not lease.is_admitted for lease in leases)
    for lease in leases:
        lease.abandon()
    assert held(gate) == (0, 0, 0, 0, 0, 0)
    assert (gate.unadmitted, gate.statistics().leases) == (Amounts(), 0)
    assert gate.statistics().admission.queue_depth == 0
