"""The answers of /v1/messages and of batches, key for key as captured; events as vLLM's converter writes them."""

import base64
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

from gateway.emulator.config import EmulatorConfig
from gateway.emulator.serve import running_emulator
from tests.support.pictures import encoded

CAPTURES = Path(__file__).parents[1] / "data" / "vllm_captures"
CAPTURED: dict[str, Any] = json.loads((CAPTURES / "messages_qwen2_5_vl.json").read_text())
PIXELS = base64.b64encode(encoded(Image.new("RGB", (280, 140)))).decode()
PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXELS}}
TEXT = {"type": "text", "text": "hi"}


def said(*blocks: Any, **fields: Any) -> dict[str, Any]:
    return {"model": "tiny", "max_tokens": 3, "messages": [{"role": "user", "content": list(blocks)}]} | fields


def events(text: str) -> list[tuple[str, Any]]:
    blocks = [block.split("\n") for block in text.removesuffix("\n\n").split("\n\n")]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in blocks]


@pytest.mark.parametrize(
    ("name", "picture"),
    [
        ("messages_base64", PICTURE),
        ("messages_url", {"type": "image", "source": {"type": "url", "url": f"data:image/png;base64,{PIXELS}"}}),
    ],
)
def test_an_answer_has_the_captured_shape_and_counts(client: httpx.Client, name: str, picture: Any) -> None:
    answer = client.post("/v1/messages", json=said(TEXT, picture)).json()
    captured = CAPTURED[name]["body"]
    assert answer.keys() == captured.keys()
    assert (answer["usage"], answer["stop_reason"]) == (captured["usage"], captured["stop_reason"])
    assert answer["content"][0].keys() == captured["content"][0].keys()


def test_a_picture_in_a_tools_result_is_one_of_the_prompt(client: httpx.Client) -> None:
    call = {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "f", "input": {}}]}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [TEXT, PICTURE]}
    asked = {"role": "user", "content": "q"}
    turns = [asked, call, {"role": "user", "content": [result]}]
    alone = [asked, call, {"role": "user", "content": [result | {"content": [TEXT]}]}]
    answers = [client.post("/v1/messages", json=said(messages=told)).json() for told in (turns, alone)]
    with_picture, without = (answer["usage"]["input_tokens"] for answer in answers)
    # 50 placeholders, two markers, and a turn of the user's around them: four letters and three signs of the template.
    assert with_picture - without == 52 + len("user") + 3


def test_a_count_is_that_of_the_answer(client: httpx.Client) -> None:
    body = said(TEXT, PICTURE)
    counted = client.post("/v1/messages/count_tokens", json=body).json()
    assert counted == CAPTURED["messages_count_tokens"]["body"]
    assert counted["input_tokens"] == client.post("/v1/messages", json=body).json()["usage"]["input_tokens"]


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("messages_error_unknown_model", said(TEXT, model="nope")),
        ("messages_error_bad_image", said(PICTURE | {"source": PICTURE["source"] | {"data": "aGVsbG8="}})),
    ],
)
def test_errors_have_anthropics_shape(client: httpx.Client, name: str, body: Any) -> None:
    answer, captured = client.post("/v1/messages", json=body), CAPTURED[name]
    assert answer.status_code == captured["status"]
    assert answer.json().keys() == captured["body"].keys()
    assert answer.json()["error"]["type"] == captured["body"]["error"]["type"]


def test_a_stream_is_begun_told_and_ended(client: httpx.Client) -> None:
    told = events(client.post("/v1/messages", json=said(TEXT, stream=True)).text)
    assert [name for name, _ in told] == [
        "message_start",
        "content_block_start",
        *["content_block_delta"] * 3,
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert all(event["type"] == name for name, event in told)
    assert told[0][1]["message"]["usage"]["output_tokens"] == 0
    assert told[-2][1]["usage"]["output_tokens"] == 3
    assert told[-2][1]["delta"]["stop_reason"] == "max_tokens"


def test_an_engine_that_dies_in_a_stream_is_told_in_an_event() -> None:
    with running_emulator(EmulatorConfig.fast()) as server, httpx.Client(base_url=server.base_url) as http:
        server.set_faults(stream_error_after_tokens=2)
        told = events(http.post("/v1/messages", json=said(TEXT, stream=True, max_tokens=9)).text)
    assert told[-1][0] == "error"
    assert told[-1][1]["error"]["type"] == "internal_error"


def prompt_tokens(client: httpx.Client, *turns: Any, **fields: Any) -> int:
    answer = client.post("/v1/messages/count_tokens", json=said(messages=list(turns), **fields))
    return int(answer.json()["input_tokens"])


def test_whatever_says_nothing_is_left_out(client: httpx.Client) -> None:
    asked = {"role": "user", "content": "hi"}
    alone = prompt_tokens(client, asked, system="s")
    nothing = {"role": "user", "content": [{"type": "text", "text": ""}, {"type": "thinking", "thinking": "x"}]}
    silent = {"role": "system", "content": [PICTURE]}
    assert prompt_tokens(client, nothing, silent, asked, system=[PICTURE, {"type": "text", "text": "s"}]) == alone
    told = {"role": "assistant", "content": [{"type": "tool_result", "content": "42"}]}
    assert prompt_tokens(client, asked, told) > prompt_tokens(client, asked)
    late = {"role": "system", "content": "It is late."}
    assert prompt_tokens(client, asked, late) > prompt_tokens(client, asked)


def test_an_answer_of_no_words_has_no_block(client: httpx.Client) -> None:
    told = events(
        client.post("/v1/messages", json=said(TEXT, stream=True, max_tokens=9, emulator_output_tokens=1)).text
    )
    assert [name for name, _ in told] == ["message_start", "message_delta", "message_stop"]
    assert told[1][1]["delta"]["stop_reason"] == "end_turn"


def test_a_count_of_an_unknown_model_has_anthropics_shape(client: httpx.Client) -> None:
    answer = client.post("/v1/messages/count_tokens", json=said(TEXT, model="nope"))
    assert (answer.status_code, answer.json()["type"]) == (404, "error")


def test_what_its_schema_refuses_has_openais_shape(client: httpx.Client) -> None:
    for body in (
        said(TEXT, max_tokens=0),
        said({"type": "document"}),
        said(messages=[{"role": "tool", "content": ""}]),
    ):
        answer = client.post("/v1/messages", json=body)
        assert (answer.status_code, set(answer.json())) == (400, {"error"})


def test_a_batch_has_an_answer_for_each_conversation(client: httpx.Client) -> None:
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXELS}"}}
    conversation = [{"role": "user", "content": [TEXT, picture]}]
    body = {"model": "tiny", "messages": [conversation, conversation], "max_tokens": 3}
    answer = client.post("/v1/chat/completions/batch", json=body).json()
    captured = CAPTURED["chat_batch"]["body"]
    assert answer.keys() == captured.keys()
    assert answer["usage"] == captured["usage"]
    assert [choice["index"] for choice in answer["choices"]] == [0, 1]


@pytest.mark.parametrize("more", [{"n": 2}, {"messages": []}, {"messages": [[]]}])
def test_a_batch_that_vllm_refuses(client: httpx.Client, more: Any) -> None:
    body = {"model": "tiny", "messages": [[{"role": "user", "content": "hi"}]], "max_tokens": 3} | more
    assert client.post("/v1/chat/completions/batch", json=body).status_code == 400
