import json
from pathlib import Path

import pytest

from gateway.wire.vllm_errors import LearnedLimits, learn_from_error, learn_from_message

REFUSALS = json.loads((Path(__file__).parents[1] / "data/wire/refusals.json").read_text())

LEARNED = {
    "prompt_too_long_text": LearnedLimits(max_model_len=32768),
    "prompt_too_long_images_3x_3584": LearnedLimits(max_model_len=32768),
    "max_tokens_huge": LearnedLimits(max_model_len=32768),
    "max_completion_tokens_too_large": LearnedLimits(max_model_len=32768),
    "too_many_images_5_of_4": LearnedLimits(image_limit=4),
    "item_over_encoder_cache": LearnedLimits(encoder_cache_size=2048),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_limits_that_vllm_names(name):
    refusal = REFUSALS[name]
    assert learn_from_error(refusal["status"], json.dumps(refusal["body"]).encode()) == LEARNED.get(name)


def test_only_a_400_teaches():
    body = json.dumps(REFUSALS["too_many_images_5_of_4"]["body"]).encode()
    assert learn_from_error(500, body) is None


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"error":"Unauthorized"}', b'{"detail":"x"}', b'{"error":{}}'])
def test_other_shapes_teach_nothing(body):
    assert learn_from_error(400, body) is None


def test_an_error_inside_a_stream_is_only_a_text():
    message = REFUSALS["item_over_encoder_cache"]["body"]["error"]["message"]
    assert learn_from_message(message) == LearnedLimits(encoder_cache_size=2048)
