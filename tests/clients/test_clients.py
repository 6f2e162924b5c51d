"""What people's clients see of a gateway process before the emulator: answers, pictures, refusals, and when they retry.

Run by `make test-clients`, which sets up the clients' environment and prints the table of docs/clients.md.
"""

import pytest

from tests.clients.matrix import column_of
from tests.clients.staging import CLIENTS_TOKENS, RESPONSE_TOKENS
from tests.clients.talking import CLIENTS
from tests.conformance.harness import eventually
from tests.support.pictures import data_url, encoded, picture

pytestmark = pytest.mark.clients

IMAGE = data_url(encoded(picture(280, 280)))
IMAGE_TOKENS = 10 * 10 + 2  # patches of 28 x 28 and the marks around them
NO_IMAGE = data_url(b"these bytes are no picture")
ACTIONS = [(name, action) for name, known in CLIENTS.items() for action in known.actions]
GENERATING = [(name, action) for name, action in ACTIONS if action != "embeddings"]
BAD_REQUEST = {
    "openai (Python)": ("openai", "BadRequestError"),
    "openai (Node)": (None, "BadRequestError"),
    "anthropic (Python)": ("anthropic", "BadRequestError"),
    "langchain-openai": ("langchain_openai", "OpenAIInvalidRequestError"),
    "llama-index": ("openai", "BadRequestError"),
    "Vercel AI SDK": (None, "APICallError"),
    "litellm": ("litellm", "BadRequestError"),
    "curl": ("curl", ""),
}


def lines_after(stage, before, count):
    assert eventually(lambda: len(stage.lines()) >= before + count)
    return stage.lines()[before:]


@pytest.mark.parametrize(("name", "action"), [pair for pair in GENERATING if pair[1] != "tool_result"])
def test_a_question_is_answered(clients, stage, matrix, name, action):
    before = len(stage.lines())
    seen = clients[name].do(action, stage.gateway.url)
    assert "error" not in seen, seen
    if action == "count_tokens":
        assert seen["prompt_tokens"] > 0
    else:
        tokens = RESPONSE_TOKENS if action.startswith("responses") else CLIENTS_TOKENS
        assert len(seen["text"].split()) == tokens
        assert seen.get("pieces", tokens) == tokens, "each token came as an event of its own"
    assert lines_after(stage, before, 1)[0]["status"] == 200
    matrix.note(name, column_of(action))


@pytest.mark.parametrize("name", [name for name, action in ACTIONS if action == "embeddings"])
def test_texts_are_embedded(clients, pooling, matrix, name):
    seen = clients[name].do("embeddings", pooling.gateway.url)
    assert "error" not in seen, seen
    assert seen["vectors"] == 2
    assert seen["length"] > 1
    matrix.note(name, "embeddings")


@pytest.mark.parametrize(("name", "action"), GENERATING)
def test_a_picture_is_counted_and_reaches_the_model(clients, stage, matrix, name, action):
    before = len(stage.lines())
    seen = clients[name].do(action, stage.gateway.url, image=IMAGE)
    assert "error" not in seen, seen
    (line,) = lines_after(stage, before, 1)
    assert (line["status"], line["visual_tokens"]) == (200, IMAGE_TOKENS)
    if "prompt_tokens" in seen:
        assert seen["prompt_tokens"] > IMAGE_TOKENS
    matrix.note(name, "image")
    matrix.note(name, column_of(action))


@pytest.mark.parametrize("name", CLIENTS)
def test_what_is_wrong_for_good_is_an_error_of_the_client_s_own_kind_and_asked_once(clients, stage, matrix, name):
    before = len(stage.lines())
    seen = clients[name].do(clients[name].asks_by, stage.gateway.url, image=NO_IMAGE)
    assert (seen.get("module"), seen["error"], seen["status"]) == (*BAD_REQUEST[name], 400)
    assert "not an image" in seen["message"]
    (line,) = lines_after(stage, before, 1)
    assert line["status"] == 400
    matrix.note(name, "no retry 400")


@pytest.mark.parametrize("name", CLIENTS)
def test_refused_with_503_it_comes_back_when_it_was_told(clients, stage, matrix, name):
    assert_it_came_back(clients[name], stage, stage.leaving(), 503)
    matrix.note(name, "retry 503")


@pytest.mark.parametrize("name", CLIENTS)
def test_refused_with_429_it_comes_back_when_it_was_told(clients, narrow, matrix, name):
    assert_it_came_back(clients[name], narrow, narrow.full(), 429)
    matrix.note(name, "retry 429")


def assert_it_came_back(client, stage, state, status):
    before, told = len(stage.lines()), stage.told_seconds()
    seen = stage.meanwhile(state, lambda: client.do(client.asks_by, stage.gateway.url))
    assert "error" not in seen, seen
    lines = lines_after(stage, before, 2)
    assert [line["status"] for line in lines] == [status, 200]
    refused, served = lines
    assert served["arrived"] - refused["arrived"] >= stage.told_seconds() - told >= 1.0
