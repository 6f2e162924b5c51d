"""The Responses API as captured from a live server with its store switched on: answers, streams, and what is stored."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

from gateway.emulator.config import EmulatorConfig
from gateway.emulator.response_input import messages_of
from gateway.emulator.response_store import ResponseStore
from gateway.emulator.responses import cancelled
from gateway.emulator.serve import RunningEmulator, running_emulator
from tests.support.pictures import data_url, encoded

CAPTURES = Path(__file__).parents[1] / "data" / "vllm_captures" / "responses_qwen2_5_vl.json"
CAPTURED: dict[str, Any] = json.loads(CAPTURES.read_text())
PICTURE = data_url(encoded(Image.new("RGB", (280, 140))))
IMAGE = {"type": "input_image", "image_url": PICTURE}
TEXT = {"type": "input_text", "text": "hi"}
MADE_UP = re.compile(
    r'("(?:id|item_id|previous_response_id)":")[^"]+|("(?:\w+_tokens|created_at)":)\d+|("(?:text|delta)":)"[^"]*"'
)
STORING = EmulatorConfig.fast(max_model_len=32_768, image_limit=4, enable_responses_store=True)


@pytest.fixture(scope="module")
def storing() -> Iterator[RunningEmulator]:
    with running_emulator(STORING) as running:
        yield running


@pytest.fixture(scope="module")
def http(storing: RunningEmulator) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=storing.base_url, timeout=30, trust_env=False) as client:
        yield client


def neutral(value: object) -> str:
    """Without what no two servers share: ids, times, words, counts."""
    text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
    return MADE_UP.sub(lambda match: next(group for group in match.groups() if group), text)


def ask(http: httpx.Client, request_input: object, **more: Any) -> httpx.Response:
    return http.post("/v1/responses", json={"model": "tiny", "max_output_tokens": 3, "input": request_input, **more})


@pytest.mark.parametrize("name", ["text", "background"])
def test_an_answer_has_the_captured_keys_in_their_order(http: httpx.Client, name: str) -> None:
    sent = CAPTURED[name]["request"]

    answer = http.post("/v1/responses", json=sent)

    assert neutral(answer.json()) == neutral(CAPTURED[name]["body"])


def test_a_stream_has_the_captured_events_in_their_order(http: httpx.Client) -> None:
    answer = ask(http, "hi", stream=True, max_output_tokens=1)

    assert neutral(answer.text) == neutral(CAPTURED["stream"]["body"])
    assert answer.headers["content-type"] == CAPTURED["stream"]["headers"]["content-type"]


REFUSALS = ["get_unknown", "cancel_unknown", "previous_unknown", "background_no_store", "input_file", "mcp_call"]
REFUSALS += ["item_reference", "empty_list", "unknown_model", "zero_tokens", "many_tokens"]


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_is_the_captured_one(http: httpx.Client, name: str) -> None:
    captured = CAPTURED[name]

    answer = http.request(captured["method"], captured["path"], json=captured["request"])

    assert answer.status_code == captured["status"]
    assert answer.json()["error"] == captured["body"]["error"]


@pytest.mark.parametrize("name", ["unknown_type", "image_url_type", "no_input"])
def test_what_fits_no_item_is_named_a_mistake_of_the_input(http: httpx.Client, name: str) -> None:
    answer = http.post("/v1/responses", json=CAPTURED[name]["request"])

    assert answer.status_code == CAPTURED[name]["status"] == 400
    assert "validation error" in answer.json()["error"]["message"]


IMAGES = {
    "a user's message": [{"role": "user", "content": [TEXT, IMAGE]}],
    "a tool's result": [{"type": "function_call_output", "call_id": "c", "output": [IMAGE | {"detail": "auto"}]}],
    "a text with a uuid": [{"role": "user", "content": [TEXT | {"image_url": PICTURE, "uuid": "u"}]}],
    "an item of another type": [
        {"type": "file_search_call", "role": "user", "content": [{"type": "image_url", "image_url": {"url": PICTURE}}]}
    ],
}


@pytest.mark.parametrize("where", IMAGES)
def test_an_image_is_found_where_vllm_found_one(http: httpx.Client, where: str) -> None:
    with_image = ask(http, IMAGES[where]).json()["usage"]["input_tokens"]

    assert with_image > ask(http, "hi").json()["usage"]["input_tokens"] + 40


def test_what_a_tool_gave_needs_the_detail_that_messages_may_leave_out(http: httpx.Client) -> None:
    answer = ask(http, [{"type": "function_call_output", "call_id": "c", "output": [IMAGE]}])

    captured = CAPTURED["image_detail_fco"]
    assert answer.status_code == captured["status"] == 400
    first_lines = captured["body"]["error"]["message"].split(" [type")[0]
    assert answer.json()["error"]["message"].startswith(first_lines)


def test_a_conversation_goes_on_where_it_stood(http: httpx.Client) -> None:
    first = ask(http, [{"role": "user", "content": [IMAGE]}], instructions="Be brief.").json()

    second = ask(http, "and now?", previous_response_id=first["id"]).json()

    assert second["previous_response_id"] == first["id"]
    assert second["usage"]["input_tokens"] > first["usage"]["input_tokens"]


def test_a_stored_answer_is_told_again_and_cannot_be_cancelled(http: httpx.Client) -> None:
    answer = ask(http, "hi").json()

    assert http.get(f"/v1/responses/{answer['id']}").json() == answer
    refusal = http.post(f"/v1/responses/{answer['id']}/cancel")
    assert (refusal.status_code, refusal.json()["error"]["message"]) == (400, "Cannot cancel a synchronous response.")


def test_without_the_store_nothing_is_remembered_and_nothing_runs_in_the_background(client: httpx.Client) -> None:
    answer = ask(client, "hi").json()

    assert client.get(f"/v1/responses/{answer['id']}").status_code == 404
    refusal = ask(client, "hi", background=True)
    assert (refusal.status_code, refusal.json()["error"]["param"]) == (400, "background")


def test_an_answer_in_the_background_is_made_without_its_client(http: httpx.Client) -> None:
    queued = ask(http, "hi", background=True, stream=True)

    ids = set(re.findall(r"resp_[0-9a-f]+", queued.text))
    assert len(ids) == 1
    again = http.get(f"/v1/responses/{ids.pop()}", params={"stream": "true", "starting_after": 2})
    assert again.text == queued.text[queued.text.index("event: response.content_part.added") :]


def test_an_answer_in_the_background_can_be_cancelled() -> None:
    slow = EmulatorConfig(enable_responses_store=True)
    with running_emulator(slow) as server, httpx.Client(base_url=server.base_url, trust_env=False) as http:
        queued = ask(http, "hi", background=True, max_output_tokens=30_000).json()

        cancelled = http.post(f"/v1/responses/{queued['id']}/cancel").json()

        assert (queued["status"], cancelled["status"]) == ("queued", "cancelled")
        assert http.get(f"/v1/responses/{queued['id']}").json()["status"] == "cancelled"
        assert server.statistics().running == 0


def test_a_fault_behind_the_head_cuts_the_stream() -> None:
    with running_emulator(STORING) as server, httpx.Client(base_url=server.base_url, trust_env=False) as http:
        server.set_faults(stream_error_after_tokens=1)
        with pytest.raises(httpx.RemoteProtocolError):
            ask(http, "hi", stream=True)
        queued = ask(http, "hi", background=True).json()
        server.set_faults(kill=True)

        assert queued["status"] == "queued"


def test_a_stream_of_what_was_never_streamed_is_cut(http: httpx.Client) -> None:
    answer = ask(http, "hi").json()

    with pytest.raises(httpx.RemoteProtocolError):
        http.get(f"/v1/responses/{answer['id']}?stream=true")


def test_a_path_that_is_none_is_not_found(http: httpx.Client) -> None:
    assert http.get("/v1/responses/a/b").status_code == 404


NO_ITEMS = [
    ["hello"],
    [{"type": "nope"}],
    [{"role": "user", "content": 5}],
    [{"role": "critic", "content": "a"}],
    [{"role": "user", "content": ["a"]}],
    [{"role": "user", "content": [{"type": "input_image", "image_url": {"url": PICTURE}}]}],
]


@pytest.mark.parametrize("items", NO_ITEMS)
def test_what_fits_no_item_at_all(http: httpx.Client, items: list[Any]) -> None:
    assert ask(http, items).status_code == 400


def test_a_body_that_is_no_object_is_refused(http: httpx.Client) -> None:
    assert http.post("/v1/responses", json=[]).status_code == 400


def test_of_an_assistants_parts_an_image_that_comes_first_is_seen() -> None:
    image = {"type": "input_image", "image_url": "data:,", "detail": "auto"}
    output = {"type": "function_call_output", "call_id": "c", "output": "done"}

    said, given = messages_of(None, [{"role": "assistant", "content": [image]}, output])

    assert (said["content"], given["content"]) == ([image], "done")


async def test_an_answer_whose_making_has_ended_meanwhile_is_cancelled_all_the_same() -> None:
    store = ResponseStore(responses={"resp_1": {"id": "resp_1", "status": "queued"}})

    assert (await cancelled(store, "resp_1"))["status"] == "cancelled"


def test_a_token_that_ends_an_answer_has_no_text(http: httpx.Client) -> None:
    answer = ask(http, "hi", stream=True, max_output_tokens=50, emulator_output_tokens=1)

    assert "output_text.delta" not in answer.text
    assert answer.text.rstrip().splitlines()[-2] == "event: response.completed"


def test_an_answer_in_the_background_fails_with_its_engine() -> None:
    slow = EmulatorConfig(enable_responses_store=True)
    with running_emulator(slow) as server, httpx.Client(base_url=server.base_url, trust_env=False) as http:
        queued = ask(http, "hi", background=True, max_output_tokens=30_000).json()
        server.set_faults(kill=True)

        told = http.get(f"/v1/responses/{queued['id']}").json()

    assert told["status"] in {"failed", "queued"}


def test_an_assistants_thoughts_words_and_calls_are_one_message() -> None:
    items = [
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"type": "message", "role": "assistant", "content": [{"text": "b"}, {"text": "never read"}]},
        {"type": "function_call", "name": "f", "arguments": "{}"},
        {"type": "custom_tool_call", "name": "g", "input": "x"},
        {"role": "assistant", "content": "c"},
    ]

    first, second = messages_of(None, items)

    assert (first["reasoning"], first["content"], len(first["tool_calls"])) == ("hm", "b", 2)
    assert second == {"role": "assistant", "content": "c"}
