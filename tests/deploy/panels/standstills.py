"""The day of traffic, what servers do: they stand still, are used by others, turn away, break off, go away.

Engines are frozen for some seconds, never for as long as the gateway takes to hold a server to be broken.
"""

import asyncio
from collections.abc import Mapping

import httpx
import pytest

from gateway.emulator.serve import RunningEmulator
from tests.deploy.panels.acts import TEXT, THUMBNAIL, kept, tokens_of
from tests.deploy.panels.customer import AT_ONCE, Visit
from tests.deploy.panels.house import BLOCKS_OF_B, House
from tests.deploy.panels.tally import Range, Seen
from tests.support.live_gateway import CHAT, chat, image, until
from tests.support.pictures import data_url, encoded, picture

BATCH = {"x-gateway-priority": "batch"}
_OWN_TURN_TOKENS = 512
"""What a request takes of the way to the first token beside its prompt."""


async def a_full_house(house: House) -> None:
    """An answer outgrows its place at `c`; others wait behind it, in vain but for the last, or find the line full."""
    customer, engine = house.customer, house.engines["c"]
    growing, growth = customer.begin(TEXT, model="small", stream=True, max_tokens=1400)
    await until(lambda: growing.tokens > 1000, within_seconds=30)
    engine.set_faults(freeze=True)
    await _stands_still(growing)
    waiting = [customer.begin(TEXT, model="small", stream=stream) for stream in (False, True)]
    await until(lambda: house.gateway.metrics("gateway_queue_depth") == {'{upstream="c"}': 2})
    await customer.is_refused("queue_full", TEXT, model="small", wait=AT_ONCE)
    await customer.is_refused("shed_priority", TEXT, model="small", headers=BATCH, priority="batch")
    house.tally.rungs["shed"] += 1
    await until(lambda: waiting[1][0].status == 200)
    house.tally.streams_kept_alive += 1
    await house.note_moment("full", **_of_a_full_house(growing, [visit for visit, _ in waiting]))
    for visit, task in waiting:
        await task
        customer.note_refused(visit, "deadline_passed", model="small", wait=Range(3.9, visit.seconds))
    last, served = customer.begin(TEXT, model="small")
    await until(lambda: house.gateway.metrics("gateway_queue_depth") == {'{upstream="c"}': 1})
    engine.set_faults(freeze=False)
    await served
    assert last.waited().low > 0
    await growth
    for visit in (growing, last):
        customer.note_served(visit, model="small")


async def _stands_still(visit: Visit) -> None:
    """What the engine sent before it was frozen has come."""
    tokens = -1
    while tokens != visit.tokens:
        tokens = visit.tokens
        await asyncio.sleep(0.2)


