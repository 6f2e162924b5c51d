"""Promises under levels of service, in simulated overloads: who was told to come back, and does, is served in time."""

import random

import pytest

from gateway.domain.queue import QueuePolicy
from tests.domain.test_goodput import capacity, requests
from tests.support.simulated_engine import Engine, World

PLACES = 12
"""So few that the line is full long before its end is late."""


def day(load, seed, *, returning=0.5) -> World:
    """Of those that are told when, half come back, up to a quarter later, as the header has it."""
    dice = random.Random(seed)
    world = World(
        Engine(seats=48),
        policy=QueuePolicy(requests=PLACES),
        comes_back=lambda: dice.uniform(1.0, 1.25) if dice.random() < returning else None,
    )
    for request in requests(seed, load * capacity(world.engine), 40.0):
        world.come(*request)
        assert world.door.statistics(world.now).queue_depth <= PLACES
    world.move_to(240.0)
    assert not any(world.holdings.statistics().held)
    return world


def promised(world) -> list:
    return [guest for guest in world.guests.values() if guest.refusal is not None and guest.refusal.advice.is_promise]


@pytest.mark.parametrize("load", [1.5, 2.0, 3.0, 5.0])
def test_who_comes_back_as_promised_is_served_in_time_counted_from_its_first_try(load):
    back = [guest for seed in range(2) for guest in promised(day(load, seed)) if guest.again is not None]
    assert len(back) >= 20
    assert sum(guest.was_worth_coming_back for guest in back) >= 0.85 * len(back)


@pytest.mark.parametrize("load", [2.0, 5.0])
def test_no_more_is_promised_than_can_be_kept_when_all_come_back(load):
    back = [guest for guest in promised(day(load, 3, returning=1.0)) if guest.again is not None]
    assert len(back) >= 20
    assert sum(guest.was_worth_coming_back for guest in back) >= 0.85 * len(back)


def test_places_are_not_promised_that_are_reached_too_late():
    world = World(Engine(seats=8), policy=QueuePolicy(requests=PLACES))
    for request in requests(0, 5.0 * capacity(world.engine), 40.0, due=2.0):
        world.come(*request)
    assert not [guest for guest in promised(world) if guest.refused_at > 5.0]
