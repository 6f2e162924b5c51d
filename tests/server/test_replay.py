"""A live gateway's log replayed under its own settings: the same decisions, as far as times allow."""

import asyncio
import random

from gateway.cli.replay.columns import Column, configuration_of
from gateway.cli.replay.files import Log
from gateway.domain.outcome import Fate
from gateway.emulator.config import EmulatorConfig, StepCost
from gateway.emulator.serve import running_emulator
from gateway.policies import models_of
from gateway.replay.lines import LineReader
from gateway.replay.pace import recordings_of
from gateway.replay.simulation import Simulation
from gateway.replay.tally import as_recorded
from tests.support.live_gateway import image, live_gateway, settings_of
from tests.support.pictures import data_url, encoded, picture

# Of decisions, not of times: a request that came within some milliseconds of the moment when it would have been
# decided otherwise may go either way, and then so may those behind it. A busy machine makes that more, a replay that
# decides otherwise than the gateway does so with every recording.
AGREEING = 0.9
RECORDINGS = 3
SECTIONS = {"budget": {"sequences": 4}, "queue": {"requests": 6, "wait_seconds": 2.0}}
PICTURES = [image(data_url(encoded(picture(280, 280, seed=seed)))) for seed in range(3)]


async def traffic(gateway, dice):
    """Ninety requests within seven seconds, in three bursts, from four clients."""
    tasks = []
    for burst in range(3):
        for _ in range(30):
            content = ["Well?", *dice.sample(PICTURES, dice.choice((0, 0, 1, 2)))]
            headers = {"authorization": f"Bearer sk-{dice.randrange(4)}"}
            tokens = dice.randrange(10, 40)
            tasks.append(
                asyncio.create_task(
                    gateway.chat(*content, headers=headers, stream=True, max_tokens=tokens, ignore_eos=True)
                )
            )
            await asyncio.sleep(dice.expovariate(25.0))
        await asyncio.sleep(1.5 * (burst < 2))
    await asyncio.gather(*tasks)


async def recorded_lines(emulator):
    """What the gateway's log says of one run of the traffic."""
    async with live_gateway(emulator.base_url, **SECTIONS) as gateway:
        await gateway.until_up()
        await traffic(gateway, random.Random(3))
        await gateway.log(90)
        log_text = bytes(gateway.log_text)
    reader = LineReader()
    reader.feed(log_text.splitlines())
    assert reader.unusable.counts == {}
    return reader.in_order()


def replayed(emulator, lines):
    """Of each request what became of it and why, in the log and when it was replayed."""
    settings = settings_of(emulator.base_url, **SECTIONS)
    column = Column("same", settings, models_of(settings))
    pairs = []

    def compare(line, ended):
        was = as_recorded(line)
        pairs.append(((was.fate, was.reason), (ended.fate, ended.reason)))

    configuration = configuration_of(column, Log("log", lines, LineReader().unusable))
    Simulation(configuration, recordings_of(lines), compare).run(lines)
    return pairs


async def test_a_recorded_day_comes_out_as_it_was():
    config = EmulatorConfig.fast(step_cost=StepCost(0.02, 0.0, 0.0005, 0.0))
    agreeing = []
    with running_emulator(config) as emulator:
        while len(agreeing) < RECORDINGS and max(agreeing, default=0) < AGREEING:
            pairs = replayed(emulator, await recorded_lines(emulator))
            assert len(pairs) == 90
            was = [fate for (fate, _), _ in pairs]
            assert min(was.count(fate) for fate in (Fate.ADMITTED, Fate.QUEUED, Fate.REFUSED)) >= 5, "else it is empty"
            agreeing.append(sum(before == after for before, after in pairs) / len(pairs))
    assert max(agreeing) >= AGREEING, agreeing
