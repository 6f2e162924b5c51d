"""Who a request is from and how urgent it is, through a live gateway with one place at the engine: the order counts."""

import asyncio
import json
from contextlib import asynccontextmanager
from hashlib import sha256

import pytest

from tests.support.clock import FakeClock
from tests.support.live_gateway import CHAT, chat, image, live_gateway, until
from tests.support.model_server import Patient, answer_chat, error_of, model_server, posts
from tests.support.pictures import data_url, encoded, picture

CLASSIFIES = {"unknown": "default"}
ONE_PLACE = {"budget": {"sequences": 1}, "queue": {"requests": 200, "wait_seconds": 60}, "keys": CLASSIFIES}


def tenant(name, **fields):
    """One whose key is `sk-` and its name."""
    return {"name": name, "key_sha256": [sha256(f"sk-{name}".encode()).hexdigest()]} | fields


def key(name):
    return {"authorization": f"Bearer sk-{name}"}


class Traffic:
    """Requests before a gateway whose only place is taken until `run`; `order` tells in which order they ended."""

    def __init__(self, gateway, may_answer):
        self.gateway = gateway
        self.order = []
        self._may_answer = may_answer
        self._tasks = []
        self._waiting = 0

    async def occupy(self):
        self._tasks.append(asyncio.create_task(self.gateway.chat()))
        await until(lambda: self.gateway.metrics("gateway_held").get('{resource="sequences"}') == 1)

    async def add(self, label, times=1, headers=None, **fields):
        self._waiting += times
        self._tasks += [asyncio.create_task(self._send(label, headers, fields)) for _ in range(times)]
        await until(lambda: self.gateway.metrics("gateway_queue_depth") == {"": self._waiting})

    async def _send(self, label, headers, fields):
        answer = await self.gateway.chat(max_tokens=1, headers=headers, **fields)
        assert answer.status_code == 200, answer.text
        self.order.append(label)

    def free_the_place(self):
        self._may_answer.set()

    async def run(self):
        self.free_the_place()
        await asyncio.gather(*self._tasks)
        await self.gateway.until_released()
        return self.order


@asynccontextmanager
async def taken_place(**sections):
    """Traffic before a gateway with one place, which is taken."""
    first = Patient(then=answer_chat)
    async with model_server(first) as upstream, live_gateway(upstream.base_url, **ONE_PLACE | sections) as gateway:
        traffic = Traffic(gateway, first.may_answer)
        await traffic.occupy()
        yield traffic


@pytest.mark.parametrize("tenants", [[], [tenant("greedy"), tenant("polite")]], ids=["no keys", "named keys"])
async def test_a_polite_one_is_served_by_turns_with_a_greedy_one_that_came_before(tenants):
    async with taken_place(tenants=tenants) as traffic:
        await traffic.add("greedy", 30, key("greedy"))
        await traffic.add("polite", 6, key("polite"))
        order = await traffic.run()
        lines = await traffic.gateway.log(37)
    assert order[:12].count("polite") >= 5
    assert order[:14].count("polite") == 6
    names = {"greedy", "polite"} if tenants else {"default"}
    assert {line["tenant"] for line in lines[1:]} == names
    assert {line["priority"] for line in lines} == {"default"}
    assert b"sk-" not in traffic.gateway.log_text


async def test_turns_go_by_weight():
    tenants = [tenant("gold", weight=3), tenant("iron")]
    async with taken_place(tenants=tenants) as traffic:
        await traffic.add("iron", 20, key("iron"))
        await traffic.add("gold", 20, key("gold"))
        order = await traffic.run()
    assert order[:20].count("gold") == pytest.approx(15, abs=1)
    assert order[:8].count("gold") == pytest.approx(6, abs=1)


async def test_the_door_knows_that_a_weighty_tenant_has_a_right_to_more_places():
    tenants = [tenant("gold", weight=3), tenant("iron")]
    async with taken_place(tenants=tenants, queue={"requests": 8, "wait_seconds": 60}) as traffic:
        gateway = traffic.gateway
        await traffic.add("iron", 3, key("iron"))
        await traffic.add("gold", 4, key("gold"))
        newest = asyncio.create_task(gateway.chat(headers=key("iron")))
        await until(lambda: gateway.metrics("gateway_queue_depth") == {"": 8})
        gold = asyncio.create_task(gateway.chat(headers=key("gold")))
        assert (await newest).headers["x-gateway-reason"] == "queue_full"
        traffic.free_the_place()
        assert (await gold).status_code == 200
        await traffic.run()


async def test_a_wall_of_small_images_does_not_keep_texts_out():
    async with taken_place(queue={"requests": 4, "wait_seconds": 60}) as traffic:
        gateway = traffic.gateway
        pictures = [image(data_url(encoded(picture(56, 56, seed=seed)))) for seed in range(5)]
        waiting = [asyncio.create_task(gateway.chat(each, max_tokens=1)) for each in pictures[:4]]
        await until(lambda: gateway.metrics("gateway_queue_depth") == {"": 4})
        assert (await gateway.chat(pictures[4])).headers["x-gateway-reason"] == "queue_full"
        text = asyncio.create_task(gateway.chat(max_tokens=1))
        displaced, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        assert {each.result().status_code for each in displaced} == {429}
        traffic.free_the_place()
        assert (await text).status_code == 200
        assert sorted([(await each).status_code for each in waiting]) == [200, 200, 200, 429]
        await traffic.run()


