"""The Responses API before a real vLLM that stores answers: prompts as predicted, and answers to their owners alone."""

import json
import os

import httpx
import openai
import pytest

from tests.real import tiny_model, vllm_server
from tests.real.test_exact_tokens import settings
from tests.support.pictures import data_url, encoded, picture
from tests.support.processes import running_gateway

pytestmark = pytest.mark.real

RESPONSES = "/v1/responses"
ALL = {"responses": {"allow_previous": True, "allow_background": True}}


@pytest.fixture(scope="module")
def storing_vllm(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    tiny_model.write(folder)
    storing = {"VLLM_ENABLE_RESPONSES_API_STORE": "1"}
    python, work = os.environ["VLLM_PYTHON"], tmp_path_factory.mktemp("vllm")
    with vllm_server.running(python, folder, work, environment=storing) as server:
        yield server


@pytest.fixture(scope="module")
def gateway_url(storing_vllm, tmp_path_factory):
    with running_gateway(storing_vllm.url, tmp_path_factory.mktemp("gateway"), settings(storing_vllm, **ALL)) as own:
        yield own.url


def image(width, height, **fields):
    return {"type": "input_image", "image_url": data_url(encoded(picture(width, height, seed=11)))} | fields


def text(words):
    return {"type": "input_text", "text": words}


def tool(kind="function", **fields):
    return {"type": kind, "name": "measure", "description": "Länge <in> mm"} | fields


USER = {"role": "user", "content": "How long?"}
SAID = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "5"}, {"text": "unread"}]}
SAID["content"][1] |= {"type": "output_text"}
THOUGHT = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm, hm"}]}
CALL = {"type": "function_call", "call_id": "c", "name": "measure", "arguments": '{"unit": "mm"}'}
RESULT = {"type": "function_call_output", "call_id": "c"}
SPACED = {"type": "namespace", "name": "lab", "description": "d", "tools": [tool(parameters={"type": "object"})]}
INPUTS = {
    "text": {"input": "Hm?"},
    "instructions": {"input": "Hm?", "instructions": "Be brief."},
    "image": {"input": [{"role": "user", "content": [text("What?"), image(280, 140)]}]},
    "images": {"input": [{"role": "user", "content": [image(500, 333), text("and"), image(90, 400, detail="low")]}]},
    "developer": {"input": [{"type": "message", "role": "developer", "content": [text("Hm")]}, USER]},
    "history": {"input": [USER, SAID, {"role": "user", "content": [text("Sure?"), image(200, 300)]}]},
    "thoughts": {"input": [USER, THOUGHT, SAID, USER]},
    "result": {"input": [USER, CALL, RESULT | {"output": "5 mm"}]},
    "seen": {"input": [USER, THOUGHT, CALL, RESULT | {"output": [text("here"), image(333, 222, detail="auto")]}]},
    "tools": {"input": "Hm?", "tools": [tool(parameters={"type": "object", "properties": {}}, strict=False)]},
    "more tools": {"input": "Hm?", "tools": [SPACED, tool("custom")]},
    "format": {"input": "Hm?", "text": {"format": {"type": "json_object"}}},
    "effort": {"input": "Hm?", "reasoning": {"effort": "low"}},
    "to be continued": {"input": [USER, {"role": "assistant", "content": "It is", "status": "incomplete"}]},
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", INPUTS)
def test_every_prediction_is_exact(storing_vllm, gateway_url, name, stream):
    body = {"model": storing_vllm.model, "max_output_tokens": 3, "stream": stream} | INPUTS[name]
    answer = httpx.post(f"{gateway_url}{RESPONSES}", json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    told = json.loads(answer.text.split("data: ")[-1])["response"] if stream else answer.json()
    assert int(answer.headers["x-gateway-prompt-tokens"]) == told["usage"]["input_tokens"]


def client_of(gateway_url, key):
    return openai.OpenAI(base_url=f"{gateway_url}/v1", api_key=key, max_retries=0, timeout=60)


def test_openais_own_client(storing_vllm, gateway_url):
    model = storing_vllm.model
    with client_of(gateway_url, "anna") as anna, client_of(gateway_url, "bert") as bert:
        items = [{"role": "user", "content": [text("What?"), image(280, 140, detail="auto")]}]
        first = anna.responses.create(model=model, input=items, max_output_tokens=3)
        second = anna.responses.create(model=model, input="And?", previous_response_id=first.id, max_output_tokens=3)
        events = list(anna.responses.create(model=model, input="Hm?", max_output_tokens=3, stream=True))
        queued = anna.responses.create(model=model, input="Hm?", max_output_tokens=3000, background=True)
        assert anna.responses.retrieve(first.id).usage == first.usage
        for forbidden in (bert.responses.retrieve, bert.responses.cancel):
            with pytest.raises(openai.NotFoundError):
                forbidden(queued.id)
        with pytest.raises(openai.NotFoundError):
            bert.responses.create(model=model, input="And?", previous_response_id=first.id)
        cancelled = anna.responses.cancel(queued.id)

    assert second.usage.input_tokens > first.usage.input_tokens
    assert (events[0].type, events[-1].type) == ("response.created", "response.completed")
    assert cancelled.status == "cancelled"
