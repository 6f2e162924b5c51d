import json

import pytest

from gateway.domain.errors import Code, GatewayError
from gateway.domain.priority import Priority
from gateway.wire.completions import parse_completions


def parse(**fields):
    return parse_completions(json.dumps({"model": "m", **fields}).encode())


def test_text():
    request = parse(prompt="grüß", stream=True, stream_options={"include_usage": True}, n=2, max_tokens=7)
    assert (request.model, request.stream, request.include_usage) == ("m", True, True)
    assert (request.prompts, request.n, request.max_tokens) == (1, 2, 7)
    assert (request.text_bytes, request.prompt_token_ids, request.wants_output) == (6, 0, True)


def test_ids_are_counted_exactly_over_all_prompts():
    request = parse(prompt=[[1, 2, 3], [4]])
    assert (request.prompts, request.prompt_token_ids, request.text_bytes) == (2, 4, 0)


@pytest.mark.parametrize(("sent", "expected"), [({}, 16), ({"max_tokens": None}, 16), ({"max_tokens": 0}, 1)])
def test_the_default_limit_is_vllms(sent, expected):
    assert parse(prompt="a", **sent).max_tokens == expected


def test_empty_embeddings_beside_a_prompt_pass():
    assert parse(prompt="a", prompt_embeds=[]).prompts == 1


def test_truncation():
    assert parse(prompt="a", truncate_prompt_tokens=-1).truncate_prompt_tokens == -1
    assert parse(prompt="a").truncate_prompt_tokens is None


def test_priority():
    assert parse(prompt="a", priority=1).priority is Priority.BATCH
    assert parse(prompt="a").priority is None


def test_as_many_prompts_as_vllm_takes():
    assert parse(prompt=["a"] * 1024).prompts == 1024
    assert parse(prompt=[1] * 5000).prompt_token_ids == 5000
    for prompt in (["a"] * 1025, [[1]] * 1025):
        with pytest.raises(GatewayError, match="1025 prompts, and at most 1024") as refused:
            parse(prompt=prompt)
        assert (refused.value.code, refused.value.param) == (Code.INVALID_REQUEST, "prompt")


def test_as_many_answers_as_vllm_gives_to_one_prompt_are_given_to_all_together():
    assert parse(prompt=["a"] * 1024, n=16).n == 16
    with pytest.raises(GatewayError, match="17 answers to each of its 1024 prompts, 17408 in all, and at most 16384"):
        parse(prompt=["a"] * 1024, n=17)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "prompt"),
        ({"prompt": None}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": 5}, "prompt"),
        ({"prompt": [1.5]}, "prompt[0]"),
        ({"prompt": [[True]]}, "prompt[0][0]"),
        ({"prompt_embeds": "AAAA"}, "prompt_embeds"),
        ({"prompt": "a", "prompt_embeds": ["AAAA"]}, "prompt_embeds"),
        ({"prompt": "a", "max_tokens": -1}, "max_tokens"),
        ({"prompt": "a", "n": 0}, "n"),
        ({"prompt": "a", "kv_transfer_params": {"prompt_token_ids": [1]}}, "kv_transfer_params.prompt_token_ids"),
        ({"prompt": "a", "stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
    ],
)
def test_refusals_name_the_field(fields, param):
    with pytest.raises(GatewayError) as refused:
        parse(**fields)
    assert (refused.value.code, refused.value.param) == (Code.INVALID_REQUEST, param)


def test_fields_with_rules_are_left_to_those():
    body = {"prompt": "a", "use_beam_search": True, "logprobs": 50, "echo": True, "cache_salt": "s"}
    request = parse_completions(json.dumps(body).encode())
    amounts = {use.name: use.amount for use in request.fields}
    assert amounts == {"use_beam_search": 1, "logprobs": 50, "prompt_logprobs": 1}
    assert request.salt.text == "s"