async def test_the_more_urgent_go_first_as_far_as_their_tenant_may():
    tenants = [tenant("gold", most_urgent="critical"), tenant("slow", priority="batch", most_urgent="batch")]
    asks = [
        ("batch by the tenant", key("slow") | {"x-gateway-priority": "critical"}, {}),
        ("batch by the body", None, {"priority": 3}),
        ("batch by the header", {"x-gateway-priority": "batch"}, {"priority": -3}),
        ("default", None, {}),
        ("interactive by the body", key("gold"), {"priority": -3}),
        ("interactive at most", {"x-gateway-priority": "critical"}, {}),
        ("critical", key("gold") | {"x-gateway-priority": "critical"}, {}),
    ]
    async with taken_place(tenants=tenants) as traffic:
        for label, headers, fields in asks:
            await traffic.add(label, headers=headers, **fields)
        order = await traffic.run()
        lines = await traffic.gateway.log(8)
    assert order[0] == "critical"
    assert [label.split()[0] for label in order] == ["critical", *["interactive"] * 2, "default", *["batch"] * 3]
    assert [line["priority"] for line in lines[1:]] == [label.split()[0] for label in order]


async def test_what_the_body_says_goes_on_and_the_headers_do_not():
    asks = {"x-gateway-priority": "batch", "x-gateway-deadline-ms": "60000"}
    async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
        answer = await gateway.chat(priority=-7, headers=asks)
        line = await gateway.assert_ended("finished", status=200)
        (visit,) = posts(upstream)
    assert answer.status_code == 200
    assert json.loads(visit.body)["priority"] == 0, "in the line of the engine it is like others"
    assert not [name for name, _ in visit.headers if name.startswith("x-gateway")]
    assert (line["priority"], line["tenant"], line["deadline_ms"]) == ("batch", "default", 60_000)


@pytest.mark.parametrize(
    ("headers", "param"),
    [
        ({"x-gateway-priority": "asap"}, "x-gateway-priority"),
        ({"x-gateway-deadline-ms": "-5"}, "x-gateway-deadline-ms"),
    ],
)
async def test_what_cannot_be_read_is_refused_at_the_door(emulator, headers, param):
    async with live_gateway(emulator.base_url) as gateway:
        answer = await gateway.chat(headers=headers)
        await gateway.assert_ended("refused", status=400, reason="bad_request")
    assert error_of(answer)["param"] == param


async def test_refusals_are_counted_for_their_tenant_and_priority(emulator):
    tenants = [tenant("gold", most_urgent="critical")]
    async with live_gateway(emulator.base_url, tenants=tenants, keys=CLASSIFIES) as gateway:
        headers = key("gold") | {"x-gateway-priority": "critical"}
        await gateway.http.post(CHAT, json=chat(n="two"), headers=headers)
        await gateway.http.post(CHAT, json=chat(n="two", priority=1))
        counted = gateway.metrics("gateway_rejections_total")
    assert set(counted) == {
        '{model="other",priority="critical",reason="bad_request",tenant_class="gold"}',
        '{model="other",priority="default",reason="bad_request",tenant_class="default"}',
    }


async def test_the_client_s_deadline_ends_its_wait_and_no_one_else_s():
    release = asyncio.Event()

    async def held(visit):
        await release.wait()
        await answer_chat(visit)

    clock = FakeClock()
    async with model_server(held) as upstream, live_gateway(upstream.base_url, clock=clock, **ONE_PLACE) as gateway:
        first = asyncio.create_task(gateway.chat())
        await until(lambda: len(posts(upstream)) == 1)
        patient = asyncio.create_task(gateway.chat(headers={"x-gateway-deadline-ms": "60000"}))
        await until(lambda: gateway.metrics("gateway_queue_depth") == {"": 1})
        hasty = asyncio.create_task(gateway.chat(headers={"x-gateway-deadline-ms": "50"}))
        await until(lambda: gateway.metrics("gateway_queue_depth") == {"": 2})
        clock.advance(0.05)
        refused = await hasty
        assert (refused.status_code, refused.headers["x-gateway-reason"]) == (503, "deadline_passed")
        release.set()
        assert {(await first).status_code, (await patient).status_code} == {200}
        (line,) = [line for line in await gateway.log(3) if line["outcome"] == "refused"]
    assert line["deadline_ms"] == 50
    assert line["queue_ms"] == pytest.approx(50)


async def test_what_arrives_after_its_own_deadline_is_not_sent_on(emulator):
    async with live_gateway(emulator.base_url) as gateway:
        answer = await gateway.chat(headers={"x-gateway-deadline-ms": "0.001"})
        line = await gateway.assert_ended("refused", status=429, reason="would_miss_deadline")
        assert line["queue_ms"] < 1000
    assert "x-gateway-deadline-ms" in error_of(answer)["message"]
    assert answer.headers["x-should-retry"] == "false"
