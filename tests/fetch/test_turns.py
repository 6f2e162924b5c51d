import asyncio

import pytest

from gateway.fetch.turns import Turns


async def settle():
    for _ in range(10):
        await asyncio.sleep(0)


class Visitors:
    """Each asks for a turn of its host and keeps it until it is let go."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns
        self.inside: list[str] = []
        self.doors: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    def come(self, name: str, host: str) -> None:
        self.doors[name] = asyncio.Event()
        self.tasks[name] = asyncio.create_task(self.visit(name, host))

    async def visit(self, name: str, host: str) -> None:
        async with self.turns.of(host):
            self.inside.append(name)
            try:
                await self.doors[name].wait()
            finally:
                self.inside.remove(name)


@pytest.fixture
async def visitors():
    made = Visitors(Turns(per_host=2, in_all=3))
    yield made
    for task in made.tasks.values():
        task.cancel()
    await asyncio.gather(*made.tasks.values(), return_exceptions=True)
    assert not len(made.turns)


async def test_a_host_has_so_many_at_once_and_the_next_comes_when_one_goes(visitors):
    for name in ("a", "b", "c", "d"):
        visitors.come(name, "slow")
    await settle()
    assert visitors.inside == ["a", "b"]
    visitors.doors["a"].set()
    await settle()
    assert visitors.inside == ["b", "c"]


async def test_a_slow_host_leaves_room_for_others_and_all_together_have_a_bound(visitors):
    for name in ("a", "b", "c"):
        visitors.come(name, "slow")
    visitors.come("d", "other")
    visitors.come("e", "other")
    await settle()
    assert visitors.inside == ["a", "b", "d"]


async def test_who_leaves_the_line_takes_no_turn_and_nothing_is_kept_of_a_host(visitors):
    for name in ("a", "b", "c", "d"):
        visitors.come(name, "slow")
    await settle()
    visitors.tasks["c"].cancel()
    await settle()
    visitors.doors["a"].set()
    await settle()
    assert visitors.inside == ["b", "d"]
    assert len(visitors.turns) == 1
