"""The prompt tokens that the gateway predicts are those that the server counts. The long list is in tests/real."""

import pytest

from tests.conformance.harness import MODEL, sdk
from tests.support.pictures import data_url, encoded, picture

SIZES = [(1, 1), (28, 28), (70, 70), (71, 71), (640, 480), (1, 200), (333, 1000), (1036, 1036)]


def image(width, height, **how):
    return {"type": "image_url", "image_url": {"url": data_url(encoded(picture(width, height), **how))}}


def predicted_and_counted(gateway, messages, **headers):
    with sdk(gateway.url) as client:
        create = client.chat.completions.with_raw_response.create
        answer = create(model=MODEL, messages=messages, max_tokens=1, extra_headers=headers)
    return int(answer.headers["x-gateway-prompt-tokens"]), answer.parse().usage.prompt_tokens


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_sizes(gateway, width, height):
    predicted, counted = predicted_and_counted(gateway, [{"role": "user", "content": [image(width, height)]}])
    assert predicted == counted


def test_text_beside_images(gateway):
    parts = [
        {"type": "text", "text": "Größer als 你?"},
        image(100, 50),
        {"type": "text", "text": "x" * 300},
        image(50, 99),
    ]
    predicted, counted = predicted_and_counted(gateway, [{"role": "user", "content": parts}])
    assert predicted == counted


def test_a_turned_photograph(gateway):
    turned = image(500, 210, file_format="JPEG", orientation=6)
    predicted, counted = predicted_and_counted(gateway, [{"role": "user", "content": [turned]}])
    assert predicted == counted


def test_a_resized_photograph(gateway):
    messages = [{"role": "user", "content": [image(1600, 900)]}]
    predicted, counted = predicted_and_counted(gateway, messages, **{"x-gateway-resize": "thumbnail"})
    assert predicted == counted < 400


@pytest.mark.parametrize("images", [4, 5, 8, 9])
def test_a_long_conversation(gateway, images):
    turns = [
        turn
        for place in range(images)
        for turn in (
            {"role": "user", "content": [image(100 + place, 80), {"type": "text", "text": f"Picture {place}"}]},
            {"role": "assistant", "content": f"I see {place}."},
        )
    ]
    predicted, counted = predicted_and_counted(gateway, turns[:-1])
    assert predicted == counted
