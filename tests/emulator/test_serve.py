"""The server on a socket: what vLLM does to connections, and how it starts, dies and stops."""

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from gateway.emulator.config import EmulatorConfig, StepCost
from gateway.emulator.serve import RunningEmulator, running_emulator

CAPTURES = Path(__file__).parents[1] / "data" / "vllm_captures"
MESSAGES = [{"role": "user", "content": "hi"}]
ENDLESS = {"messages": MESSAGES, "max_tokens": 30_000}
TEN_MILLISECONDS = StepCost(0.01, 0.0, 0.0, 0.0)


@pytest.fixture
def server() -> Iterator[RunningEmulator]:
    with running_emulator(EmulatorConfig.fast(step_cost=TEN_MILLISECONDS, max_num_seqs=1)) as running:
        yield running


def connect(base_url: str) -> socket.socket:
    parts = urlsplit(base_url)
    return socket.create_connection((parts.hostname, parts.port), timeout=10)


def post(base_url: str, request: dict[str, object]) -> socket.socket:
    """A request on its own connection; the answer is the caller's to read, or not."""
    body = json.dumps(request).encode()
    connection = connect(base_url)
    connection.sendall(_HEAD % len(body) + body)
    return connection


_HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"


def eventually(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    """Waits for what another thread does; fails when it does not come."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not happen"
        time.sleep(0.01)


def test_after_a_400_the_connection_lives_after_a_500_it_is_closed_unannounced(server: RunningEmulator) -> None:
    captured = json.loads((CAPTURES / "errors_fetch_and_close_qwen2_5_vl.json").read_text())
    image = {"type": "image_url", "image_url": {"url": "file:///etc/hostname"}}
    connection = post(server.base_url, {"messages": []})
    with connection:
        head_and_body = connection.recv(65_536)
        assert _lines(head_and_body) == _lines(captured["raw_400_then_connection"]["response_head_and_body"].encode())
        body = json.dumps({"messages": [{"role": "user", "content": [image]}]}).encode()
        connection.sendall(_HEAD % len(body) + body)
        head_and_body = connection.recv(65_536)
        assert _lines(head_and_body) == _lines(captured["raw_500_then_connection"]["response_head_and_body"].encode())
        assert connection.recv(1) == b"", "closed"


def _lines(answer: bytes) -> list[bytes]:
    """Head and body without the date."""
    return [line for line in answer.split(b"\r\n") if not line.startswith(b"date:")]


def test_a_streams_head_leaves_before_it_is_scheduled(server: RunningEmulator) -> None:
    with post(server.base_url, {**ENDLESS, "stream": True}) as running:
        running.recv(1)
        with post(server.base_url, {**ENDLESS, "stream": True}) as waiting:
            head = waiting.recv(65_536)
            eventually(lambda: server.statistics().waiting == 1)
            assert head.startswith(b"HTTP/1.1 200 OK")
            assert head.endswith(b"\r\n\r\n")


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_frees_its_memory_and_is_counted_nowhere(server: RunningEmulator, stream: bool) -> None:
    running = post(server.base_url, {**ENDLESS, "stream": stream})
    eventually(lambda: server.statistics().generation_tokens > 2)
    waiting = post(server.base_url, {**ENDLESS, "stream": stream})
    eventually(lambda: server.statistics().waiting == 1)

    waiting.close()
    eventually(lambda: server.statistics().waiting == 0)
    assert server.statistics().running == 1
    running.close()
    eventually(lambda: server.statistics().used_blocks == 0)
    metrics = httpx.get(f"{server.base_url}/metrics").text
    assert 'request_success_total{engine="0",finished_reason="abort",model_name="tiny"} 0.0' in metrics
    assert server.statistics().finished == 0


def test_a_client_that_leaves_before_its_body_is_whole_is_forgotten(server: RunningEmulator) -> None:
    with connect(server.base_url) as connection:
        connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nhalf")

    assert httpx.get(f"{server.base_url}/health").status_code == 200


def test_a_killed_engine_ends_streams_with_an_event_others_with_500_and_then_the_server(
    server: RunningEmulator,
) -> None:
    streaming = post(server.base_url, {**ENDLESS, "stream": True})
    waiting = post(server.base_url, ENDLESS)
    eventually(lambda: server.statistics().generation_tokens > 2 and server.statistics().waiting == 1)

    server.set_faults(kill=True)
    assert httpx.get(f"{server.base_url}/health").status_code == 503
    assert httpx.post(f"{server.base_url}/v1/chat/completions", json=ENDLESS).status_code == 500
    with streaming, waiting:
        answer = b"".join(iter(lambda: streaming.recv(65_536), b""))
        assert b'data: {"error": {"message": "EngineCore encountered an issue.' in answer
        assert b"data: [DONE]\n\n" in answer
        assert waiting.recv(65_536).startswith(b"HTTP/1.1 500")
    eventually(lambda: not _accepts(server.base_url))


def _accepts(base_url: str) -> bool:
    try:
        return httpx.get(f"{base_url}/health").status_code > 0
    except httpx.TransportError:
        return False


def test_stopping_drops_what_is_in_flight() -> None:
    with running_emulator(EmulatorConfig.fast(step_cost=TEN_MILLISECONDS)) as server:
        connection = post(server.base_url, {**ENDLESS, "stream": True})
        connection.recv(1)

    with connection:
        received = b"".join(iter(lambda: connection.recv(65_536), b""))
    assert b"[DONE]" not in received
    assert not _accepts(server.base_url)


def test_a_process_serves_until_it_is_told_to_stop_and_ends_streams_with_an_event() -> None:
    with subprocess.Popen([sys.executable, "-c", _PROCESS], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            with post(process.stdout.readline().strip(), {**ENDLESS, "stream": True}) as connection:
                connection.recv(1)
                process.send_signal(signal.SIGTERM)
                assert b"EngineCore encountered" in b"".join(iter(lambda: connection.recv(65_536), b""))
            process.wait(10)
        finally:
            process.kill()


_PROCESS = """
from gateway.emulator.config import EmulatorConfig
from gateway.emulator.serve import serve

serve(EmulatorConfig(), "127.0.0.1", 0, on_listening=lambda url: print(url, flush=True))
"""
