"""One suite for every way to set up the line: tests/support/any_traffic.py has the ways and the rules.

What is held is what was let in, and fits where it is let in. Nobody is lost, passed over too often, kept waiting for
nothing, left behind for ever, or in the line after its deadline. Who leaves twice changes nothing. What admission says
that it would decide, it decides.
"""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from gateway.domain.quantities import Resource
from tests.support import any_traffic
from tests.support.any_traffic import BODY_BYTES, SETUPS, AnyTraffic, Setup

every_setup = pytest.mark.parametrize("setup", SETUPS.values(), ids=SETUPS)


class Anything(RuleBasedStateMachine):
    """Events in any order."""

    def __init__(self, setup: Setup) -> None:
        super().__init__()
        self.traffic = AnyTraffic(setup)

    @rule(
        blocks=st.integers(0, 30),
        sequences=st.integers(1, 5),
        pixels=st.sampled_from([0, 0, 2, 9, 12]),
        cost=st.integers(1, 300),
        wait=st.floats(0, 40),
        body_bytes=st.sampled_from(BODY_BYTES),
        tenant=st.integers(0, 2),
        priority=st.integers(0, 3),
        is_return=st.booleans(),
    )
    def arrive(self, **request):
        self.traffic.arrive(**request)

    @precondition(lambda self: self.traffic.inside)
    @rule(index=st.integers(0, 50))
    def end(self, index):
        self.traffic.end(index)

    @precondition(lambda self: self.traffic.inside)
    @rule(index=st.integers(0, 50), blocks=st.integers(1, 8))
    def grow(self, index, blocks):
        self.traffic.grow(index, blocks)

    @precondition(lambda self: self.traffic.inside)
    @rule(index=st.integers(0, 50))
    def decoded(self, index):
        self.traffic.decoded(index)

    @precondition(lambda self: self.traffic.waiting)
    @rule(index=st.integers(0, 50))
    def client_leaves(self, index):
        self.traffic.client_leaves(index)

    @rule(seconds=st.floats(0, 10))
    def time_passes(self, seconds):
        self.traffic.time_passes(seconds)

    @rule(seconds=st.floats(0.1, 3))
    def engine_turns_away(self, seconds):
        self.traffic.engine_turns_away(seconds)

    @rule(resource=st.sampled_from(Resource), share=st.floats(0.25, 1))
    def ceiling_moves(self, resource, share):
        self.traffic.ceiling_moves(resource, share)

    @rule(tokens=st.integers(1, 900), seconds=st.floats(0.001, 5))
    def paces_show(self, tokens, seconds):
        self.traffic.paces_show(tokens, seconds)

    @invariant()
    def every_rule_holds(self):
        self.traffic.check()

    def teardown(self):
        self.traffic.empty()


@every_setup
def test_every_rule_holds_whatever_comes(setup):
    run_state_machine_as_test(lambda: Anything(setup), settings=settings(max_examples=30, stateful_step_count=40))


@every_setup
def test_five_thousand_events(setup):
    """`make test-long` runs a million."""
    traffic = any_traffic.run(setup, events=5_000, seed=1)
    assert traffic.admitted > 500
    if setup.policy.requests > 4 and setup.capacity:
        passed_over = traffic.late if setup.has_level else traffic.overtakings
        assert min(traffic.expired, traffic.left, passed_over) > 10
        assert setup.has_level or traffic.displaced > 50
    if setup is SETUPS["the default line"]:
        assert min(traffic.overtakings, traffic.displaced, traffic.expired, traffic.left) > 100