def _of_a_full_house(growing: Visit, waiting: list[Visit]) -> dict[str, dict[str, Range]]:
    prompt, blocks = growing.prompt_tokens, (growing.prompt_tokens + growing.tokens) // 16
    # Beyond that: the last block, and growth in steps of 64 tokens.
    held = Range(blocks, blocks + 1 + 64 // 16)
    return {
        "queue_depth": {"c": Range.exactly(2)},
        "queue_tokens": {"c": Range.exactly(2 * (prompt + 4))},
        "held_blocks": {"c": held},
        "seats": {"held": Range.exactly(3)},
        "body_bytes": {"held": Range.exactly(sum(visit.body_bytes for visit in waiting))},
        # One of two places taken, two more wanted. Of KV blocks all are taken, and few more wanted.
        "pressure": {"c": Range.exactly(1.5)},
        # One was refused just now that wanted one of two places.
        "unmet": {"c": Range(0.3, 0.5)},
    }


async def an_engine_that_others_use(house: House) -> None:
    """`b` is crowded by others until it preempts; two requests stand before their first token at `c` meanwhile."""
    customer, b, c = house.customer, house.engines["b"], house.engines["c"]
    others = [asyncio.create_task(_at_the_engine(b, number)) for number in range(4)]
    await until(lambda: b.statistics().preemptions > 0, within_seconds=60)
    b.set_faults(freeze=True)
    c.set_faults(freeze=True)
    with_picture = (TEXT, image(data_url(encoded(picture(280, 280, seed=50)))))
    held = [customer.begin(*parts, model="small", stream=True) for parts in (with_picture, (TEXT,))]
    await until(lambda: all(visit.status == 200 for visit, _ in held))
    seen = b.statistics().published
    foreign = {'{upstream="b"}': seen.running + seen.waiting}
    await until(lambda: house.gateway.metrics("gateway_upstream_foreign_requests") == foreign)
    await house.note_moment("crowded", **_of_a_crowded_engine(b, [visit for visit, _ in held]))
    for engine in (b, c):
        engine.set_faults(freeze=False)
    for visit, task in held:
        await task
        has_picture = visit is held[0][0]
        customer.note_served(visit, model="small", pictures=[kept("png", 280, 280)] if has_picture else [])
    assert {answer.status_code for answer in await asyncio.gather(*others)} == {200}
    house.tally.preemptions["b"] = b.statistics().preemptions
    # What the operator's own share is cut down to while others are there is let in again.
    await until(lambda: house.gateway.metrics("gateway_upstream_foreign_kv_blocks") == {}, within_seconds=30)


async def _at_the_engine(engine: RunningEmulator, number: int) -> httpx.Response:
    """A client that knows no gateway."""
    body = chat(f"{number} things", model="tiny", max_tokens=1300)
    async with httpx.AsyncClient(base_url=engine.base_url, timeout=60, verify=False, trust_env=False) as http:
        return await http.post(CHAT, json=body)


def _of_a_crowded_engine(crowded: RunningEmulator, held: list[Visit]) -> dict[str, Mapping[str, Range]]:
    with_picture, text = (visit.prompt_tokens for visit in held)
    # Each answer may have 4 tokens, and goes on in the last block of its prompt.
    blocks = sum(-(-(prompt + 4) // 16) for prompt in (with_picture, text))
    embeddings = tokens_of(280, 280) - 2
    seen = crowded.statistics().published
    used = int(seen.kv_cache_usage_ratio * (BLOCKS_OF_B - 1))
    return {
        "in_flight": {"c": Range.exactly(2)},
        "held_blocks": {"c": Range.exactly(blocks)},
        "held_sequences": {"c": Range.exactly(2)},
        "held_encoder_tokens": {"c": Range.exactly(embeddings)},
        "held_pixels": {"c": Range.exactly(280 * 280)},
        "held_prefill": {"c": Range.exactly(text + _OWN_TURN_TOKENS)},
        "held_image_prefill": {"c": Range.exactly(with_picture - 2 + _OWN_TURN_TOKENS)},
        "kv_usage": {"b": Range.exactly(seen.kv_cache_usage_ratio)},
        "foreign_requests": {"b": Range.exactly(seen.running + seen.waiting)},
        "foreign_blocks": {"b": Range.exactly(used)},
    }


async def a_connection_that_breaks(house: House) -> None:
    """`a` resets two connections: the request is sent there again, and then to `b`."""
    customer, a = house.customer, house.engines["a"]
    finished = a.statistics().finished
    while a.statistics().finished == finished:  # so that a connection to it is kept
        await customer.is_served(TEXT)
    a.set_faults(reset_requests=2)
    while await _resets_left(a) == 2:
        await customer.is_served(TEXT)
    assert await _resets_left(a) == 0
    house.tally.sent_again["a"] += 1
    house.tally.sent_elsewhere["a"] += 1


async def _resets_left(engine: RunningEmulator) -> int:
    async with httpx.AsyncClient(base_url=engine.base_url, verify=False, trust_env=False) as http:
        left: int = (await http.get("/emulator/faults")).json()["reset_requests"]
    return left


async def a_server_that_turns_away(house: House) -> None:
    """`c` answers 503 to two in turn; the second was sent when the pause after the first was over."""
    house.engines["c"].set_faults(unavailable_requests=2)
    for _ in range(2):
        visit, task = house.customer.begin(TEXT, model="small")
        await task
        assert (visit.status, visit.headers.get("x-gateway-reason")) == (503, None)
        wait = Range(0.0, visit.seconds)
        house.tally.seen.append(Seen("upstream_refused", model="small", wait=wait, sent_seconds=visit.seconds))
    # A second after the first time, two after the next one.
    await house.note_moment("paused", pause={"c": Range(0.1, 2.0)})
    await until(lambda: house.gateway.metrics("gateway_admission_pause_seconds") == {})


async def answers_that_end_early(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the server, by the client, by a fault of the gateway."""
    customer, c = house.customer, house.engines["c"]
    c.set_faults(stream_error_after_tokens=3)
    broken, task = customer.begin(TEXT, model="small", stream=True, max_tokens=50)
    await task
    assert broken.error is not None
    c.set_faults(stream_error_after_tokens=None)
    _note_begun(house, broken, "upstream_broke", broken.waited())
    left, task = customer.begin(TEXT, model="small", stream=True, max_tokens=1000)
    await until(lambda: left.tokens > 3)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    _note_begun(house, left, "client_left", left.waited())
    with monkeypatch.context() as patch:
        patch.setattr("gateway.pipeline.story.rewrite", _divide_by_zero)
        visit, task = customer.begin(TEXT)
        await task
    assert visit.status == 500
    house.tally.seen.append(Seen("gateway_fault", wait=AT_ONCE))
    await house.gateway.until_released()


def _note_begun(house: House, visit: Visit, outcome: str, wait: Range) -> None:
    house.tally.seen.append(Seen(outcome, model="small", wait=wait, first_token=visit.first_token, sent_seconds=60.0))


def _divide_by_zero(*_: object) -> None:
    raise ZeroDivisionError


async def a_server_that_goes(house: House) -> None:
    """`c` is gone, and nobody else serves its model."""
    house.end_c.close()
    visit = await house.customer.is_refused(
        "upstream_down", TEXT, model="small", outcome="upstream_broke", wait=AT_ONCE, sent_seconds=60.0
    )
    assert visit.status == 503
    await until(lambda: '{upstream="c"}' not in house.gateway.metrics("gateway_upstream_up"), within_seconds=30)
    await house.note_moment("gone")


async def in_shadow(house: House) -> None:
    """At the other gateway: two would be let in, one with a picture made smaller, one would be refused."""
    customer = house.shadow_customer
    large = image(data_url(encoded(picture(1120, 1120))))
    four = [image(data_url(encoded(picture(56, 56, seed=seed)))) for seed in range(4)]
    told = {}
    for name, parts in {"text": (TEXT,), "large": (large,), "four": four}.items():
        visit, task = customer.begin(*parts, headers=THUMBNAIL)
        await task
        assert visit.status == 200
        told[name] = visit.headers["x-gateway-shadow"]
    assert told == {
        "text": "admitted",
        "large": "admitted",
        "four": "refused;reason=too_many_images;status=400",
    }
    house.tally.shadow_decisions.update(["admitted", "admitted", "too_many_images"])
    house.tally.shadow_actions.update(["resized"])
