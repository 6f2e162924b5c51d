"""Which upstreams have a budget of their own, and what a gateway says that cannot reach the shared one."""

from hashlib import sha256

import pydantic
import pytest

from gateway.domain.quantities import Capacity
from gateway.ledger.local import LocalLedger
from gateway.ledger.shared import SharedLedger
from gateway.ledger.timing import Timing
from gateway.policies import upstreams_of
from gateway.settings import Settings
from gateway.settings.secrets import secrets_of
from gateway.sharing import ledger_of
from tests.support.clock import FakeClock
from tests.support.live_gateway import live_gateway, until
from tests.support.model_server import answer_chat, model_server
from tests.support.processes import free_port
from tests.support.redis_server import running_redis

URL = "redis://:hunter2@127.0.0.1:1/0"


def ledger(**sections) -> object:
    clock = FakeClock()
    settings = Settings.model_validate({"upstream": {"url": "http://vllm:8000"}} | sections)
    return ledger_of(settings, upstreams_of(settings)[0], Capacity(100), Timing(clock, clock.call_later))


def test_without_an_address_a_gateway_is_alone():
    assert type(ledger()) is LocalLedger


def test_with_one_it_shares():
    shared = ledger(ledger={"redis_url": URL, "gateways": 3, "namespace": "here"})
    assert type(shared) is SharedLedger
    assert shared._store._key == "here:http://vllm:8000/"
    assert shared.standing.gateways == 3


def test_each_start_and_each_upstream_is_another_owner():
    first, other = (ledger(ledger={"redis_url": URL}) for _ in range(2))
    assert first._sharing.owner != other._sharing.owner


def test_in_shadow_mode_there_is_nothing_to_share():
    assert type(ledger(mode="shadow", ledger={"redis_url": URL})) is LocalLedger


def test_its_password_is_a_secret():
    assert URL in secrets_of(Settings.model_validate({"ledger": {"redis_url": URL}}))


def test_an_address_of_something_else_is_a_mistake():
    with pytest.raises(pydantic.ValidationError, match="begins with redis://"):
        Settings.model_validate({"ledger": {"redis_url": "http://127.0.0.1:6379"}})


def test_an_address_that_cannot_be_read_is_a_mistake_of_the_settings():
    with pytest.raises(pydantic.ValidationError, match="`redis_url` cannot be read"):
        Settings.model_validate({"ledger": {"redis_url": "redis://127.0.0.1:port/0"}})


def test_the_extra_is_named_where_it_is_missing(monkeypatch):
    monkeypatch.setattr("gateway.settings.ledger.is_installed", lambda _: False)
    with pytest.raises(pydantic.ValidationError, match=r"vlm-gateway\[redis\]"):
        Settings.model_validate({"ledger": {"redis_url": URL}})


async def test_a_gateway_without_its_redis_serves_and_says_so(caplog):
    gone = f"redis://127.0.0.1:{free_port()}"
    async with (
        model_server(answer_chat) as server,
        live_gateway(server.base_url, ledger={"redis_url": gone, "gateways": 2}) as gateway,
    ):
        await gateway.until_up()
        answer = await gateway.chat()
        assert answer.status_code == 200
        await until(lambda: gateway.metrics().get("ledger_cut_off") == 1)
        ready = await gateway.http.get("/readyz")
        assert ready.status_code == 200
        assert "this gateway uses a fixed share, one of 2" in ready.json()["but"]
        assert gateway.metrics()["ledger_gateways"] == 2
    assert "cannot be reached" in caplog.text


@pytest.mark.system("redis-server")
async def test_a_tenants_minute_is_one_for_two_gateways(tmp_path):
    tenants = [
        {
            "name": "team",
            "key_sha256": [sha256(b"one-key-of-the-team").hexdigest()],
            "quota": {"requests_per_minute": 4},
        }
    ]
    bearer = {"authorization": "Bearer one-key-of-the-team"}
    with running_redis(tmp_path) as redis:
        shared = {"ledger": {"redis_url": redis.url, "gateways": 2}, "tenants": tenants}
        async with (
            model_server(answer_chat) as server,
            live_gateway(server.base_url, **shared) as one,
            live_gateway(server.base_url, **shared) as other,
        ):
            await one.until_up()
            await other.until_up()
            used = 'tenant_quota_used_ratio{quota="requests",tenant_class="team"}'
            for _ in range(4):
                assert (await one.chat(headers=bearer)).status_code == 200
            await until(lambda: other.metrics().get(used, 0) > 0.76)  # where there is no room for another
            refused = await other.chat(headers=bearer)
            assert refused.status_code == 429
            assert refused.headers["x-gateway-reason"] == "tenant_quota"
