"""`vlm-gateway estimate --live`: the running gateway's own verdict, printed as the offline one is."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from typer.testing import CliRunner

from gateway.cli import app
from gateway.emulator.config import EmulatorConfig
from gateway.emulator.serve import running_emulator
from gateway.keys_file import digest_of
from tests.support.pictures import data_url, encoded, picture
from tests.support.processes import running_gateway

MODEL = {"name": "m", "family": "qwen2_5_vl"}


def chat(*sizes, **fields):
    parts = [
        {"type": "image_url", "image_url": {"url": data_url(encoded(picture(*size, seed=seed)))}}
        for seed, size in enumerate(sizes)
    ]
    content = [*parts, {"type": "text", "text": "What is this?"}]
    return {"model": "m", "messages": [{"role": "user", "content": content}], "max_tokens": 100} | fields


def run(body, *options):
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return CliRunner().invoke(app, ["estimate", "-", *options], input=text)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    config = EmulatorConfig.fast(model="m", max_model_len=4096)
    settings = {"models": [MODEL], "resize": {"fit": "refuse"}}
    with (
        running_emulator(config) as emulator,
        running_gateway(emulator.base_url, tmp_path_factory.mktemp("gateway"), settings) as running,
    ):
        yield running


def test_the_same_table_as_offline_with_what_the_gateway_knows(gateway):
    body = chat((560, 420))
    live = run(body, "--live", gateway.url)
    assert live.exit_code == 0, live.output
    assert "Model m: family qwen2_5_vl (setting), context 4,096 tokens" in live.stdout
    assert "Verdict: admitted. It would go to the engine at once." in live.stdout
    offline = run(body, "--set", "models=[{name: m, family: qwen2_5_vl}]", "--max-model-len", "4096")

    told = ("560x420", "text tokens", "visual tokens", "prompt tokens", "output tokens", "encoder tokens", "pixels")

    def rows(text):
        return [line.split() for line in text.splitlines() if any(word in line for word in told)]

    assert rows(live.stdout) == rows(offline.stdout)
    assert len(rows(live.stdout)) == len(told)
    assert "give --" not in live.stdout


def test_a_refusal_says_what_would_fit_and_that_is_true(gateway):
    result = run(chat((1120, 840), (1120, 840), (1120, 840), (1120, 840)), "--live", gateway.url, "--json")
    assert result.exit_code == 1
    assert "Verdict: never fits. The client gets 400 (never_fits_context, context_length_exceeded" in result.stdout
    said = json.loads(result.stdout.splitlines()[-1])
    [size] = {one["size"] for one in said["fits_with"]["resize"]}
    assert f"It fits with messages[0].content[0].image_url.url at {size}" in result.stdout
    assert "It fits without the 1 oldest images (up to messages[0].content[0].image_url.url)." in result.stdout
    assert "Short: context_tokens for messages:" in result.stdout
    smaller = tuple(map(int, size.split("x")))
    assert run(chat(*[smaller] * 4), "--live", gateway.url).exit_code == 0
    assert run(chat(*[(1120, 840)] * 3), "--live", gateway.url).exit_code == 0


def test_a_body_of_another_route(gateway):
    source = {"type": "base64", "media_type": "image/png", "data": data_url(encoded(picture(56, 56))).partition(",")[2]}
    turn = {"role": "user", "content": [{"type": "image", "source": source}]}
    body = {"model": "m", "max_tokens": 9, "messages": [turn]}
    assert "Verdict: admitted" in run(body, "--live", gateway.url, "--endpoint", "/v1/messages").stdout
    wrong = run(body, "--live", gateway.url, "--endpoint", "/v1/message")
    assert (wrong.exit_code, "name one of /v1/chat/completions" in wrong.stderr) == (2, True)


def test_a_gateway_with_keys_is_asked_with_one(tmp_path):
    tenants = [{"name": "team-a", "key_sha256": [digest_of("sk-right")]}]
    with (
        running_emulator(EmulatorConfig.fast(model="m")) as emulator,
        running_gateway(emulator.base_url, tmp_path, {"models": [MODEL], "tenants": tenants}) as gateway,
    ):
        refused = run(chat(), "--live", gateway.url)
        assert refused.exit_code == 2
        assert "has no API key" in refused.stderr
        assert "VLM_GATEWAY_KEY in the environment" in refused.stderr
        for option, environment in ((("--api-key", "sk-right"), {}), ((), {"VLM_GATEWAY_KEY": "sk-right"})):
            text = json.dumps(chat()).encode()
            command = ["estimate", "-", "--live", gateway.url, *option]
            assert CliRunner().invoke(app, command, input=text, env=environment).exit_code == 0


def test_what_is_no_json_is_told_in_a_sentence(gateway):
    result = run(b"{", "--live", gateway.url)
    assert result.exit_code == 2
    assert "it answered 400: The body is not JSON that can be read" in result.stderr


def test_a_gateway_has_settings_of_its_own(gateway):
    result = run(chat(), "--live", gateway.url, "--max-model-len", "10", "--set", "queue.requests=1")
    assert result.exit_code == 2
    assert "leave out --set, --max-model-len" in result.stderr


@contextmanager
def answering(status: int, body: bytes) -> Iterator[str]:
    """An HTTP server that says one thing to every POST."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            """Silent."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


