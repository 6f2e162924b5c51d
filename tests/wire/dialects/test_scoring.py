"""`/score` and `/rerank`: each query and document a sequence, a query's pictures in as many prompts as documents."""

import json

import pytest

from gateway.domain.errors import Code, GatewayError
from gateway.wire.dialects.scoring import parse_rerank, parse_score

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
PICTURE = {"content": [IMAGE]}


def score(**fields):
    return parse_score(json.dumps(fields).encode())


def rerank(**fields):
    return parse_rerank(json.dumps(fields).encode())


@pytest.mark.parametrize(
    ("first", "second"),
    [("queries", "documents"), ("queries", "items"), ("data_1", "data_2"), ("text_1", "text_2")],
)
def test_every_spelling_of_a_pair(first, second):
    request = score(**{first: "ab", second: ["c", {"content": [{"type": "text", "text": "d"}, IMAGE]}]}, model="m")
    assert (request.model, request.prompts, request.wants_output, request.prompt_name) == ("m", 3, False, second)
    [image] = request.images
    assert (image.param, image.copies) == (f"{second}[1].content[1].image_url.url", 1)
    assert (request.text_bytes, request.uncertain_text_bytes) == (2 + 1 + 1 + 2, 2)


def test_a_single_query_may_stand_before_each_document():
    request = rerank(query={"content": [{"type": "text", "text": "abc"}, IMAGE]}, documents=["d", PICTURE, "e"])
    query, document = request.images
    assert (query.param, query.copies) == ("query.content[1].image_url.url", 3)
    assert (document.param, document.copies) == ("documents[1].content[0].image_url.url", 1)
    assert (request.text_bytes, request.uncertain_text_bytes) == (3 * 3 + 2, 2 * 3)
    assert (request.prompts, request.conversation_lengths) == (4, (1, 1))


def test_as_many_queries_as_documents_are_pairs():
    request = score(queries=[PICTURE, "a"], documents=["b", PICTURE])
    assert [image.copies for image in request.images] == [1, 1]
    assert (request.prompts, request.text_bytes, request.uncertain_text_bytes) == (4, 2, 0)


def test_an_instruction_may_stand_before_each_pair():
    request = rerank(query="a", documents=["b", "c"], instruction="1234")
    assert (request.text_bytes, request.uncertain_text_bytes) == (1 + 2 + 1 + 8, 1 + 8)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "queries"),
        ({"queries": "a"}, "queries"),
        ({"text_1": "a", "data_2": "b"}, "text_1"),
        ({"queries": "a", "documents": "b", "items": "c"}, "items"),
        ({"text_1": "a", "text_2": "b", "queries": "c", "documents": "d"}, "text_2"),
        ({"text_1": ["a", "b"], "text_2": "c"}, "text_1"),
        ({"text_1": "a", "text_2": []}, "text_2"),
        ({"text_1": [], "text_2": "a"}, "text_1"),
        ({"text_1": "a", "text_2": IMAGE}, "text_2"),
        ({"text_1": "a", "text_2": 5}, "text_2"),
        ({"text_1": "a", "text_2": ["b"] * 16_384}, "text_2"),
        ({"text_1": "a", "text_2": "b", "instruction": 5}, "instruction"),
    ],
)
def test_refusals(fields, param):
    with pytest.raises(GatewayError) as refused:
        score(**fields)
    assert (refused.value.code, refused.value.param) == (Code.INVALID_REQUEST, param)


def test_a_part_is_refused_by_its_place():
    with pytest.raises(GatewayError) as refused:
        rerank(query="a", documents=["b", {"content": [{"type": "image_embeds", "image_embeds": "AAAA"}]}])
    assert (refused.value.code, refused.value.param) == (Code.INVALID_CONTENT_PART, "documents[1].content[0]")


@pytest.mark.parametrize("fields", [{"documents": "a"}, {"query": ["a"], "documents": "b"}, {"query": "a"}])
def test_reranking_has_one_query(fields):
    with pytest.raises(GatewayError) as refused:
        rerank(**fields)
    assert refused.value.code is Code.INVALID_REQUEST
