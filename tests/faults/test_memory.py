"""More than the model server can do, with pictures, under a limit of memory: the process neither dies nor grows."""

import asyncio
import resource
import time
from collections import Counter

import httpx
import pytest

from gateway.emulator.config import EmulatorConfig, StepCost
from gateway.emulator.serve import running_emulator
from tests.faults.asking import clients
from tests.faults.outside import limited, outside
from tests.support.live_gateway import CHAT, chat, image
from tests.support.pictures import data_url, encoded, picture

LIMIT_BYTES = 2 << 30
SEQUENCES = 4
CLIENTS = 3 * 4 * SEQUENCES  # three times those that are inside and in the queue
SETTINGS = {"budget": {"sequences": SEQUENCES}, "queue": {"requests": 3 * SEQUENCES, "wait_seconds": 2.0}}


@pytest.mark.parametrize("seconds", [5, pytest.param(600, marks=pytest.mark.faults)])
@pytest.mark.fault("memory limit of 2 GiB at 3 times the load")
async def test_memory(fault, tmp_path, seconds):
    config = EmulatorConfig.fast(step_cost=StepCost(0.01, 0.0, 0.0, 0.0), max_num_seqs=SEQUENCES)
    photos = [image(data_url(encoded(picture(1200, 900, seed=seed)))) for seed in range(6)]
    with running_emulator(config) as emulator:
        async with outside(
            emulator.base_url, tmp_path, limit=limited(resource.RLIMIT_AS, LIMIT_BYTES), **SETTINGS
        ) as gateway:
            async with clients(gateway) as client:
                await client.post(CHAT, json=chat(*photos, max_tokens=1))  # every process is there
            seen, sizes, end = Counter(), [], time.monotonic() + seconds

            async def one(client, number):
                while time.monotonic() < end:
                    body = chat(f"Client {number}.", photos[number % len(photos)], max_tokens=20, ignore_eos=True)
                    try:
                        answer = await client.post(CHAT, json=body)
                    except httpx.TransportError as error:
                        seen[type(error).__name__] += 1
                        continue
                    seen[answer.status_code] += 1
                    if answer.status_code in {429, 503}:
                        assert answer.headers["retry-after"]
                        await asyncio.sleep(0.2)  # far less than it was told: else it would be no overload

            async def watch():
                while time.monotonic() < end:
                    sizes.append(gateway.resident_bytes())
                    await asyncio.sleep(0.5)

            async with fault.all_comes_back(gateway.look):
                async with clients(gateway) as client, asyncio.TaskGroup() as group:
                    group.create_task(watch())
                    for number in range(CLIENTS):
                        group.create_task(one(client, number))
                told = ", ".join(f"{count} x {what}" for what, count in sorted(seen.items(), key=str))
                fault.clients_saw(f"{told}; at most {max(sizes) >> 20} MiB", more_seconds=seconds)
            assert set(seen) <= {200, 429, 503}, seen
            assert seen[200] > seconds
            assert seen[429] + seen[503] > 0, "else it was no overload"
            assert max(sizes) < LIMIT_BYTES
            assert gateway.process.poll() is None
            assert "gateway_fault" not in gateway.outcomes()
