"""The status page's files and what it shows, through a whole gateway."""

import asyncio
import re
import socket
from urllib.parse import urljoin

import httpx
import pytest

from gateway.app import CONTROL_PATHS
from gateway.domain.quantities import Amounts
from gateway.server.page_routes import PAGE_PATHS
from tests.support.live_gateway import MODEL, chat, image, live_gateway, until
from tests.support.model_server import Patient, error_of, model_server
from tests.support.pictures import data_url, encoded, picture
from tests.support.processes import running_gateway
from tests.support.raw_client import raw_client

PAGE, STATE, TRY = "/gateway/", "/gateway/state", "/gateway/try"
FILE = {"content-type": "application/octet-stream"}


def photo(width, height):
    return image(data_url(encoded(picture(width, height))))


async def state_of(gateway):
    answer = await gateway.http.get(STATE)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    return answer.json()


def held_of(resources):
    return {each["resource"]: each["held"] for each in resources}


class TestFiles:
    async def test_the_page_names_files_that_are_there_and_nothing_from_elsewhere(self):
        async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
            page = await gateway.http.get(PAGE)
            assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
            named = re.findall(r'(?:src|href)="([^"#]+)"', page.text)
            assert "page.js" in named
            for name in named:
                assert "//" not in name
                answer = await gateway.http.get(urljoin(PAGE, name))
                assert answer.status_code == 200, name
                for imported in re.findall(r'from "\./([^"]+)"', answer.text):
                    assert f"{PAGE}{imported}" in PAGE_PATHS

    async def test_no_script_or_style_but_its_own_may_run_in_it(self):
        async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
            for path in PAGE_PATHS - {"/gateway"}:
                headers = (await gateway.http.get(path)).headers
                policy = headers["content-security-policy"]
                assert "default-src 'none'" in policy
                assert "unsafe" not in policy
                assert "frame-ancestors 'none'" in policy
                assert (headers["x-content-type-options"], headers["cache-control"]) == ("nosniff", "no-store")
                assert headers["cross-origin-resource-policy"] == "same-origin"
                assert not [name for name in headers if name.startswith("access-control")]
            assert not re.search(r"<script(?![^>]*src=)|<style|style=|\son\w+=", (await gateway.http.get(PAGE)).text)

    async def test_without_the_slash_it_leads_to_the_page(self):
        async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
            answer = await gateway.http.get("/gateway")
            assert (answer.status_code, answer.headers["location"]) == (308, "gateway/")
            assert str(answer.next_request.url).endswith("/gateway/")

    async def test_what_is_not_there_and_what_cannot_be_written(self):
        async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
            answer = await gateway.http.get("/gateway/page.html")
            assert (answer.status_code, error_of(answer)["code"]) == (404, "not_found")
            answer = await gateway.http.post(STATE, json={})
            assert (answer.status_code, error_of(answer)["code"]) == (405, "method_not_allowed")


class TestWhoSeesIt:
    async def asked(self, client, **status_page):
        """Status of everything for one who comes from `client`."""
        async with model_server() as upstream, live_gateway(upstream.base_url, status_page=status_page) as gateway:
            transport = httpx.ASGITransport(gateway.application, client=(client, 1234))
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
                gets = {path: (await http.get(path)).status_code for path in sorted(PAGE_PATHS)}
                tried = await http.post(TRY, content=encoded(picture(30, 30)), headers=FILE)
                health = (await http.get("/livez")).status_code
            await gateway.until_released()
        assert (health, PAGE_PATHS <= CONTROL_PATHS) == (200, True)
        return set(gets.values()), tried

    async def test_this_machine(self):
        statuses, tried = await self.asked("127.0.0.1")
        assert (statuses, tried.status_code) == ({200, 308}, 200)

    async def test_another_one(self):
        statuses, tried = await self.asked("203.0.113.9")
        assert (statuses, tried.status_code) == ({403}, 403)
        assert (error_of(tried)["code"], tried.headers["x-gateway-reason"]) == ("permission_denied", "closed_route")

    async def test_another_one_where_everyone_may(self):
        statuses, tried = await self.asked("203.0.113.9", visible_to="everyone")
        assert (statuses, tried.status_code) == ({200, 308}, 200)

    async def test_nobody(self):
        statuses, tried = await self.asked("127.0.0.1", visible_to="nobody")
        assert (statuses, tried.status_code) == ({404}, 404)

    @pytest.mark.parametrize(
        "headers",
        [
            {"host": "evil.example"},
            {"origin": "https://evil.example"},
            {"sec-fetch-site": "cross-site"},
            {"x-forwarded-for": "127.0.0.1"},
        ],
        ids=lambda headers: next(iter(headers)),
    )
    async def test_a_foreign_page_reads_and_tries_nothing(self, headers):
        async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
            for method, path in (("GET", STATE), ("POST", TRY), ("OPTIONS", TRY)):
                answer = await gateway.http.request(method, path, headers=FILE | headers)
                assert answer.status_code == 403
                assert not [name for name in answer.headers if name.startswith("access-control")]


