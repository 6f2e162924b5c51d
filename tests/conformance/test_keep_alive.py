"""Streams that were begun while they waited hold what they would have held, and end as they would have ended."""

import concurrent.futures

import openai

from tests.conformance.harness import MODEL, eventually, sdk, still_held
from tests.support.pictures import data_url, encoded, picture
from tests.support.processes import metrics

STREAMS = 6
SETTINGS = {"budget": {"sequences": 1}, "streaming": {"keep_alive_after_seconds": 0.01}}
IMAGE = {"type": "image_url", "image_url": {"url": data_url(encoded(picture(280, 140)))}}
QUESTION = {
    "model": MODEL,
    "messages": [{"role": "user", "content": ["What is this?", IMAGE]}],
    "max_tokens": 40,
    "temperature": 0,
    "stream": True,
    "extra_body": {"ignore_eos": True},
}


def text_of(client, **fields):
    """What was said, and the usage if there was any."""
    events = list(client.chat.completions.create(**QUESTION | fields))
    usage = [event.usage.completion_tokens for event in events if event.usage is not None]
    return "".join(choice.delta.content or "" for event in events for choice in event.choices), usage


def kept_alive(gateway) -> float:
    return metrics(gateway.url)["gateway_streams_kept_alive_total"]


def test_the_same_words_and_usage_only_for_who_asked(upstream, tmp_path):
    with sdk(upstream.url) as direct:
        text_of(direct)  # from now on both find the picture in vLLM's caches
        expected, _ = text_of(direct)
    with upstream.gateway(tmp_path, **SETTINGS) as gateway, sdk(gateway.url) as client:
        asked = [{"stream_options": {"include_usage": True}} if number % 2 else {} for number in range(STREAMS)]
        with concurrent.futures.ThreadPoolExecutor(STREAMS) as pool:
            said = list(pool.map(lambda fields: text_of(client, **fields), asked))
        assert said == [(expected, [40] if fields else []) for fields in asked]
        assert kept_alive(gateway) >= STREAMS - 2
        assert eventually(lambda: still_held(gateway.url) == {}), still_held(gateway.url)


def test_who_waits_in_vain_is_told_in_the_stream(upstream, tmp_path):
    settings = SETTINGS | {"queue": {"wait_seconds": 0.2}}
    with upstream.gateway(tmp_path, **settings) as gateway, sdk(gateway.url) as client:
        with concurrent.futures.ThreadPoolExecutor(STREAMS) as pool:
            asked = [pool.submit(text_of, client, max_tokens=400) for _ in range(STREAMS)]
        errors = [each.exception() for each in asked if each.exception() is not None]
        assert 0 < len(errors) < STREAMS
        assert {type(error) for error in errors} <= {openai.APIError, openai.InternalServerError}
        assert openai.APIError in map(type, errors), "at least one was begun before it was refused"
        assert kept_alive(gateway) > 0
        assert eventually(lambda: still_held(gateway.url) == {}), still_held(gateway.url)


def test_a_refusal_by_the_server_itself_is_told_with_its_words(upstream, tmp_path):
    with upstream.gateway(tmp_path, **SETTINGS) as gateway, sdk(gateway.url) as client:
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            running = pool.submit(text_of, client, max_tokens=400)
            assert eventually(lambda: still_held(gateway.url) != {})
            refused = pool.submit(text_of, client, model="nope")
        assert len(running.result()[0]) > 0
        error = refused.exception()
        assert isinstance(error, openai.APIError)
        assert "`nope` does not exist" in error.message
        assert eventually(lambda: still_held(gateway.url) == {}), still_held(gateway.url)
