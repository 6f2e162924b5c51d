"""Keys, models and quotas of tenants through a live gateway: who gets in, as whom, and how much of it."""

import asyncio
import logging
from hashlib import sha256
from pathlib import Path

import pytest

from gateway.keys_file import digest_of, write_keys
from gateway.settings.keys import KeyEntry
from tests.support.clock import FakeClock
from tests.support.live_gateway import CHAT, chat, image, live_gateway, until
from tests.support.model_server import Patient, answer_chat, error_of, model_server, posts
from tests.support.pictures import data_url, encoded, picture

CLOSED_WITHOUT_KEY = [
    ("POST", CHAT),
    ("POST", "/v1/completions"),
    ("POST", "/v1/embeddings"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/tiny"),
    ("POST", "/tokenize"),
    ("POST", "/detokenize"),
    ("POST", "/gateway/preflight"),
    ("POST", "/gateway/try"),
    ("POST", "/v1/responses"),
    ("POST", "/sleep"),
    ("GET", "/nowhere"),
]


def tenant(name, **fields):
    """One whose key is `sk-` and its name."""
    return {"name": name, "key_sha256": [sha256(f"sk-{name}".encode()).hexdigest()]} | fields


def bearer(name):
    return {"authorization": f"Bearer sk-{name}"}


@pytest.fixture
async def server():
    async with model_server() as upstream:
        yield upstream


class TestWhoGetsIn:
    @pytest.mark.parametrize(("method", "path"), CLOSED_WITHOUT_KEY)
    async def test_nothing_is_answered_without_a_key(self, server, method, path):
        async with live_gateway(server.base_url, tenants=[tenant("a")]) as gateway:
            for headers in ({}, {"authorization": "Bearer sk-b"}, {"x-api-key": ""}):
                answer = await gateway.http.request(method, path, headers=headers)
                assert (answer.status_code, answer.headers["x-gateway-reason"]) == (401, "unauthorised")
                assert answer.headers["www-authenticate"] == "Bearer"
                assert error_of(answer)["code"] == "invalid_api_key"
                assert error_of(answer)["type"] == "invalid_request_error"
        assert not posts(server)

    async def test_anthropics_route_says_it_in_its_own_shape(self, server):
        async with live_gateway(server.base_url, tenants=[tenant("a")]) as gateway:
            answer = await gateway.http.post("/v1/messages/count_tokens", json={})
        assert answer.status_code == 401
        assert answer.json()["error"]["type"] == "authentication_error"

    async def test_it_is_said_before_the_body_comes(self, server):
        async with live_gateway(server.base_url, tenants=[tenant("a")]) as gateway:
            reader, writer = await asyncio.open_connection(gateway.host, gateway.port)
            writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\n")
            async with asyncio.timeout(30):
                assert (await reader.readline()).split()[1] == b"401"
            writer.close()

    @pytest.mark.parametrize("path", ["/livez", "/readyz", "/startupz", "/health", "/metrics", "/version"])
    async def test_health_and_metrics_stay_open(self, server, path):
        async with live_gateway(server.base_url, tenants=[tenant("a")]) as gateway:
            await gateway.until_up()
            assert (await gateway.http.get(path)).status_code == 200

    @pytest.mark.parametrize("headers", [bearer("a"), {"x-api-key": "sk-a"}, {"authorization": "bearer  sk-a"}])
    async def test_a_known_key_gets_in_either_way_and_stays_here(self, server, headers):
        async with live_gateway(server.base_url, tenants=[tenant("a")]) as gateway:
            assert (await gateway.chat(headers=headers)).status_code == 200
            (line,) = await gateway.log(1)
            assert (await gateway.http.get("/v1/models", headers=headers)).status_code == 200
        assert line["tenant"] == "a"
        sent = {name for visit in server.visits for name, _ in visit.headers}
        assert not sent & {"authorization", "x-api-key"}

    async def test_a_refusal_is_counted_and_logged_and_no_key_is(self, server):
        async with live_gateway(server.base_url, tenants=[tenant("a")]) as gateway:
            await gateway.chat(headers={"authorization": "Bearer sk-secret"})
            line = await gateway.assert_ended("refused", status=401, reason="unauthorised")
        assert line["tenant_id"] == "unknown key"
        assert b"secret" not in gateway.log_text

    async def test_shadow_mode_lets_no_stranger_in_either(self, server):
        async with live_gateway(server.base_url, mode="shadow", tenants=[tenant("a")]) as gateway:
            assert (await gateway.chat()).status_code == 401
            assert (await gateway.chat(headers=bearer("a"))).status_code == 200


class TestTheServersKey:
    @pytest.mark.parametrize("key", [None, "sk-engine"])
    async def test_it_goes_with_every_request_and_the_clients_with_none(self, key):
        async def answer(visit):
            await answer_chat(visit) if visit.path == CHAT else await visit.answer("404 Not Found")

        sections = {"upstream": {"api_key": key}, "calibration": "tokenize"}
        async with (
            model_server(answer, is_idle=True) as upstream,
            live_gateway(upstream.base_url, **sections) as gateway,
        ):
            await gateway.until_up()
            headers = bearer("a") | {"x-api-key": "sk-a"}
            assert (await gateway.chat(headers=headers)).status_code == 200
            await gateway.chat(stream=True, headers=headers)
            await gateway.http.get("/v1/models", headers=headers)
            await gateway.http.post("/detokenize", json={"model": "tiny", "tokens": [1]}, headers=headers)
            await until(lambda: "/tokenize" in {visit.path for visit in upstream.visits}, lambda: "no calibration")
        paths = {visit.path for visit in upstream.visits}
        assert paths >= {CHAT, "/v1/models", "/metrics", "/health", "/tokenize", "/detokenize"}
        for visit in upstream.visits:
            assert visit.header("authorization") == ([] if key is None else [f"Bearer {key}"]), visit.path
            assert not visit.header("x-api-key"), visit.path


class TestTheKeysFile:
    @pytest.fixture
    def path(self, tmp_path):
        path = str(tmp_path / "keys.yaml")
        write_keys(path, [entry("a", "team-a")])
        return path

    async def test_its_keys_get_in_beside_those_of_the_settings(self, server, path):
        sections = {"keys": {"file": path}, "tenants": [tenant("b"), {"name": "team-a", "tenant_class": "teams"}]}
        async with live_gateway(server.base_url, **sections) as gateway:
            for name in "ab":
                assert (await gateway.chat(headers=bearer(name))).status_code == 200
            assert (await gateway.chat(headers=bearer("c"))).status_code == 401
            assert gateway.metrics("gateway_keys") == {"": 2}
            lines = await gateway.log(3)
        assert [(line["tenant"], line.get("tenant_id")) for line in lines[:2]] == [("teams", "team-a"), ("b", None)]

    async def test_a_change_counts_without_a_restart_and_is_told_by_names(self, server, path, caplog):
        caplog.set_level(logging.INFO)
        async with live_gateway(server.base_url, keys={"file": path}) as gateway:
            write_keys(path, [entry("new", "team-b")])
            gateway.application.reload()
            await until(lambda: gateway.metrics("gateway_key_reloads_total") == {'{result="done"}': 1})
            assert (await gateway.chat(headers=bearer("new"))).status_code == 200
            assert (await gateway.chat(headers=bearer("a"))).status_code == 401
        (told,) = [record for record in caplog.records if getattr(record, "event", "") == "keys_reloaded"]
        assert (told.keys_created, told.keys_revoked, told.keys_changed) == (["new"], ["a"], [])
        assert "created new; revoked a" in told.getMessage()
        assert digest_of("sk-new") not in caplog.text

    async def test_a_bad_file_changes_nothing_and_is_told(self, server, path, caplog):
        async with live_gateway(server.base_url, keys={"file": path}) as gateway:
            await asyncio.to_thread(Path(path).write_text, "keys: [{name: x}]")
            gateway.application.reload()
            await until(lambda: gateway.metrics("gateway_key_reloads_total") == {'{result="failed"}': 1})
            assert (await gateway.chat(headers=bearer("a"))).status_code == 200
            assert gateway.metrics("gateway_keys_stale") == {"": 1}
        assert "keys.0.sha256: Field required" in caplog.text


def entry(name, tenant_name, **fields):
    return KeyEntry(name=name, tenant=tenant_name, sha256=digest_of(f"sk-{name}"), **fields)


class TestAHeaderOfAProxy:
    def sections(self, network):
        return {
            "tenants": [tenant("a", weight=2), {"name": "mesh"}],
            "tenants_from": {"header": "x-tenant", "networks": [network]},
        }

    async def test_from_a_trusted_peer_it_stands_in_place_of_a_key(self, server):
        async with live_gateway(server.base_url, **self.sections("127.0.0.0/8")) as gateway:
            for headers, status in [
                ({"x-tenant": "mesh"}, 200),
                ({"x-tenant": "someone"}, 200),
                ({"x-tenant": ""}, 401),
                ({}, 401),
                ([("x-tenant", "mesh"), ("x-tenant", "a")], 401),
            ]:
                answer = await gateway.http.post(CHAT, json=chat(), headers=headers)
                assert answer.status_code == status, headers
            lines = await gateway.log(5)
        assert [line["tenant"] for line in lines[:2]] == ["mesh", "default"]
        assert not [name for visit in posts(server) for name, _ in visit.headers if name == "x-tenant"]

    async def test_from_others_it_is_as_if_it_were_not_there(self, server):
        async with live_gateway(server.base_url, **self.sections("10.0.0.0/8")) as gateway:
            assert (await gateway.chat(headers={"x-tenant": "mesh"})).status_code == 401
            assert (await gateway.chat(headers={"x-tenant": "mesh"} | bearer("a"))).status_code == 200
            lines = await gateway.log(2)
        assert lines[1]["tenant"] == "a"
        assert not [name for visit in posts(server) for name, _ in visit.headers if name == "x-tenant"]


class TestModels:
    async def test_others_than_it_may_ask_for_are_not_there(self):
        sections = {
            "models": [{"name": "tiny", "family": "qwen2_5_vl"}, {"name": "large", "family": "qwen2_5_vl"}],
            "tenants": [tenant("a", models=["tiny"]), tenant("b")],
        }
        async with (
            model_server(models=("tiny", "large")) as upstream,
            live_gateway(upstream.base_url, **sections) as gateway,
        ):
            await gateway.until_up()
            lists = {name: await gateway.http.get("/v1/models", headers=bearer(name)) for name in "ab"}
            listed = {name: [each["id"] for each in answer.json()["data"]] for name, answer in lists.items()}
            assert listed == {"a": ["tiny"], "b": ["tiny", "large"]}
            assert (await gateway.http.get("/v1/models/large", headers=bearer("a"))).status_code == 404
            assert (await gateway.chat(headers=bearer("a"))).status_code == 200
            for model in ("large", "", None):
                refused = await gateway.chat(model=model, headers=bearer("a"))
                assert (refused.status_code, error_of(refused)["code"]) == (404, "model_not_found")
                assert "there are: tiny." in error_of(refused)["message"]
            counted = await gateway.http.post("/tokenize", json={"model": "large", "prompt": "x"}, headers=bearer("a"))
            assert counted.status_code == 404
            here = bearer("a") | {"x-gateway-tokens": "estimate"}
            counted = await gateway.http.post("/tokenize", json={"model": "large", "prompt": "x"}, headers=here)
            assert counted.status_code == 404
            assert (await gateway.chat(model="large", headers=bearer("b"))).status_code == 200


def limited(**quota):
    return [tenant("a", quota=quota)]


class TestQuotas:
    async def test_requests_by_the_minute_with_headers_as_openai_has_them(self, server):
        clock = FakeClock()
        sections = {"tenants": limited(requests_per_minute=2)}
        async with live_gateway(server.base_url, clock=clock, **sections) as gateway:
            told = []
            for _ in range(3):
                answer = await gateway.chat(headers=bearer("a"))
                names = ("limit", "remaining", "reset")
                told.append([answer.headers[f"x-ratelimit-{name}-requests"] for name in names])
            assert told == [["2", "1", "30s"], ["2", "0", "1m0s"], ["2", "0", "1m0s"]]
            assert (answer.status_code, answer.headers["x-gateway-reason"]) == (429, "tenant_quota")
            assert error_of(answer)["code"] == "rate_limit_exceeded"
            assert 30 <= int(answer.headers["retry-after"]) <= 38
            assert 30_000 <= int(answer.headers["retry-after-ms"]) <= 37_500
            assert "2 requests per minute" in error_of(answer)["message"]
            clock.advance(30.0)
            assert (await gateway.chat(headers=bearer("a"))).status_code == 200
            assert gateway.metrics("gateway_tenant_quota_used_ratio") == {'{quota="requests",tenant_class="a"}': 1.0}
            assert gateway.rejected() == {"tenant_quota": 1}
        assert len(posts(server)) == 3

    async def test_tokens_are_trued_up_by_usage_and_images_and_pixels_count(self, server):
        sections = {"tenants": limited(prompt_tokens_per_minute=10_000, images_per_minute=5, pixels_per_minute=100_000)}
        async with live_gateway(server.base_url, clock=FakeClock(), **sections) as gateway:
            answer = await gateway.chat(image(data_url(encoded(picture(56, 84)))), headers=bearer("a"))
            left = {
                name: answer.headers[f"{start}-remaining-{name}"]
                for start, name in (("x-gateway", "images"), ("x-gateway", "pixels"))
            }
            assert left == {"images": "4", "pixels": str(100_000 - 56 * 84)}
            await gateway.until_released()
            used = gateway.metrics("gateway_tenant_quota_used_ratio")
        assert used['{quota="tokens",tenant_class="a"}'] == pytest.approx(40 / 10_000), "the server counted 40"

    async def test_what_can_never_fit_is_refused_for_good(self, server):
        async with live_gateway(server.base_url, tenants=limited(prompt_tokens_per_minute=3)) as gateway:
            answer = await gateway.chat("A long story. " * 20, headers=bearer("a"))
            assert (answer.status_code, answer.headers["x-gateway-reason"]) == (400, "tenant_quota")
            assert answer.headers["x-should-retry"] == "false"
            assert "prompt_tokens_per_minute" in error_of(answer)["message"]
            await gateway.until_released()
            assert gateway.metrics("gateway_tenant_quota_used_ratio") == {}
        assert not posts(server)

    async def test_only_so_many_are_inside_at_once(self):
        patient = Patient(then=answer_chat)
        sections = {"tenants": limited(concurrent_requests=1)}
        async with model_server(patient) as upstream, live_gateway(upstream.base_url, **sections) as gateway:
            first = asyncio.create_task(gateway.chat(headers=bearer("a")))
            await until(lambda: len(posts(upstream)) == 1)
            refused = await gateway.chat(headers=bearer("a"))
            assert (refused.status_code, refused.headers["x-gateway-reason"]) == (429, "tenant_concurrency")
            assert refused.headers["retry-after"] in {"1", "2"}
            assert "x-should-retry" not in refused.headers
            patient.may_answer.set()
            assert (await first).status_code == 200
            await gateway.until_released()
            assert (await gateway.chat(headers=bearer("a"))).status_code == 200

    async def test_who_is_refused_leaves_or_gets_no_answer_gets_it_back(self):
        first = Patient(then=answer_chat)
        sections = {
            "tenants": limited(requests_per_minute=50, prompt_tokens_per_minute=5000, concurrent_requests=9),
            "budget": {"sequences": 1},
            "queue": {"requests": 5, "wait_seconds": 60},
        }
        async with (
            model_server(first) as upstream,
            live_gateway(upstream.base_url, clock=FakeClock(), **sections) as gateway,
        ):
            holder = asyncio.create_task(gateway.chat(headers=bearer("a")))
            await until(lambda: len(posts(upstream)) == 1)
            before = gateway.metrics("gateway_tenant_quota_used_ratio")
            assert (await gateway.chat(n="two", headers=bearer("a"))).status_code == 400
            leaver = asyncio.create_task(gateway.chat(headers=bearer("a")))
            await until(lambda: gateway.metrics("gateway_queue_depth") == {"": 1})
            leaver.cancel()
            await until(lambda: gateway.metrics("gateway_queue_depth") == {})
            await until(lambda: gateway.metrics("gateway_tenant_quota_used_ratio") == before)
            first.may_answer.set()
            assert (await holder).status_code == 200

    @pytest.mark.parametrize("status", ["400 Bad Request", "500 Internal Server Error", "429 Too Many Requests"])
    async def test_an_answer_that_is_none_costs_nothing(self, status):
        async def refuse(visit):
            await visit.answer(status, b"{}", "content-type: application/json")

        sections = {"tenants": limited(requests_per_minute=50, prompt_tokens_per_minute=5000)}
        async with (
            model_server(refuse) as upstream,
            live_gateway(upstream.base_url, clock=FakeClock(), **sections) as gateway,
        ):
            assert (await gateway.chat(headers=bearer("a"))).status_code == int(status[:3])
            await gateway.until_released()
            assert gateway.metrics("gateway_tenant_quota_used_ratio") == {}

    async def test_what_the_gateway_answers_itself_is_not_counted(self, server):
        async with live_gateway(server.base_url, tenants=limited(requests_per_minute=1)) as gateway:
            for _ in range(2):
                assert (await gateway.http.get("/v1/models", headers=bearer("a"))).status_code == 200
                answer = await gateway.http.post("/gateway/preflight", json=chat(), headers=bearer("a"))
                assert answer.status_code == 200
            assert (await gateway.chat(headers=bearer("a"))).status_code == 200

    async def test_in_shadow_it_is_only_told(self, server):
        sections = {"mode": "shadow", "tenants": limited(requests_per_minute=1, prompt_tokens_per_minute=60)}
        async with live_gateway(server.base_url, clock=FakeClock(), **sections) as gateway:
            told = []
            for text in ("A long story. " * 50, "Hello.", "Hello."):
                answer = await gateway.chat(text, headers=bearer("a"))
                assert answer.status_code == 200
                told.append(answer.headers["x-gateway-shadow"])
                await gateway.until_released()
            refused = "refused;reason=tenant_quota;status="
            assert told == [f"{refused}400", "admitted", f"{refused}429"], "what was refused has cost nothing"
        assert len(posts(server)) == 3

    async def test_strangers_share_one_quota(self, server):
        sections = {"tenants": [{"name": "default", "quota": {"requests_per_minute": 1}}]}
        async with live_gateway(server.base_url, clock=FakeClock(), **sections) as gateway:
            assert (await gateway.chat(headers=bearer("a"))).status_code == 200
            refused = await gateway.chat(headers=bearer("b"))
        assert (refused.status_code, refused.headers["x-gateway-reason"]) == (429, "tenant_quota")
