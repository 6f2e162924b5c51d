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
# decided otherwise may go either way, and then so may those behind it.
AGREEING = 0.9
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


async def test_a_recorded_day_comes_out_as_it_was():
    config = EmulatorConfig.fast(step_cost=StepCost(0.02, 0.0, 0.0005, 0.0))
    with running_emulator(config) as emulator:
        async with live_gateway(emulator.base_url, **SECTIONS) as gateway:
            await gateway.until_up()
            await traffic(gateway, random.Random(3))
            await gateway.log(90)
            log_text = bytes(gateway.log_text)
    reader = LineReader()
    reader.feed(log_text.splitlines())
    assert reader.unusable.counts == {}
    lines = reader.in_order()
    settings = settings_of(emulator.base_url, **SECTIONS)
    column = Column("same", settings, models_of(settings))
    agreeing, fates = 0, []

    def compare(line, ended):
        nonlocal agreeing
        was = as_recorded(line)
        agreeing += (was.fate, was.reason) == (ended.fate, ended.reason)
        fates.append((was.fate, ended.fate))

    Simulation(configuration_of(column, Log("log", lines, reader.unusable)), recordings_of(lines), compare).run(lines)
    was = [fate for fate, _ in fates]
    assert len(fates) == 90
    assert min(was.count(fate) for fate in (Fate.ADMITTED, Fate.QUEUED, Fate.REFUSED)) >= 5, "else it shows nothing"
    assert agreeing >= AGREEING * len(fates)
