import json
from pathlib import Path

import pytest

from gateway.wire.vllm_errors import LearnedLimits, learn_from_error, learn_from_message, misses_image

REFUSALS = json.loads((Path(__file__).parents[1] / "data/wire/refusals.json").read_text())

LEARNED = {
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


def test_no_depth_is_a_fault():
    assert learn_from_error(400, b'{"error":{"message":"x","y":' + b"[" * 5_000) is None


def test_an_error_inside_a_stream_is_only_a_text():
    message = REFUSALS["item_over_encoder_cache"]["body"]["error"]["message"]
    assert learn_from_message(message) == LearnedLimits(encoder_cache_size=2048)


IMAGES = REFUSALS["too_many_images_5_of_4"]["body"]["error"]["message"]
ENCODER = REFUSALS["item_over_encoder_cache"]["body"]["error"]["message"]


@pytest.mark.parametrize("sentence", [IMAGES, ENCODER], ids=["images", "encoder"])
@pytest.mark.parametrize(
    "frame",
    [
        "The model `{}` does not exist.",
        "Unknown part type: {}",
        "{} is not a valid role",
        "{}\nand more",
        "1 validation error for ChatCompletionRequest\nuser\n  {}",
        " {}",
        "{}\n",
    ],
)
def test_what_vllm_only_quotes_of_a_client_teaches_nothing(sentence, frame):
    assert learn_from_message(sentence) is not None
    assert learn_from_message(frame.format(sentence)) is None


@pytest.mark.parametrize("number", ["0", "-1", "04", "\u0664", "9" * 12, "9" * 5000])
def test_absurd_numbers_teach_nothing(number):
    assert learn_from_message(IMAGES.replace("At most 4", f"At most {number}")) is None
    assert learn_from_message(ENCODER.replace("size 2048.", f"size {number}.")) is None


def test_the_parameter_is_not_always_named():
    assert learn_from_message("At most 4 image(s) may be provided in one prompt.") == LearnedLimits(image_limit=4)


def test_releases_before_used_other_words():
    message = "At most 4 image(s) may be provided in one request."
    assert learn_from_message(message) == LearnedLimits(image_limit=4)
    message = ENCODER.replace("with 2816 embedding tokens", "with length 2816")
    assert learn_from_message(message) == LearnedLimits(encoder_cache_size=2048)


MISS = "Cache miss for image at index 3 but data is not provided."


@pytest.mark.parametrize(
    ("status", "body", "is_miss"),
    [
        (400, {"error": {"message": MISS}}, True),
        (400, {"error": {"message": f"{MISS} (parameter=image)"}}, True),
        (400, {"error": {"message": f"You said: {MISS}"}}, False),
        (400, {"error": {"message": "another"}}, False),
        (500, {"error": {"message": MISS}}, False),
        (400, {"detail": MISS}, False),
    ],
)
def test_an_image_that_vllm_does_not_have(status, body, is_miss):
    assert misses_image(status, json.dumps(body).encode()) is is_miss


def test_an_answer_that_is_no_json_says_nothing_of_images():
    assert misses_image(400, b"no") is False
