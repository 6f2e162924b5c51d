"""How the gateway speaks inside of a stream of /v1/responses."""

import json

import pytest

from gateway.domain.errors import Code, GatewayError
from gateway.wire.begun_stream import BegunStream
from gateway.wire.voices import voice_of

ERROR = GatewayError(Code.SERVER_IS_OVERLOADED, "Come back later.", param="input")


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/responses/resp_1"])
def test_an_error_is_an_event_of_its_own_as_documented_and_as_sent(path):
    event = voice_of(path).last_event(ERROR, is_at_border=True)
    name, data, *end = event.decode().split("\n")
    told = json.loads(data.removeprefix("data: "))
    assert (name, end) == ("event: error", ["", ""])
    assert (told["type"], told["code"], told["message"], told["param"]) == (
        "error", "server_is_overloaded", "Come back later.", "input",
    )  # fmt: skip
    assert told["error"] == json.loads(voice_of(path).body(ERROR))["error"]


def test_what_vllm_refuses_in_a_stream_that_had_to_wait_keeps_its_words():
    begun = BegunStream(voice_of("/v1/responses"))
    begun.head(400, ((b"content-type", b"application/json"),))
    body = json.dumps({"error": {"message": "no", "type": "BadRequestError", "param": None, "code": 400}}).encode()
    told = json.loads(begun.body(body, is_last=True).split(b"data: ")[1])
    assert (told["code"], told["message"]) == (400, "no")


def test_other_paths_speak_as_before():
    assert voice_of("/v1/responsesx").last_event(ERROR).endswith(b"data: [DONE]\n\n")
