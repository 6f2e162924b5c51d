import pytest

from gateway.wire.usage import Usage, usage_of

# The end of an answer of vLLM 0.32.
TAIL = (
    b'"system_fingerprint":"vllm-0.32.0-5d51bd32","usage":{"prompt_tokens":109,"total_tokens":113,'
    b'"completion_tokens":4,"prompt_tokens_details":%s,"completion_tokens_details":null},"prompt_logprobs":null,'
    b'"prompt_token_ids":null,"kv_transfer_params":null}'
)


def test_plain():
    assert usage_of(TAIL % b"null") == Usage(109, 4)


def test_tokens_of_images_stand_in_the_details():
    details = b'{"cached_tokens":64,"created_cache_tokens":0,"multimodal_tokens":{"image":50,"video":7}}'
    assert usage_of(TAIL % details) == Usage(109, 4, 50, 64)
    assert usage_of(b"..." + TAIL % details) == Usage(109, 4, 50, 64)


@pytest.mark.parametrize(
    "details",
    [
        b'{"cached_tokens":null,"created_cache_tokens":0,"multimodal_tokens":null}',
        b'{"cached_tokens":-1}',
        b'{"cached_tokens":"64"}',
        b'{"multimodal_tokens":{"video":7}}',
        b'{"multimodal_tokens":{"image":-1}}',
        b'{"multimodal_tokens":[50]}',
        b'"none"',
        b"{}",
    ],
)
def test_details_that_tell_nothing_of_images_do_no_harm(details):
    assert usage_of(TAIL % details) == Usage(109, 4)


def test_one_detail_that_is_spelled_otherwise_does_not_spoil_the_other():
    assert usage_of(TAIL % b'{"cached_tokens":64,"multimodal_tokens":[]}') == Usage(109, 4, None, 64)
    assert usage_of(TAIL % b'{"cached_tokens":[],"multimodal_tokens":{"image":50}}') == Usage(109, 4, 50)


def test_embeddings_have_no_completion():
    assert usage_of(b'{"data":[], "usage": {"prompt_tokens":7,"total_tokens":7}}') == Usage(7, 0)


def test_text_of_the_answer_is_not_mistaken_for_usage():
    body = b'{"choices":[{"message":{"content":"\\"usage\\":{\\"prompt_tokens\\":1}"}}]}'
    assert usage_of(body) is None


@pytest.mark.parametrize(
    "body",
    [
        b'{"usage":{"prompt_tokens":-1}}',
        b'{"usage":{"prompt_tokens":9223372036854775807}}',
        b'{"usage":{"prompt_tokens":1,"x":' + b"[" * 5_000,
        b'{"usage":' + b'{"x":' * 1_500 + b"1" + b"}" * 1_501,
        b'text","usage":' + b'{"x":' * 1_500 + b"1" + b"}" * 1_501,
        b'text","usage":{"prompt_tokens":' + b"9" * 5_000 + b"}}",
        b"",
        b'{"usage":null}',
        b'{"usage":{"prompt_tokens":"x"}}',
        b'{"usage":{"prompt_to',
        b'"usage":\xff',
        b'"usage":',
    ],
)
def test_what_cannot_be_read_is_unknown(body):
    assert usage_of(body) is None
