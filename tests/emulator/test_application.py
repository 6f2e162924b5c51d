"""Routes, methods and the faults that a test can switch on."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.emulator.config import EmulatorConfig
from gateway.emulator.serve import RunningEmulator, create_app, running_emulator

CAPTURES = Path(__file__).parents[1] / "data" / "vllm_captures"
SURFACE: dict[str, Any] = json.loads((CAPTURES / "surface_get_qwen2_5_vl.json").read_text())
HI = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}


@pytest.mark.parametrize("request_line", [line for line in SURFACE if line.startswith("GET")])
def test_every_get_answers_as_captured(client: httpx.Client, request_line: str) -> None:
    captured = SURFACE[request_line]

    response = client.get(request_line.removeprefix("GET "))

    assert response.status_code == captured["status"]
    headers = {name: response.headers[name] for name in captured["headers"]}
    body = response.json() if response.content else ""
    if request_line == "GET /v1/models":
        del headers["content-length"], captured["headers"]["content-length"]
        assert _without_ids(body) == _without_ids(captured["body"])
    else:
        assert body == captured["body"]
    assert headers == captured["headers"]


def _without_ids(models: dict[str, Any]) -> dict[str, Any]:
    (model,) = models["data"]
    (permission,) = model["permission"]
    model["created"] = permission["created"] = permission["id"] = None
    return models


def test_ping_takes_post_and_the_other_way_round_is_405(client: httpx.Client) -> None:
    assert client.post("/ping").status_code == 200
    assert client.post("/v1/models").headers["allow"] == "GET"


def test_the_request_id_becomes_the_answers_id(client: httpx.Client) -> None:
    response = client.post("/v1/chat/completions", json=HI, headers={"X-Request-Id": "abc-1"})

    assert response.json()["id"] == "chatcmpl-abc-1"
    assert "x-request-id" not in response.headers


@pytest.mark.parametrize("prompt", [[""], [[]], ["hi", ""]])
def test_an_empty_prompt_among_others_is_refused(client: httpx.Client, prompt: list[Any]) -> None:
    refused = client.post("/v1/completions", json={"prompt": prompt})

    assert (refused.status_code, refused.json()["error"]["message"]) == (400, "The decoder prompt cannot be empty")


@pytest.fixture
def breakable() -> Iterator[RunningEmulator]:
    with running_emulator(EmulatorConfig.fast()) as server:
        yield server


@pytest.fixture
def http(breakable: RunningEmulator) -> Iterator[httpx.Client]:
    no_reuse = httpx.Limits(max_keepalive_connections=0)
    with httpx.Client(base_url=breakable.base_url, timeout=5, trust_env=False, limits=no_reuse) as client:
        yield client


def test_faults_are_set_shown_and_cleared_over_http(http: httpx.Client) -> None:
    none = http.get("/emulator/faults").json()
    assert http.post("/emulator/faults", json={"unavailable_requests": 2}).json() == {**none, "unavailable_requests": 2}
    assert http.request("DELETE", "/emulator/faults").json() == none
    unknown = http.post("/emulator/faults", json={"unavailabel": 2})
    assert unknown.status_code == 400
    assert "no such fault: unavailabel" in unknown.json()["detail"]


def test_so_many_requests_get_a_503(breakable: RunningEmulator, http: httpx.Client) -> None:
    breakable.set_faults(unavailable_requests=2)

    statuses = [http.post("/v1/chat/completions", json=HI).status_code for _ in range(3)]
    assert statuses == [503, 503, 200]


def test_so_many_connections_are_reset_before_the_first_byte(breakable: RunningEmulator, http: httpx.Client) -> None:
    breakable.set_faults(reset_requests=1)

    with pytest.raises(httpx.ReadError):
        http.post("/v1/chat/completions", json=HI)
    assert http.post("/v1/chat/completions", json=HI).status_code == 200


def test_a_stream_breaks_after_so_many_tokens(breakable: RunningEmulator, http: httpx.Client) -> None:
    breakable.set_faults(stream_error_after_tokens=2)

    response = http.post("/v1/chat/completions", json={**HI, "stream": True, "max_tokens": 50})
    events = response.text.split("\n\n")
    assert [event.startswith('data: {"error": ') for event in events] == [False, False, False, True, False, False]
    assert events[-2:] == ["data: [DONE]", ""]
    assert breakable.statistics().used_blocks == 0


def test_a_frozen_engine_still_looks_healthy(breakable: RunningEmulator, http: httpx.Client) -> None:
    breakable.set_faults(freeze=True)

    with pytest.raises(httpx.ReadTimeout):
        http.post("/v1/chat/completions", json=HI, timeout=0.2)
    assert [http.get(path).status_code for path in ("/health", "/metrics", "/v1/models")] == [200, 200, 200]
    assert "vllm:num_requests_waiting" in http.get("/metrics").text
    breakable.set_faults(freeze=False)
    assert http.post("/v1/chat/completions", json=HI).status_code == 200


def test_the_first_byte_can_be_late(breakable: RunningEmulator, http: httpx.Client) -> None:
    breakable.set_faults(first_byte_delay_seconds=0.3)

    with pytest.raises(httpx.ReadTimeout):
        http.post("/v1/chat/completions", json={**HI, "stream": True}, timeout=0.05)


async def test_the_app_works_in_process_too() -> None:
    app = create_app(EmulatorConfig.fast())
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://emulated") as http:
        answer = await http.post("/v1/chat/completions", json=HI)
        refused = await http.post("/v1/chat/completions", json={"messages": [_file_image()]})
        app.set_faults({"reset_requests": 1})

    assert answer.json()["usage"]["completion_tokens"] == 4
    assert refused.status_code == 500
    assert app.statistics().finished == 1
    await app.state.driver.stop()
    app.state.preprocessor.close()


def _file_image() -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///etc/hostname"}}]}


async def test_a_mistake_of_the_emulator_itself_is_a_500_and_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    app = create_app(EmulatorConfig.fast())
    monkeypatch.setattr(app.state, "check_model", lambda _name: 1 / 0)
    raising = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=raising, base_url="http://emulated") as http:
        answer = await http.post("/v1/chat/completions", json=HI)

    assert (answer.status_code, answer.json()["error"]["message"]) == (500, "division by zero")
