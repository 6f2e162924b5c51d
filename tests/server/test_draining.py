"""Leaving without losing anybody: pure times first, then a gateway that is told to drain by a program beside it."""

import asyncio

import httpx
import pytest

from gateway.domain.errors import GatewayError
from gateway.ledger.byte_budget import Seats
from gateway.ledger.timing import Timing
from gateway.server.draining import Drain, DrainWatch, closing
from tests.support.clock import FakeClock
from tests.support.live_gateway import live_gateway, until
from tests.support.model_server import Patient, answer_chat, error_of, model_server

DRAIN = "/gateway/drain"
GRACE, LIMIT = 5.0, 30.0


class TestTimes:
    @pytest.fixture
    def drain(self):
        return Drain(GRACE, LIMIT)

    def test_before_it_begins_all_are_let_in(self, drain):
        assert not drain.is_begun
        drain.refuse(1e9)
        assert not drain.is_over(1e9, is_empty=True)

    def test_who_comes_in_the_grace_is_let_in_and_nobody_after_it(self, drain):
        drain.begin(100.0)
        assert drain.is_begun
        drain.refuse(104.9)
        with pytest.raises(GatewayError) as caught:
            drain.refuse(105.0)
        assert (caught.value.status, caught.value.retry_after_seconds) == (503, 1.0)

    def test_the_process_stays_until_it_is_told_to_end(self, drain):
        drain.begin(100.0)
        assert not drain.is_over(1e9, is_empty=True)
        drain.end(200.0)
        assert drain.is_over(200.0, is_empty=True)

    @pytest.mark.parametrize(
        ("after", "is_empty", "is_over"),
        [(4.9, True, False), (5.0, True, True), (5.0, False, False), (29.9, False, False), (30.0, False, True)],
    )
    def test_it_ends_empty_after_the_grace_or_at_the_limit(self, drain, after, is_empty, is_over):
        drain.end(100.0)
        assert drain.is_over(100.0 + after, is_empty=is_empty) is is_over

    def test_to_be_told_again_changes_nothing(self, drain):
        drain.end(100.0)
        drain.end(120.0)
        drain.begin(120.0)
        assert drain.is_over(105.0, is_empty=True)
        assert drain.is_over(130.0, is_empty=False)

    def test_it_can_be_called_off_unless_the_process_is_to_end(self, drain):
        drain.begin(100.0)
        drain.call_off()
        assert not drain.refuses(1e9)
        drain.end(200.0)
        drain.call_off()
        assert drain.is_over(205.0, is_empty=True)

    def test_without_grace_nobody_is_let_in(self, drain):
        drain.end(100.0)
        drain.end(101.0, has_grace=False)
        assert drain.refuses(101.0)
        assert drain.is_over(101.0, is_empty=True)


class TestTheWatch:
    @pytest.fixture
    def clock(self):
        return FakeClock()

    @pytest.fixture
    def seats(self):
        return Seats(4)

    @pytest.fixture
    def drain(self):
        return Drain(GRACE, LIMIT)

    @pytest.fixture
    def watch(self, drain, seats, clock):
        return DrainWatch(drain, seats, Timing(clock, clock.call_later))

    @staticmethod
    async def turns():
        for _ in range(3):
            await asyncio.sleep(0)

    async def test_it_wakes_when_the_grace_ends_and_no_one_is_inside(self, watch, drain, clock):
        drain.begin(clock.now)
        waiting = asyncio.create_task(watch.wait())
        await self.turns()
        assert clock.pending == [clock.now + GRACE]
        clock.advance(GRACE)
        await asyncio.wait_for(waiting, 1)
        assert (watch.is_drained, clock.pending) == (True, [])

    async def test_it_wakes_when_the_last_one_leaves_after_the_grace(self, watch, drain, seats, clock):
        drain.begin(clock.now)
        clock.advance(GRACE)
        seats.take()
        seats.take()
        waiting = asyncio.create_task(watch.wait())
        await self.turns()
        seats.give_back()
        await self.turns()
        assert (waiting.done(), clock.pending) == (False, [])
        seats.give_back()
        await asyncio.wait_for(waiting, 1)

    async def test_who_comes_and_goes_in_the_grace_does_not_end_it(self, watch, drain, seats, clock):
        drain.begin(clock.now)
        waiting = asyncio.create_task(watch.wait())
        await self.turns()
        seats.take()
        seats.give_back()
        await self.turns()
        assert not waiting.done()
        clock.advance(GRACE)
        await asyncio.wait_for(waiting, 1)

    async def test_called_off_it_waits_until_it_begins_again(self, watch, drain, clock):
        drain.begin(clock.now)
        waiting = asyncio.create_task(watch.wait())
        await self.turns()
        drain.call_off()
        watch.look_again()
        await self.turns()
        assert (waiting.done(), clock.pending) == (False, [])
        drain.begin(clock.now)
        watch.look_again()
        await self.turns()
        clock.advance(GRACE)
        await asyncio.wait_for(waiting, 1)

    async def test_two_may_wait(self, watch, drain, seats, clock):
        seats.take()
        drain.begin(clock.now - GRACE)
        waiting = [asyncio.create_task(watch.wait()) for _ in range(2)]
        await self.turns()
        seats.give_back()
        await asyncio.wait_for(asyncio.gather(*waiting), 1)

    async def test_who_stops_waiting_leaves_no_timer(self, watch, drain, clock):
        drain.begin(clock.now)
        waiting = asyncio.create_task(watch.wait())
        await self.turns()
        waiting.cancel()
        await asyncio.wait([waiting])
        assert clock.pending == []


