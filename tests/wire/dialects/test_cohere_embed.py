"""`/v2/embed`: one of texts, images and inputs; every entry is a sequence."""

import json

import pytest

from gateway.domain.errors import Code, GatewayError
from gateway.wire.dialects.cohere_embed import billed_usage_of, parse_cohere_embed
from gateway.wire.usage import Usage

URL = "data:image/png;base64,AAAA"
IMAGE = {"type": "image_url", "image_url": {"url": URL}}


def parse(**fields):
    return parse_cohere_embed(json.dumps(fields).encode())


def test_texts():
    request = parse(model="m", texts=["a", "bc"])
    assert (request.model, request.prompts, request.text_bytes, request.wants_output) == ("m", 2, 3, False)


def test_every_image_is_a_prompt_and_its_url_stays_a_string():
    request = parse(images=[URL, "https://example.org/a.png"])
    assert (request.prompts, request.conversation_lengths, request.prompt_name) == (2, (1, 1), "images")
    assert [(image.param, image.is_remote, image.is_bare_string) for image in request.images] == [
        ("images[0]", False, False),
        ("images[1]", True, False),
    ]


def test_inputs_hold_parts():
    request = parse(inputs=[{"content": [{"type": "text", "text": "abc"}]}, {"content": [IMAGE, IMAGE]}])
    assert (request.prompts, request.text_bytes, request.prompt_name) == (2, 3, "inputs")
    assert [image.param for image in request.images] == [
        f"inputs[1].content[{index}].image_url.url" for index in range(2)
    ]


@pytest.mark.parametrize(
    ("fields", "cut"),
    [
        ({}, -1),
        ({"truncate": "END"}, -1),
        ({"truncate": "START", "max_tokens": 9}, 9),
        ({"max_tokens": 9}, 9),
        ({"truncate": "NONE"}, None),
        ({"truncate": "NONE", "max_tokens": 9}, None),
    ],
)
def test_what_is_too_long_is_cut_unless_it_must_not_be(fields, cut):
    assert parse(texts=["a"], **fields).truncate_prompt_tokens == cut


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({}, Code.INVALID_REQUEST, "texts"),
        ({"texts": []}, Code.INVALID_REQUEST, "texts"),
        ({"texts": ["a"], "images": [URL]}, Code.INVALID_REQUEST, "images"),
        ({"images": [5]}, Code.INVALID_REQUEST, "images[0]"),
        ({"images": ["file:///a.png"]}, Code.INVALID_IMAGE_URL, "images[0]"),
        ({"inputs": [{}]}, Code.INVALID_REQUEST, "inputs[0]"),
        ({"inputs": [{"content": [{"type": "hologram"}]}]}, Code.INVALID_CONTENT_PART, "inputs[0].content[0]"),
        ({"inputs": [{"content": [{"image_url": 5}]}]}, Code.INVALID_CONTENT_PART, "inputs[0].content[0].image_url"),
        ({"texts": ["a"], "truncate": "MIDDLE"}, Code.INVALID_REQUEST, "truncate"),
        ({"texts": ["a"], "max_tokens": "9"}, Code.INVALID_REQUEST, "max_tokens"),
    ],
)
def test_refusals(fields, code, param):
    with pytest.raises(GatewayError) as refused:
        parse(**fields)
    assert (refused.value.code, refused.value.param) == (code, param)


def test_usage_is_what_is_billed():
    answer = b'{"embeddings":{"float":[[0.1]]},"meta":{"api_version":{"version":"2"},"billed_units":%s}}'
    assert billed_usage_of(answer % b'{"input_tokens":3,"image_tokens":0}') == Usage(3, 0)
    assert billed_usage_of(answer % b'{"input_tokens":0,"image_tokens":98}') == Usage(98, 0)
    assert billed_usage_of(answer % b'{"input_tokens":"many"}') is None
    assert billed_usage_of(b"{}") is None
