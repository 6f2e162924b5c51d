"""Fields by which a request could harm others, through a live gateway: what goes on, is brought down, or ends it."""

import json

import pytest

from tests.support.live_gateway import CHAT, MODEL, chat, live_gateway
from tests.support.model_server import error_of, model_server, posts

TOO_MUCH = {
    "mm_processor_kwargs": {"max_pixels": 1 << 30},
    "media_io_kwargs": {"image": {"image_mode": "RGBA"}},
    "chat_template": "{% for i in range(10**9) %}x{% endfor %}",
    "chat_template_kwargs": {"chat_template": "x"},
    "kv_transfer_params": {"do_remote_prefill": True, "remote_host": "169.254.169.254", "remote_port": 80},
    "ec_transfer_params": {"a": 1},
    "use_beam_search": True,
    "prompt_logprobs": 1,
    "top_logprobs": -1,
    "n": 129,
    "repetition_detection": {"max_pattern_size": 1_000_000, "min_count": 2},
    "stop": ["x" * 5000],
    "stop_token_ids": list(range(5000)),
    "allowed_token_ids": list(range(50_000)),
    "logit_bias": {str(number): 1 for number in range(9999)},
    "bad_words": ["x"] * 9999,
    "structured_outputs": {"regex": "(a*)*" * 1000},
    "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"pattern": "a" * 70_000}}},
    "guided_regex": "(a*)*" * 1000,
    "guided_decoding_backend": "outlines",
    "vllm_xargs": {"x": "y" * 5000},
    "echo": True,
}


@pytest.mark.parametrize("name", TOO_MUCH)
async def test_what_asks_for_too_much_never_reaches_the_server(name):
    async with model_server() as server, live_gateway(server.base_url) as gateway:
        answer = await gateway.chat(**{name: TOO_MUCH[name]})
        error = error_of(answer)
        assert (answer.status_code, error["code"], error["param"].partition(".")[0]) == (400, "invalid_request", name)
        assert "fields." in error["message"]
        assert answer.headers["x-should-retry"] == "false"
        assert posts(server) == []


USUAL = {
    "n": 4,
    "best_of": 1,
    "logprobs": True,
    "top_logprobs": 20,
    "stop": ["\n\n", "END", "###", "</s>"],
    "logit_bias": {str(number): -100 for number in range(300)},
    "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}},
    "chat_template_kwargs": {"enable_thinking": False},
    "vllm_xargs": {"ngram_size": 30, "window_size": 90, "whitelist_token_ids": [1, 2]},
    "structured_outputs": {"regex": "[a-z]{1,20}"},
    "priority": 3,
    "mm_processor_kwargs": {},
    "use_beam_search": False,
    "prompt_logprobs": None,
    "echo": False,
}


async def test_what_is_usual_goes_on_byte_for_byte():
    body = json.dumps(chat(**USUAL), indent=1).encode()
    async with model_server() as server, live_gateway(server.base_url) as gateway:
        answer = await gateway.http.post(CHAT, content=body, headers={"content-type": "application/json"})
        assert answer.status_code == 200, answer.text
        assert posts(server)[0].body == body


async def test_what_is_brought_down_is_written_in_its_place():
    body = json.dumps(chat(best_of=5, priority=-9, stream_interval=1000, x=1)).encode()
    async with model_server() as server, live_gateway(server.base_url) as gateway:
        await gateway.http.post(CHAT, content=body, headers={"content-type": "application/json"})
        down = body.replace(b'"best_of": 5', b'"best_of": 1').replace(b"-9", b"0").replace(b"1000", b"1")
        assert posts(server)[0].body == down


async def test_the_operator_says_otherwise():
    fields = {
        "prompt_logprobs": {"policy": "allow"},
        "n": {"policy": "clamp", "most": 2},
        "stop": {"most": 3},
        "best_of": {"policy": "refuse"},
    }
    async with model_server() as server, live_gateway(server.base_url, fields=fields) as gateway:
        answer = await gateway.chat(prompt_logprobs=5, n=90)
        assert answer.status_code == 200, answer.text
        assert json.loads(posts(server)[0].body) == chat(prompt_logprobs=5, n=2)
        assert error_of(await gateway.chat(stop="long"))["param"] == "stop"
        assert error_of(await gateway.chat(best_of=2))["message"].startswith("`best_of` is 2, and the most is 1")


async def test_completions_have_the_same_rules():
    async with model_server() as server, live_gateway(server.base_url) as gateway:
        for body, param in (({"echo": True, "logprobs": 1}, "echo"), ({"logprobs": 21}, "logprobs"), ({"n": 200}, "n")):
            answer = await gateway.http.post("/v1/completions", json={"model": MODEL, "prompt": "a"} | body)
            assert (answer.status_code, error_of(answer)["param"]) == (400, param)
        scored = {"model": MODEL, "prompt": "a", "echo": True}
        assert (await gateway.http.post("/v1/completions", json=scored)).status_code == 200
        assert len(posts(server)) == 1


async def test_headers_that_steer_the_engine_stay_here():
    steering = {"x-data-parallel-rank": "3", "x-vllm-priority": "-100", "x-session-id": "s"}
    async with model_server() as server, live_gateway(server.base_url) as gateway:
        assert (await gateway.chat(headers=steering)).status_code == 200
        (visit,) = posts(server)
    assert not visit.header("x-data-parallel-rank")
    assert not visit.header("x-vllm-priority")
    assert visit.header("x-session-id") == ["s"]


async def test_the_gateways_own_word_of_priority_still_goes_out():
    hand_on = {"headers": {"x-vllm-priority": "vllm_priority"}}
    async with model_server() as server, live_gateway(server.base_url, hand_on=hand_on) as gateway:
        await gateway.chat(headers={"x-vllm-priority": "-100", "x-gateway-priority": "batch"})
        assert posts(server)[0].header("x-vllm-priority") == ["1"]


async def test_in_shadow_mode_nothing_is_brought_down_and_refusals_are_told():
    async with model_server() as server, live_gateway(server.base_url, mode="shadow") as gateway:
        await gateway.chat(best_of=5)
        answer = await gateway.chat(prompt_logprobs=1)
        assert answer.headers["x-gateway-shadow"] == "refused;reason=bad_request;status=400"
        assert [json.loads(visit.body) for visit in posts(server)] == [chat(best_of=5), chat(prompt_logprobs=1)]
