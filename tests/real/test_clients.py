"""The clients of tests/clients before a real vLLM: what it makes of a body is what they expect of an answer."""

import pytest

from tests.clients.talking import client
from tests.support.pictures import data_url, encoded, picture
from tests.support.processes import running_gateway

pytestmark = [pytest.mark.real, pytest.mark.clients]

IMAGE = data_url(encoded(picture(112, 112, seed=815)))


@pytest.fixture(scope="module")
def gateway(real_vllm, tmp_path_factory):
    with running_gateway(real_vllm.url, tmp_path_factory.mktemp("gateway"), {"calibration": "off"}) as running:
        yield running


@pytest.mark.parametrize(
    ("name", "actions"),
    [
        ("openai (Python)", ("chat", "stream", "responses", "responses_stream")),
        ("openai (Node)", ("chat", "stream", "responses", "responses_stream")),
        ("anthropic (Python)", ("messages", "messages_stream", "tool_result")),
        ("Vercel AI SDK", ("chat", "stream")),
    ],
)
def test_pictures_are_counted(gateway, name, actions):
    one = client(name)
    try:
        seen = {action: one.do(action, gateway.url, image=IMAGE) for action in actions}
    finally:
        one.stop()
    for action, answer in seen.items():
        assert "error" not in answer, (action, answer)
        assert answer["prompt_tokens"] > 16, "4 by 4 patches, and the words"


def test_what_is_wrong_for_good_is_said_in_the_client_s_own_way(gateway):
    one = client("anthropic (Python)")
    try:
        seen = one.do("messages", gateway.url, image=data_url(b"these bytes are no picture"))
    finally:
        one.stop()
    assert (seen["module"], seen["error"], seen["status"]) == ("anthropic", "BadRequestError", 400)
