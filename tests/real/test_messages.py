"""Messages and batches: vLLM takes what the gateway sends, and counts what the gateway predicted."""

import json

import httpx
import pytest

from tests.real.test_exact_tokens import settings
from tests.real.test_token_counts import CONVERSATIONS, shown, text, turn
from tests.support.pictures import data_url, encoded, picture
from tests.support.processes import running_gateway

pytestmark = pytest.mark.real

# Its thumbnail preset changes most pictures, so what vLLM gets is what the gateway made.
SMALL = {"x-gateway-resize": "thumbnail"}


@pytest.fixture(scope="module")
def gateway_url(real_vllm, tmp_path_factory):
    with running_gateway(real_vllm.url, tmp_path_factory.mktemp("gateway"), settings(real_vllm)) as gateway:
        yield gateway.url


def post(url, path, body, headers=None):
    answer = httpx.post(f"{url}{path}", json=body, headers=headers, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer


def predicted(answer):
    return int(answer.headers["x-gateway-prompt-tokens"])


def prompt_of(usage):
    return sum(value for name, value in usage.items() if name != "output_tokens")


def events(answer):
    blocks = [block.split("\n") for block in answer.text.removesuffix("\n\n").split("\n\n")]
    return [json.loads(data.removeprefix("data: ")) for _, data in blocks]


@pytest.mark.parametrize("name", CONVERSATIONS)
@pytest.mark.parametrize("headers", [{}, SMALL], ids=["as sent", "small"])
def test_messages(real_vllm, gateway_url, name, headers):
    body = {"model": real_vllm.model, "max_tokens": 3} | CONVERSATIONS[name] | {"tool_choice": {"type": "none"}}
    answer = post(gateway_url, "/v1/messages", body, headers)
    assert prompt_of(answer.json()["usage"]) == predicted(answer)


@pytest.mark.parametrize("name", ["text", "two pictures and a system prompt"])
def test_streams(real_vllm, gateway_url, name):
    body = {"model": real_vllm.model, "max_tokens": 5, "stream": True} | CONVERSATIONS[name]
    answer = post(gateway_url, "/v1/messages", body)
    told = events(answer)
    assert (told[0]["type"], told[-1]["type"]) == ("message_start", "message_stop")
    [usage] = [event["usage"] for event in told if event["type"] == "message_delta"]
    assert prompt_of(usage) == predicted(answer)


def test_what_vllm_refuses_is_told_as_it_tells_it(real_vllm, gateway_url):
    body = {"model": "nope", "max_tokens": 3, "messages": [{"role": "user", "content": "a"}]}
    answer = httpx.post(f"{gateway_url}/v1/messages", json=body, timeout=60)
    assert answer.status_code == 404
    assert answer.json()["type"] == "error"


def test_a_count_that_is_sent_on(real_vllm, gateway_url):
    """With a picture that no other request has: what vLLM 0.32 only counted, its engine then misses."""
    block = shown(encoded(picture(600, 800, seed=815)))
    body = {"model": real_vllm.model, "messages": [turn("user", text("a"), block)]}
    answer = post(gateway_url, "/v1/messages/count_tokens", body, {"x-gateway-tokens": "upstream"} | SMALL)
    assert answer.json()["input_tokens"] == predicted(answer)
    assert "resized" in answer.headers["x-gateway-images"]


@pytest.mark.parametrize("headers", [{}, SMALL], ids=["as sent", "small"])
def test_batches(real_vllm, gateway_url, headers):
    image = {"type": "image_url", "image_url": {"url": data_url(encoded(picture(640, 480, seed=816)))}}
    talk = [turn("system", text("Be brief.")), turn("user", text("a"), image), {"role": "assistant", "content": "b"}]
    conversations = [[turn("user", text("Größe?"))], [*talk, turn("user", text("c"))], [turn("user", image, image)]]
    body = {"model": real_vllm.model, "messages": conversations, "max_tokens": 3}
    answer = post(gateway_url, "/v1/chat/completions/batch", body, headers)
    assert answer.json()["usage"]["prompt_tokens"] == predicted(answer)
    assert [choice["index"] for choice in answer.json()["choices"]] == [0, 1, 2]