async def test_an_answer_says_that_its_connection_closes_and_keeps_what_else_it_says():
    sent = []

    async def send(message):
        sent.append(message)

    close = closing(send)
    await close(
        {"type": "http.response.start", "status": 200, "headers": [(b"a", b"b"), (b"Connection", b"keep-alive")]}
    )
    await close({"type": "http.response.body", "body": b"x"})
    assert sent[0]["headers"] == [(b"a", b"b"), (b"connection", b"close")]
    assert sent[1] == {"type": "http.response.body", "body": b"x"}


class TestTheRoute:
    """What a preStop hook of the model server beside it asks."""

    @pytest.fixture
    async def house(self, stack):
        async def house(answer=answer_chat, **server):
            upstream = await stack.enter_async_context(model_server(answer))
            server = {"drain_grace_seconds": 0, "drain_route": True} | server
            gateway = await stack.enter_async_context(live_gateway(upstream.base_url, server=server))
            await gateway.until_up()
            return gateway

        return house

    async def test_it_answers_when_the_last_answer_has_ended(self, house):
        patient = Patient(then=answer_chat)
        gateway = await house(patient)
        inside = asyncio.create_task(gateway.chat())
        await until(lambda: gateway.application.in_flight() == 1)
        told = await gateway.http.post(DRAIN, params={"timeout_seconds": 0})
        assert told.json() == {"status": "draining", "in_flight": 1}
        waiting = asyncio.create_task(gateway.http.post(DRAIN))
        await until(lambda: gateway.application.why_not_ready() == "the gateway is shutting down")
        refused = await gateway.chat()
        assert (refused.status_code, refused.headers["x-gateway-reason"]) == (503, "draining")
        assert not waiting.done()
        patient.may_answer.set()
        assert (await inside).status_code == 200
        assert (await waiting).json() == {"status": "drained", "in_flight": 0}
        assert not gateway.application.is_over, "only a signal ends the process"

    async def test_in_the_grace_an_empty_one_is_not_yet_drained(self, house):
        gateway = await house(drain_grace_seconds=600, drain_seconds=700)
        told = await gateway.http.post(DRAIN, params={"timeout_seconds": 0.01})
        assert told.json() == {"status": "draining", "in_flight": 0}
        served = await gateway.chat()
        assert (served.status_code, served.headers["connection"]) == (200, "close")

    @pytest.mark.parametrize(
        "header",
        ["origin", "referer", "sec-fetch-site", "forwarded", "x-forwarded-for", "x-real-ip", "via", "x-envoy-a"],
    )
    async def test_browsers_and_proxies_on_this_host_are_refused(self, house, header):
        gateway = await house()
        for refused in (
            await gateway.http.post(DRAIN, headers={header: "x"}),
            await gateway.http.delete(DRAIN, headers={header: "x"}),
        ):
            assert (refused.status_code, error_of(refused)["code"]) == (403, "permission_denied")
        assert gateway.application.why_not_ready() is None

    async def test_it_can_be_called_off(self, house):
        gateway = await house()
        assert gateway.metrics("gateway_draining") == {}
        assert (await gateway.http.post(DRAIN)).json()["status"] == "drained"
        assert gateway.metrics("gateway_draining") == {"": 1}
        assert (await gateway.chat()).status_code == 503
        assert (await gateway.http.delete(DRAIN)).json() == {"status": "serving", "in_flight": 0}
        assert gateway.application.why_not_ready() is None
        assert gateway.metrics("gateway_draining") == {}
        assert (await gateway.chat()).status_code == 200
        gateway.application.end(has_grace=False)
        await gateway.http.delete(DRAIN)
        assert gateway.application.is_over, "what is to end ends"

    async def test_without_the_setting_it_is_not_there(self, house):
        gateway = await house(drain_route=False)
        assert (await gateway.http.post(DRAIN)).status_code == 404
        assert gateway.application.why_not_ready() is None

    async def test_other_hosts_are_refused(self, house):
        gateway = await house()
        transport = httpx.ASGITransport(gateway.application, client=("10.0.0.7", 1234))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as stranger:
            refused = await stranger.post(DRAIN)
        assert refused.status_code == 403
        assert gateway.application.why_not_ready() is None

    @pytest.mark.parametrize("seconds", ["-1", "soon", "1e9", "nan"])
    async def test_a_time_that_is_none_is_told(self, house, seconds):
        gateway = await house()
        answer = await gateway.http.post(DRAIN, params={"timeout_seconds": seconds})
        assert (answer.status_code, error_of(answer)["code"]) == (400, "invalid_request")
        assert "timeout_seconds" in error_of(answer)["message"]

    async def test_it_is_not_asked_with_get(self, house):
        assert (await (await house()).http.get(DRAIN)).status_code == 405