VERDICT = {
    "verdict": "waiting",
    "ahead": 4,
    "expected_wait_seconds": 2.34,
    "longest_wait_seconds": 30.0,
    "error": None,
    "culprit": {
        "resource": "kv_blocks",
        "param": None,
        "needed": 40,
        "available": 15,
        "capacity": 95,
        "deficit": 25,
    },
    "fits_with": {
        "resize": [],
        "leave_out": {"images": 2, "up_to": "messages[2]", "turns": 1},
        "shorten_text_tokens": 30,
        "max_tokens": 64,
        "n": 2,
    },
}


def test_what_would_wait_is_told_how_long_and_what_would_not():
    with answering(200, json.dumps(VERDICT).encode()) as url:
        result = run(chat(), "--live", url)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        "Verdict: waiting, about 2.3 s, with 4 others before it. It is refused after 30 s.",
        "Short: kv_blocks: 40 needed, 15 there, 25 too few.",
        "It fits without the 2 oldest images (up to messages[2]), which end with turn 1 and 30 tokens of text.",
        "It fits with max_tokens 64.",
        "It fits with n 2.",
    ]


@pytest.mark.parametrize(
    ("unmet", "in_force", "changes", "line"),
    [
        (0.0, ["shrink", "shed"], "shrink", ". In force: shrink, shed. Done to this request: shrink."),
        (0.5, [], None, " and 0.50 refused. In force: nothing."),
    ],
)
def test_the_pressure_is_told_where_there_is_a_ladder(unmet, in_force, changes, line):
    pressure = {"ratio": 1.256, "unmet": unmet, "resource": "kv_blocks", "in_force": in_force, "changes": changes}
    with answering(200, json.dumps(VERDICT | {"pressure": pressure}).encode()) as url:
        result = run(chat(), "--live", url)
    assert f"Pressure: 1.26 (kv_blocks){line}" in result.stdout.splitlines()


def test_a_pace_that_nobody_knows_yet_and_a_text_that_is_too_long():
    fits = {"resize": [], "leave_out": None, "shorten_text_tokens": 30, "max_tokens": None, "n": None}
    with answering(200, json.dumps(VERDICT | {"expected_wait_seconds": None, "fits_with": fits}).encode()) as url:
        result = run(chat(), "--live", url)
    assert "Verdict: waiting, nobody knows yet how long, with 4 others before it." in result.stdout
    assert "It fits without 30 tokens of its text." in result.stdout


def test_a_full_gateway_says_when_to_come_back():
    error = {
        "status": 429,
        "code": "rate_limit_exceeded",
        "reason": "queue_full",
        "param": None,
        "message": "Full.",
        "headers": {"retry-after": "3", "retry-after-ms": "2500"},
    }
    refused = VERDICT | {"verdict": "refused", "error": error, "culprit": None, "fits_with": None}
    with answering(200, json.dumps(refused).encode()) as url:
        result = run(chat(), "--live", url)
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        "Verdict: refused. The client gets 429 (queue_full, rate_limit_exceeded):",
        "Full.",
        "It is told to come back after 2.5 s.",
    ]


@pytest.mark.parametrize(
    ("status", "body", "text"),
    [
        (200, b"<html>", "what it answered is no verdict"),
        (200, b"{}", "what it answered is no verdict"),
        (404, b"nothing here", "it answered 404: nothing here"),
        (503, b'{"error": "x"}', 'it answered 503: {"error": "x"}'),
    ],
)
def test_another_server_than_a_gateway(status, body, text):
    with answering(status, body) as url:
        result = run(chat(), "--live", url)
    assert result.exit_code == 2
    assert text in result.stderr


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "nonsense", "http://[::1"])
def test_nobody_there(url):
    result = run(chat(), "--live", url)
    assert result.exit_code == 2
    assert f"--live {url}: " in result.stderr
