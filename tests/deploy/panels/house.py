"""What the day happens in: emulated model servers, an image host, a gateway in earnest and one in shadow mode, and the
Prometheus that scrapes both.

`a` and `b` serve the model `tiny`, of whose folder the gateway has the tokenizer; `b` has a small KV cache. `c` serves
`small`, slowly, and the operator gave it little. `d` is behind the gateway in shadow mode.
"""

import hashlib
import os
import pathlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from yarl import URL

from gateway.cli.demo import model
from gateway.emulator.config import EmulatorConfig, StepCost
from gateway.emulator.serve import RunningEmulator, running_emulator
from gateway.keys_file import digest_of, write_keys
from gateway.settings.keys import KeyEntry
from tests.deploy.panels.customer import Customer
from tests.deploy.panels.tally import Moment, Range, Tally
from tests.support.live_gateway import LiveGateway, live_gateway
from tests.support.pictures import encoded, picture
from tests.support.prometheus import Prometheus, running_prometheus
from tests.support.raw_http import Stub, Visit, raw_http_server

SCRAPE_SECONDS = 0.5
JOB, SHADOW_JOB = "gateway", "shadow"
LAB_KEY = "sk-lab"
MOST_AT_ONCE = 100  # of requests without a key
WAIT_SECONDS = 4.0
MIB = 1 << 20
CONTEXT_TOKENS = 4096
SEQUENCES = {"a": 16, "b": 16, "c": 2}
ENCODER_TOKENS = 20_000
SMALL_BLOCKS = 60
"""Of the KV cache of `c`, as the operator says."""
BLOCKS_OF_B = 257
CARDS_MIB = {"0": (21_563, 23_034), "1": (3, 23_034)}
"""What `nvidia-smi` says: memory in use and in all, by card."""
BUSY_PERCENT = {"0": 37}
"""The other card does not tell."""
_A_TOKEN_EACH_MILLISECOND = StepCost(0.001, 0.0, 0.0, 0.0)


@dataclass
class House:
    """All that the acts need; `end_c` takes the server `c` away."""

    gateway: LiveGateway
    shadow: LiveGateway
    prometheus: Prometheus
    engines: dict[str, RunningEmulator]
    image_host: Stub
    tally: Tally
    end_c: ExitStack

    @property
    def customer(self) -> Customer:
        return Customer(self.gateway.http, self.tally)

    @property
    def shadow_customer(self) -> Customer:
        """What it sees is of the other job, so it does not count."""
        return Customer(self.shadow.http, Tally())

    async def note_moment(self, name: str, **facts: dict[str, Range]) -> None:
        """Once the gateway was scraped while all stood as it stands now."""
        self.tally.moments[name] = Moment(await self.prometheus.next_scrape(JOB), facts)


def host_settings(image_host: Stub) -> dict[str, Any]:
    """Sections of the settings that both gateways share."""
    return {
        "images": {
            "max_per_turn": 3,
            "decode_seconds": 1,
            "remote": {"allow_networks": ["127.0.0.0/8"], "allow_ports": [URL(image_host.base_url).port]},
        },
        "keys": {"unknown": "default"},
        "tenants": [
            {"name": "lab", "key_sha256": [hashlib.sha256(LAB_KEY.encode()).hexdigest()]},
            {"name": "default", "quota": {"concurrent_requests": MOST_AT_ONCE}},
        ],
        "budget": {"encoder_tokens": ENCODER_TOKENS, "body_bytes": 64 * MIB, "decode_bytes": 64 * MIB},
        "queue": {"requests": 2, "wait_seconds": WAIT_SECONDS},
        "output_reservation": "none",
    }


def settings_in_earnest(engines: dict[str, RunningEmulator], image_host: Stub) -> dict[str, Any]:
    upstreams = [
        {"name": name, "url": engines[name].base_url, "sequences": sequences} for name, sequences in SEQUENCES.items()
    ]
    upstreams[-1]["kv_blocks"] = SMALL_BLOCKS
    return host_settings(image_host) | {
        "upstreams": upstreams,
        "pressure": {"shed": {"enter": 1.5, "leave": 1.4, "priority": "batch"}},
        "streaming": {"keep_alive_after_seconds": 0.5},
        "gpu": {"source": "nvidia-smi"},
    }


def install_nvidia_smi(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no GPU here: the driver's tool is a script that prints what it would."""
    folder.mkdir()
    tool = folder / "nvidia-smi"
    lines = [f"{card}, {used}, {total}, {BUSY_PERCENT.get(card, '[N/A]')}" for card, (used, total) in CARDS_MIB.items()]
    tool.write_text("\n".join(["#!/bin/sh", *[f'echo "{line}"' for line in lines], ""]))
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


@asynccontextmanager
async def house(work: pathlib.Path) -> AsyncIterator[House]:
    """Everything runs, and Prometheus has read both pages once, while all counters were zero."""
    folder = work / "model"
    folder.mkdir()
    model.write(folder)
    known = {"models": [{"name": "tiny", "folder": str(folder)}, {"name": "small", "family": "qwen2_5_vl"}]}
    async with AsyncExitStack() as stack:
        end_c = stack.enter_context(ExitStack())
        engines = {name: stack.enter_context(running_emulator(_tiny(name))) for name in "abd"}
        engines["c"] = end_c.enter_context(running_emulator(_small()))
        image_host = await stack.enter_async_context(raw_http_server(serve_picture))
        settings = settings_in_earnest(engines, image_host) | known
        settings["keys"] = settings["keys"] | {"file": _keys_file(work)}
        gateway = await stack.enter_async_context(live_gateway({}, **settings))
        shadow_settings = host_settings(image_host) | known | {"mode": "shadow"}
        shadow = await stack.enter_async_context(live_gateway(engines["d"].base_url, **shadow_settings))
        await gateway.until_up()
        await shadow.until_up()
        jobs = {JOB: f"{gateway.host}:{gateway.port}", SHADOW_JOB: f"{shadow.host}:{shadow.port}"}
        prometheus = await stack.enter_async_context(
            running_prometheus(work / "prometheus", jobs, interval_seconds=SCRAPE_SECONDS)
        )
        for job in jobs:
            await prometheus.next_scrape(job)
        yield House(gateway, shadow, prometheus, engines, image_host, Tally(), end_c)


def _keys_file(work: pathlib.Path) -> str:
    path = work / "keys.yaml"
    write_keys(str(path), [KeyEntry(name="guest", sha256=digest_of("sk-guest"))])
    return str(path)


def _tiny(name: str) -> EmulatorConfig:
    """`b` is slow enough that what others do there can be watched."""
    common = {"model": "tiny", "max_model_len": CONTEXT_TOKENS}
    if name != "b":
        return EmulatorConfig.fast(**common, num_gpu_blocks=1024)
    return EmulatorConfig.fast(**common, num_gpu_blocks=BLOCKS_OF_B, step_cost=_A_TOKEN_EACH_MILLISECOND)


def _small() -> EmulatorConfig:
    return EmulatorConfig.fast(
        model="small", max_model_len=2048, num_gpu_blocks=2048, step_cost=_A_TOKEN_EACH_MILLISECOND
    )


async def serve_picture(visit: Visit) -> None:
    """One picture, which may be kept for a minute; nothing else is there."""
    if visit.path == "/a.png":
        await visit.answer("200 OK", encoded(picture(56, 84)), "cache-control: max-age=60")
    else:
        await visit.answer("404 Not Found")
