"""The memory of the whole gateway, worker processes included, while many large pictures come at once."""

import asyncio
import base64
import json
import random
import threading
from typing import Self

import httpx
import pytest
from PIL import Image

from tests.support.live_gateway import CHAT, MODEL, chat, image
from tests.support.model_server import ANSWER, model_server
from tests.support.pictures import data_url, encoded
from tests.support.processes import metrics, resident_bytes, running_gateway

MIB = 1 << 20
CLIENTS = 50
BUDGET = {"body_bytes": 160 * MIB, "decode_bytes": 256 * MIB}
FIXED_BYTES = 96 * MIB  # buffers of sockets, what the allocator keeps, pages of libraries that are first touched
JSON = {"content-type": "application/json"}
SIDE = 2590
SAMPLES_APART_SECONDS = 0.02


def body_of(seed: int) -> bytes:
    """A chat with one picture of twenty megabytes that no compression makes smaller."""
    noise = Image.frombytes("RGB", (SIDE, SIDE), random.Random(seed).randbytes(SIDE * SIDE * 3))
    file = encoded(noise, "PNG", compress_level=0)
    url = f"data:image/png;base64,{base64.b64encode(file).decode()}"
    return json.dumps(chat("What is this?", image(url))).encode()


class Peak:
    """The most that a process and its children held while the block ran."""

    def __init__(self, process_id: int) -> None:
        self.process_id = process_id
        self.most = 0
        self._over = threading.Event()

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(SAMPLES_APART_SECONDS):
            self.most = max(self.most, resident_bytes(self.process_id))


async def answer_and_forget(visit) -> None:
    visit.body = b""
    await visit.answer("200 OK", ANSWER, "content-type: application/json")


@pytest.fixture(scope="module")
def bodies() -> list[bytes]:
    return [body_of(seed) for seed in range(4)]


async def test_fifty_pictures_of_twenty_megabytes_stay_within_the_budget(stack, tmp_path, bodies, report_line):
    upstream = await stack.enter_async_context(model_server(answer_and_forget))
    models = [{"name": MODEL, "family": "qwen2_5_vl"}]
    settings = {"models": models, "budget": BUDGET, "queue": {"wait_seconds": 5}}
    starting = running_gateway(upstream.base_url, tmp_path, settings)
    gateway = await asyncio.to_thread(stack.enter_context, starting)
    limits = httpx.Limits(max_connections=CLIENTS)
    client = httpx.AsyncClient(base_url=gateway.url, timeout=120, limits=limits, trust_env=False)
    await stack.enter_async_context(client)
    small = image(data_url(encoded(Image.new("RGB", (64, 64)))))
    assert (await client.post(CHAT, json=chat("Hello.", small))).status_code == 200
    before = resident_bytes(gateway.process_id)
    with Peak(gateway.process_id) as peak:
        answers = await asyncio.gather(
            *(client.post(CHAT, content=bodies[number % len(bodies)], headers=JSON) for number in range(CLIENTS))
        )
    held = [name for name, value in metrics(gateway.url).items() if name.startswith("gateway_held") and value]
    statuses = [answer.status_code for answer in answers]
    reasons = {answer.headers.get("x-gateway-reason") for answer in answers if answer.status_code != 200}
    grown = peak.most - before
    report_line(
        f"memory: {CLIENTS} x {len(bodies[0]) / 1e6:.1f} MB at once: {statuses.count(200)} served, "
        f"{CLIENTS - statuses.count(200)} refused; grew by {grown / MIB:.0f} MiB of {sum(BUDGET.values()) / MIB:.0f} "
        f"MiB budgeted, from {before / MIB:.0f} MiB"
    )
    assert set(statuses) <= {200, 429}, answers[0].text
    assert statuses.count(200) >= 5
    assert reasons <= {"host_memory"}
    assert held == []
    assert grown <= sum(BUDGET.values()) + FIXED_BYTES
