"""The application as a whole: it starts, waits for its upstream, drains, stops."""

import asyncio
from dataclasses import replace

import httpx
import pytest

from gateway.app import Application
from gateway.emulator.config import EmulatorConfig
from gateway.emulator.serve import running_emulator
from gateway.models.configure import ModelSettingsError
from tests.support.live_gateway import CHAT, chat, image, live_gateway, settings_of, until
from tests.support.model_server import answer_chat, error_of, model_server
from tests.support.pictures import data_url, encoded, picture
from tests.support.processes import free_port
from tests.support.raw_http import raw_http_server

NOWHERE = "http://127.0.0.1:9"
AT_ONCE = {"drain_grace_seconds": 0}


class TestBeforeTheUpstreamIsThere:
    async def test_it_is_alive_but_not_ready_and_gets_ready_with_it(self):
        port = free_port()
        async with live_gateway(f"http://127.0.0.1:{port}") as gateway:
            await until(lambda: "not looked at yet" not in (gateway.application.why_not_ready() or ""))
            assert (await gateway.http.get("/livez")).status_code == 200
            assert (await gateway.http.get("/startupz")).status_code == 200
            answer = await gateway.http.get("/readyz")
            assert (answer.status_code, answer.json()["status"]) == (503, "unavailable")
            assert "still loading or not there yet" in answer.json()["reason"]
            async with model_server(port=port):
                await until(lambda: gateway.application.why_not_ready() is None)
                assert (await gateway.http.get("/readyz")).status_code == 200
                poller = gateway.application._running.backends[0].poller
                poller.state = replace(poller.state, is_up=False, trouble="/health answered 503")
                answer = await gateway.http.get("/readyz")
                assert answer.json()["reason"] == "the model server is down: /health answered 503"

    async def test_what_it_finds_there_becomes_the_budget(self):
        with running_emulator(EmulatorConfig.fast(num_gpu_blocks=1001, max_model_len=4096)) as emulator:
            async with live_gateway(emulator.base_url) as gateway:
                await gateway.until_up()
                capacity = gateway.metrics("gateway_capacity")
                assert capacity['{resource="kv_blocks"}'] == 950  # one is vLLM's own, a twentieth is head-room
                answer = await gateway.chat("x" * 600_000)
                assert error_of(answer)["code"] == "context_length_exceeded"


class TestDraining:
    async def test_nothing_new_is_taken_and_what_is_inside_is_finished(self):
        async with model_server() as upstream, live_gateway(upstream.base_url, server=AT_ONCE) as gateway:
            await gateway.until_up()
            assert not gateway.application.is_drained()
            gateway.application.drain()
            assert gateway.application.is_drained()
            assert not gateway.application.is_over
            assert (await gateway.http.get("/livez")).status_code == 200
            assert "shutting down" in (await gateway.http.get("/readyz")).json()["reason"]
            answer = await gateway.chat()
            assert (answer.status_code, error_of(answer)["code"]) == (503, "server_is_overloaded")
            assert answer.headers["x-gateway-reason"] == "draining"
            assert (answer.headers["retry-after"], answer.headers["connection"]) == ("2", "close")

    async def test_who_waits_for_it_learns_at_once_that_the_grace_is_cut_short(self):
        async with live_gateway(NOWHERE, server={"drain_grace_seconds": 30, "drain_seconds": 60}) as gateway:
            gateway.application.drain()
            waiting = asyncio.create_task(gateway.application.until_drained())
            await asyncio.sleep(0)
            gateway.application.end(has_grace=False)
            await asyncio.wait_for(waiting, 5)

    async def test_before_the_start_there_is_nothing_to_drain(self):
        application = Application(settings_of(NOWHERE))
        application.drain()
        application.end(has_grace=True)
        application.call_off_drain()
        assert (application.is_drained(), application.is_over, application.is_started()) == (True, False, False)
        assert application.in_flight() == 0
        await application.until_drained()
        assert application.why_not_ready() == "the gateway is still starting"


class TestLifespan:
    async def told(self, application, *received):
        """What the server is told while it sends `received`."""
        sent, messages = [], list(received)

        async def receive():
            return {"type": messages.pop(0)}

        async def send(message):
            sent.append(message)

        try:
            await application({"type": "lifespan"}, receive, send)
        except OSError as error:
            sent.append(error)
        return sent

    async def test_starts_and_stops(self):
        application = Application(settings_of(NOWHERE), lambda _: None)
        sent = await self.told(application, "lifespan.startup", "lifespan.shutdown")
        assert [message["type"] for message in sent] == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
        assert not application.is_started()

    @pytest.mark.parametrize(
        ("step", "told"), [("start", "lifespan.startup.failed"), ("stop", "lifespan.shutdown.failed")]
    )
    async def test_what_fails_is_told(self, monkeypatch, step, told):
        async def fail(self):
            raise OSError("no more")

        monkeypatch.setattr(f"gateway.backends.Gate.{step}", fail)
        application = Application(settings_of(NOWHERE), lambda _: None)
        *_, last, error = await self.told(application, "lifespan.startup", "lifespan.shutdown")
        assert last == {"type": told, "message": "no more"}
        assert isinstance(error, OSError)
        assert not application.is_started()


class TestSettings:
    async def test_the_body_limit_is_at_most_half_of_the_memory_for_bodies(self):
        async with model_server() as upstream, live_gateway(upstream.base_url, budget={"body_bytes": 1000}) as gateway:
            answer = await gateway.http.post(CHAT, json=chat("x" * 500))
            assert (answer.status_code, error_of(answer)["code"]) == (413, "request_too_large")
            assert "500" in error_of(answer)["message"]

    async def test_policies_reach_the_decisions(self):
        square = image(data_url(encoded(picture(560, 560))))
        sections = {
            "images": {"max_per_turn": 1, "verify": "header"},
            "resize": {"preset": "thumbnail", "max_tokens_per_image": 102},
            "log": {"requests": False},
        }
        async with model_server(answer_chat) as upstream, live_gateway(upstream.base_url, **sections) as gateway:
            answer = await gateway.chat(square)
            assert answer.headers["x-gateway-images"].startswith("0;resized;560x560;280x280;")
            assert error_of(await gateway.chat(square, square))["code"] == "too_many_images"
            await gateway.until_released()
        assert not gateway.log_text

    def test_a_model_that_cannot_be_read_is_told_at_once(self):
        models = [{"name": "m", "family": "none-such"}]
        with pytest.raises(ModelSettingsError, match="model 'm'"):
            Application(settings_of(NOWHERE, models=models))


async def test_the_metrics_page_is_served(caplog):
    async with raw_http_server(answer_chat) as upstream, live_gateway(upstream.base_url) as gateway:
        page = await gateway.http.get("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})
        assert page.headers["content-type"].startswith("application/openmetrics-text")
        assert page.text.endswith("# EOF\n")
        assert 'gateway_build_info{encoder_id="' in page.text


async def test_control_and_proxied_routes_live_side_by_side():
    application = Application(settings_of(NOWHERE), lambda _: None)
    async with application.running():
        transport = httpx.ASGITransport(application)
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
            assert (await client.get("/version")).status_code == 200
            assert error_of(await client.get("/readyz/"))["code"] == "not_found"
