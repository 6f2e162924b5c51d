"""What levels of service make of an overload: simulated engines, any seed, no time."""

import copy
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.domain.decision import Refusal
from gateway.domain.pace import REQUEST_TOKENS
from gateway.domain.quantities import Amounts, Resource
from gateway.domain.ticket import OUTPUT_WEIGHT, Ticket
from tests.support.simulated_engine import Engine, Guest, World

DUE_SECONDS = 4.0
LINE_ROOM, RIGHT_SHARE = 2.5, 0.9
"""How many times longer than expected the forecast lets a line take, and for how many that is right."""
PROMPTS = (60, 60, 60, 400, 400, 1_400, 1_900)
MEAN_OUTPUT = 118
"""Of 16 to 400 tokens, half of the answers under 100."""


def requests(seed, rate, seconds, *, due=DUE_SECONDS, prompts=PROMPTS, tenants="abcde"):
    dice, now = random.Random(seed), 0.0
    while (now := now + dice.expovariate(rate)) < seconds:
        prompt, output = dice.choice(prompts), max(16, min(400, round(dice.lognormvariate(4.6, 0.6))))
        amounts = Amounts(1, 1, 0, 1_000 * (prompt > 60)).with_prefill(prompt + REQUEST_TOKENS)
        cost = prompt + OUTPUT_WEIGHT * MEAN_OUTPUT
        tenant = dice.choice(tenants)
        yield Ticket(amounts, now, now + 30.0, cost_tokens=cost, tenant=tenant, first_token_by=now + due), output


def capacity(engine: Engine) -> float:
    """Requests a second, where seats are what there is too little of."""
    return engine.seats / (MEAN_OUTPUT * engine.seconds_per_token)


def day(seed, load, engine, seconds=60.0, **habits) -> list[Guest]:
    world = World(engine)
    guests = [world.come(*request) for request in requests(seed, load * capacity(engine), seconds, **habits)]
    world.move_to(seconds + 200.0)
    assert not any(world.holdings.statistics().held)
    assert world.door.statistics(world.now).queue_depth == 0
    assert all((guest.end is None) == (guest.refusal is not None) for guest in guests)
    return guests


def in_time(guests) -> int:
    return sum(guest.is_in_time for guest in guests)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("load", [3.0, 5.0, 10.0])
def test_beyond_capacity_as_much_is_served_in_time_as_there_is_capacity_for(load, seed):
    engine = Engine()
    guests = day(seed, load, engine)
    served = [guest for guest in guests if guest.first is not None]
    assert in_time(guests) >= 0.85 * capacity(engine) * 60.0
    assert in_time(guests) >= 0.95 * len(served)


def refused_late(guests) -> float:
    """The share of those that were not served who waited for that, once the engine is known."""
    refused = [guest for guest in guests if guest.refusal is not None and guest.ticket.arrived > 5.0]
    return sum(guest.refused_at > guest.ticket.arrived for guest in refused) / len(refused)


@pytest.mark.parametrize("load", [3.0, 5.0, 10.0])
def test_who_will_not_be_served_is_refused_on_arrival(load):
    assert refused_late(day(0, load, Engine(seats=48), seconds=30.0)) <= 0.01


@pytest.mark.parametrize("seed", range(3))
def test_images_are_refused_on_arrival_too_for_the_texts_that_will_come_before_their_turn(seed):
    engine = Engine(prefill_per_second=4_000.0)
    # So small an engine wants for work if one that comes is refused whenever it could be late.
    assert refused_late(day(seed, 3.0, engine, prompts=(60, 60, 60, 3_000), tenants="a")) <= 0.07


@pytest.mark.parametrize("seed", range(3))
def test_below_capacity_nobody_is_refused(seed):
    guests = day(seed, 0.7, Engine())
    assert in_time(guests) >= 0.98 * len(guests)


@pytest.mark.parametrize("seed", range(3))
def test_a_large_engine_is_found_to_be_one_within_seconds(seed):
    engine = Engine(seats=128, prefill_per_second=400_000.0, seconds_per_token=0.05)
    guests = day(seed, 0.9, engine, seconds=20.0)
    assert in_time(guests) >= 0.98 * len(guests)


@pytest.mark.parametrize("seed", range(3))
def test_the_first_slow_answers_of_a_cold_engine_do_not_close_the_gate(seed):
    engine = Engine(cold_seconds=10.0)
    late = [guest for guest in day(seed, 3.0, engine) if guest.ticket.arrived >= 15.0]
    assert in_time(late) >= 0.8 * capacity(engine) * 45.0


def test_who_is_refused_would_have_waited_for_two_fifths_of_its_time_or_longer():
    """Each newcomer asks whether it would be refused, with all before it patient; then one like it waits to the end."""
    errors, wrong = [], 0
    for seed in range(4):
        engine = Engine(seats=8 * (1 + seed % 2))
        world = World(engine)
        for ticket, output in requests(seed, 1.4 * capacity(engine), 30.0, due=1e9, prompts=(60,)):
            world.move_to(ticket.arrived)
            asking = copy.copy(ticket)
            asking.first_token_by = ticket.arrived + DUE_SECONDS
            decision = world.door.would_decide(asking, world.now).decision
            if isinstance(decision, Refusal):
                other = copy.deepcopy(world)
                guest = other.come(copy.copy(ticket), output)
                other.move_to(ticket.arrived + 200.0)
                wrong += guest.first - ticket.arrived <= DUE_SECONDS / LINE_ROOM
                errors.append(decision.miss.expected_seconds / (guest.first - ticket.arrived))
            world.come(ticket, output)
    assert len(errors) > 100
    assert wrong <= (1 - RIGHT_SHARE) * len(errors)
    assert sum(1.0 <= error <= LINE_ROOM**2 for error in errors) >= RIGHT_SHARE * len(errors)


@settings(max_examples=25)
@given(
    st.integers(0, 10**6),
    st.floats(0.2, 8.0),
    st.integers(1, 16),
    st.floats(0.0, 5.0),
    st.floats(0.3, 10.0),
)
def test_nobody_is_refused_while_the_engine_is_idle(seed, load, seats, cold_seconds, due):
    engine = Engine(seats=seats, cold_seconds=cold_seconds)
    world = World(engine)
    for ticket, output in requests(seed, load * capacity(engine), 10.0, due=due):
        world.move_to(ticket.arrived)
        is_idle = not world.holdings.held(Resource.SEQUENCES) and not world.door.statistics(world.now).queue_depth
        guest = world.come(ticket, output)
        assert not (is_idle and guest.refusal)
    world.move_to(500.0)
    assert not any(world.holdings.statistics().held)