class TestWhatItShows:
    async def test_a_quiet_gateway(self):
        async with model_server() as upstream, live_gateway(upstream.base_url, budget={"kv_blocks": 1000}) as gateway:
            await gateway.until_up()
            state = await state_of(gateway)
            assert (state["mode"], state["is_draining"], state["refused"]) == ("enforce", False, {})
            assert (state["last_refusals"], state["drift"]["answers"]) == ([], 0)
            assert state["drift"]["mean_ratio"] is None
            [server] = state["upstreams"]
            assert (server["name"], server["state"], server["queue"]["waiting"]) == ("default", "up", 0)
            assert server["models"] == [
                {
                    "name": MODEL,
                    "family": "qwen2_5_vl",
                    "family_source": "setting",
                    "max_model_len": 32_768,
                    "calibration": None,
                }
            ]
            capacity = {each["resource"]: each["capacity"] for each in server["resources"]}
            assert (capacity["kv_blocks"], capacity["encoder_tokens"]) == (950, None)
            assert (server["engine"]["running"], server["rungs"]) == (None, [])
            assert gateway.ended() == {}  # to look is no request
            assert not gateway.log_text

    async def test_what_runs_and_what_waits(self):
        patient = Patient()
        budget = {"sequences": 1, "kv_blocks": 5000}
        async with model_server(patient) as upstream, live_gateway(upstream.base_url, budget=budget) as gateway:
            await gateway.until_up()
            tasks = [asyncio.create_task(gateway.chat("x", photo(280, 280))) for _ in range(3)]
            await until(lambda: gateway.metrics("gateway_queue_depth").get("") == 2)
            await until(lambda: gateway.metrics("gateway_upstream_requests_in_flight").get("") == 1)
            state = await state_of(gateway)
            [server] = state["upstreams"]
            assert (server["in_flight"], server["queue"]["waiting"], server["queue"]["places"]) == (1, 2, 256)
            assert server["queue"]["cost_tokens"] > 200
            held = held_of(server["resources"])
            assert (held["sequences"], held["kv_blocks"] > 5) == (1, True)
            assert server["pressure"]["image"] >= 3
            shared = held_of(state["shared"])
            assert shared["seats"] == 3
            assert shared["body_bytes"] > 0
            patient.may_answer.set()
            await asyncio.gather(*tasks)
            await gateway.until_released()
            state = await state_of(gateway)
            assert (state["requests"]["finished"], state["images"]["kept"]) == (3, 3)
            assert (state["drift"]["answers"], sum(state["drift"]["counts"])) == (3, 3)
            assert state["drift"]["mean_ratio"] > 1
            assert set(held_of(state["upstreams"][0]["resources"]).values()) == {0}

    async def test_what_was_saved(self):
        sections = {"resize": {"preset": "thumbnail"}, "history": {"mode": "always", "keep": 1, "grid": 1}}
        async with model_server() as upstream, live_gateway(upstream.base_url, **sections) as gateway:
            await gateway.until_up()
            turns = [{"role": "user", "content": [photo(1000, 1000)]}, {"role": "assistant", "content": "Yes."}] * 2
            assert (await gateway.http.post("/v1/chat/completions", json=chat() | {"messages": turns[:3]})).is_success
            state = await state_of(gateway)
            assert (state["images"]["resized"], state["images"]["trimmed"]) == (1, 1)
            assert state["tokens_saved"]["resized"] > 900

    async def test_refusals_with_their_reasons_and_without_what_was_asked(self):
        async with model_server() as upstream, live_gateway(upstream.base_url, log={"requests": False}) as gateway:
            await gateway.until_up()
            await gateway.chat("my secret", image("data:image/png;base64,AAAA"))
            await gateway.http.post("/sleep")
            async with raw_client(gateway.host, gateway.port) as client:
                client.send(b"nonsense\r\n\r\n")
                await client.answer()
            state = await state_of(gateway)
            assert [each["reason"] for each in state["last_refusals"]] == ["bad_request", "closed_route", "bad_image"]
            last = state["last_refusals"][-1]
            assert (last["status"], last["model"], last["endpoint"]) == (400, MODEL, "/v1/chat/completions")
            assert "not an image" in last["message"]
            assert (last["images"], last["tenant"], last["priority"]) == (1, "default", "default")
            assert state["refused"] == {"bad_request": 1, "closed_route": 1, "bad_image": 1}
            assert "secret" not in str(state)
            assert not gateway.log_text

    async def test_in_shadow_mode_what_would_have_been(self):
        sections = {"mode": "shadow", "images": {"max_per_turn": 1}, "log": {"requests": False}}
        async with model_server() as upstream, live_gateway(upstream.base_url, **sections) as gateway:
            await gateway.until_up()
            assert (await gateway.chat(photo(60, 60), photo(28, 28))).status_code == 200
            assert (await gateway.chat(photo(60, 60))).status_code == 200
            state = await state_of(gateway)
            assert (state["mode"], state["refused"]) == ("shadow", {"too_many_images": 1})
            [one] = state["last_refusals"]
            assert (one["reason"], one["is_told"], one["message"]) == ("too_many_images", True, None)
            assert state["images"]["kept"] == 1

    async def test_several_servers_one_of_which_is_away_and_the_ladder(self):
        async with model_server() as upstream:
            servers = {"a": upstream.base_url, "b": "http://127.0.0.1:9"}
            pressure = {"shrink": {"enter": 0.1, "leave": 0.05}}
            async with live_gateway(servers, pressure=pressure, budget={"sequences": 1}) as gateway:
                await until(lambda: len(gateway.application.troubles()) == 1)
                gate = gateway.application._running.backends[0].gate
                gate.grow(Amounts(sequences=1))
                state = await state_of(gateway)
                assert {each["name"]: each["state"] for each in state["upstreams"]} == {"a": "up", "b": "loading"}
                assert state["upstreams"][0]["rungs"] == ["shrink"]
                assert state["upstreams"][1]["trouble"]
                assert state["upstreams"][1]["engine"] is None

    async def test_the_engines_own_numbers(self, emulator):
        async with live_gateway(emulator.base_url) as gateway:
            await gateway.until_up()
            [server] = (await state_of(gateway))["upstreams"]
            assert server["engine"]["running"] == 0
            assert server["engine"]["age_seconds"] < 10
            backend = gateway.application._running.backends[0]
            backend.breaker.froze(backend.gate.now)
            assert (await state_of(gateway))["upstreams"][0]["state"] == "passed_over"

    async def test_while_the_gateway_leaves(self):
        async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
            gateway.application.drain()
            assert (await state_of(gateway))["is_draining"]

    async def test_a_server_that_was_there_and_went(self):
        async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
            await gateway.until_up()
            await upstream.stop()
            await until(lambda: bool(gateway.application.troubles()))
            [server] = (await state_of(gateway))["upstreams"]
            assert (server["state"], bool(server["trouble"])) == ("down", True)


def test_a_real_process_judges_by_the_socket(tmp_path):
    """By another address of this machine one is somebody else, whatever the headers say."""
    own = own_address()
    if own is None:
        pytest.skip("this machine has no address but loopback")
    everywhere = {"server": {"host": "0.0.0.0"}}
    with running_gateway("http://127.0.0.1:9", tmp_path, everywhere, ready="/livez") as gateway:
        port = gateway.url.rpartition(":")[2]
        for headers in ({}, {"host": "localhost"}, {"x-forwarded-for": "127.0.0.1"}, {"forwarded": "for=127.0.0.1"}):
            assert httpx.get(f"http://{own}:{port}{STATE}", headers=headers).status_code == 403
        assert httpx.get(f"http://127.0.0.1:{port}{STATE}").status_code == 200
        assert httpx.get(f"http://127.0.0.1:{port}{STATE}", headers={"x-forwarded-for": own}).status_code == 403


def own_address() -> str | None:
    """The one that the way out of this machine begins at; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("198.51.100.1", 9))
        except OSError:
            return None
        address: str = probe.getsockname()[0]
    return None if address.startswith("127.") else address
