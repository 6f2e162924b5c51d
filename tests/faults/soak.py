"""`python -m tests.faults.soak --minutes 30`: mixed load, in which nothing grows and no answer is wrong.

Texts, streams and pictures go through a gateway process to an emulated vLLM; one request in twenty is a hard input.
Each answer is held against what the model server says to the same request when it is asked directly, each hard input
against the answers that tests/data/hard_inputs/cases.json has for it. Prints slopes of memory, descriptors and tasks by
the minute, with their noise; exits with 1 where one of them grows beyond doubt, or an answer was wrong.
"""

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from gateway.emulator.config import EmulatorConfig, StepCost
from gateway.emulator.serve import running_emulator
from tests.conformance.test_hard_inputs import CASES, SETTINGS, body_of
from tests.faults.asking import clients
from tests.faults.outside import Outside, outside
from tests.faults.slopes import slope_of
from tests.support.live_gateway import CHAT, MODEL, chat, image
from tests.support.pictures import data_url, encoded, picture

HARD_SHARE = 0.05
CLIENTS = 12
PAUSE_SECONDS = 0.05  # between two requests of one client: a load that does not take the whole machine
WARM_SHARE = 0.3  # of the run: caches fill, processes start
ALLOWED_PER_MINUTE = {"rss_mib": 1.0, "fds": 1.0, "tasks": 1.0}
_JSON = {"content-type": "application/json"}


@dataclass
class Run:
    """What was seen. `expected` is by request: usage of ordinary ones, status and code of hard ones."""

    seen: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    expected: dict[str, Any] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    values: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in ALLOWED_PER_MINUTE})


def ordinary() -> dict[str, dict[str, Any]]:
    """Requests by name, whose answers the emulator gives with the same usage each time."""
    photos = [image(data_url(encoded(picture(280 + 28 * seed, 280, seed=seed)))) for seed in range(12)]
    asked = {f"text {n}": chat(f"Say {n}.", max_tokens=5 + n) for n in range(12)}
    asked |= {f"picture {n}": chat("What is it?", photo, max_tokens=8) for n, photo in enumerate(photos)}
    asked |= {f"two pictures {n}": chat(photos[n], photos[n + 1], max_tokens=8) for n in range(8)}
    usage = {"stream": True, "stream_options": {"include_usage": True}}
    asked |= {f"stream of {name}": body | usage for name, body in list(asked.items())}
    return {name: body | {"ignore_eos": True} for name, body in asked.items()}


def hard() -> dict[str, bytes]:
    """For the one model that is served here."""
    return {name: body_of(case).replace(b'"vlm"', f'"{MODEL}"'.encode()) for name, case in CASES.items()}


def usage_of(answer: httpx.Response) -> tuple[int, int] | str:
    """Prompt and output tokens; the text where there are none."""
    text = answer.text
    if text.startswith("data:"):
        *_, last, done = text.rstrip().split("\n\n")
        if done != "data: [DONE]":
            return text[-200:]
        text = last.removeprefix("data: ")
    try:
        usage = json.loads(text)["usage"]
        return usage["prompt_tokens"], usage["completion_tokens"]
    except (ValueError, KeyError, TypeError):
        return text[-200:]


def verdict_of(answer: httpx.Response) -> tuple[int, str | None]:
    if answer.status_code == 200:
        return 200, None
    return answer.status_code, answer.json()["error"].get("code")


async def learn(run: Run, direct: httpx.AsyncClient, gateway: httpx.AsyncClient) -> None:
    """What is right: of ordinary requests as the model server says, of hard ones as their file says, where the
    emulator, which is stricter or laxer than vLLM in places, does not say otherwise to what was passed on.
    """
    for name, body in ordinary().items():
        run.expected[name] = usage_of(await direct.post(CHAT, json=body))
        assert isinstance(run.expected[name], tuple), f"{name}: {run.expected[name]}"
    for name, body in hard().items():
        told = verdict_of(await gateway.post(CHAT, content=body, headers=_JSON))
        right = {(each["status"], each.get("code")) for each in CASES[name]["answers"]}
        if told not in right and "declared" in CASES[name]:
            run.wrong.append(f"{name}: {told}, right are {sorted(right, key=str)}")
        run.expected[name] = told


async def ask_on(run: Run, client: httpx.AsyncClient, draw: random.Random, end: float) -> None:
    easy, difficult = ordinary(), hard()
    while time.monotonic() < end:
        is_hard = draw.random() < HARD_SHARE
        name = draw.choice(list(difficult if is_hard else easy))
        try:
            if is_hard:
                told: Any = verdict_of(await client.post(CHAT, content=difficult[name], headers=_JSON))
            else:
                answer = await client.post(CHAT, json=easy[name])
                told = usage_of(answer) if answer.status_code == 200 else answer.text[-300:]
        except httpx.TransportError as error:
            told = repr(error)
        run.seen["hard" if is_hard else name.rstrip(" 0123456789")] += 1
        if told != run.expected[name]:
            run.wrong.append(f"{name}: {told}, expected {run.expected[name]}")
        await asyncio.sleep(PAUSE_SECONDS)


async def watch(run: Run, gateway: Outside, begin: float, end: float) -> None:
    while (now := time.monotonic()) < end:
        told = await gateway.look()
        run.seconds.append(now - begin)
        run.values["rss_mib"].append(gateway.resident_bytes() / (1 << 20))
        run.values["fds"].append(told["fds"])
        run.values["tasks"].append(told["tasks"])
        await asyncio.sleep(1)


async def soak(minutes: float, work: Path) -> Run:
    run, config = Run(), EmulatorConfig.fast(step_cost=StepCost(0.002, 0.0, 0.0, 0.0))
    settings = SETTINGS | {"history": {"keep": 8, "grid": 1}}
    with running_emulator(config) as emulator:
        async with (
            outside(emulator.base_url, work, **settings) as gateway,
            clients(gateway) as client,
            httpx.AsyncClient(base_url=emulator.base_url, trust_env=False) as direct,
        ):
            await learn(run, direct, client)
            begin = time.monotonic()
            end = begin + 60 * minutes
            async with asyncio.TaskGroup() as group:
                group.create_task(watch(run, gateway, begin, end))
                for seed in range(CLIENTS):
                    group.create_task(ask_on(run, client, random.Random(seed), end))
            faults = gateway.outcomes().get("gateway_fault", 0)
            if faults:
                run.wrong.append(f"{faults:.0f} faults of the gateway itself")
    return run


def report(run: Run) -> int:
    """The exit code."""
    print("asked: " + ", ".join(f"{count} x {kind}" for kind, count in run.seen.most_common()))
    begin = next(index for index, at in enumerate(run.seconds) if at >= WARM_SHARE * run.seconds[-1])
    grows = False
    for name, values in run.values.items():
        slope = slope_of(run.seconds[begin:], values[begin:])
        has_grown = slope.exceeds(ALLOWED_PER_MINUTE[name])
        grows |= has_grown
        first, last = values[begin], values[-1]
        verdict = "GROWS" if has_grown else "flat"
        print(f"{name:8} {slope.per_minute:+9.3f} ± {slope.error:.3f} a minute, {first:.1f} to {last:.1f}: {verdict}")
    print(f"wrong answers: {len(run.wrong)}")
    for each in run.wrong[:20]:
        print(f"  {each[:400]}")
    return int(grows or bool(run.wrong))


def main() -> int:
    parser = argparse.ArgumentParser("python -m tests.faults.soak", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--minutes", type=float, default=30.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        return report(asyncio.run(soak(given.minutes, Path(work))))


if __name__ == "__main__":
    sys.exit(main())
