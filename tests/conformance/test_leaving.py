"""A client that leaves, whenever it does, frees the engine at once and leaves nothing held in the gateway."""

import contextlib

import httpx
import pytest

from tests.conformance.harness import MODEL, SEQUENCES, at_work, eventually, still_held
from tests.support.pictures import data_url, encoded, picture

CHAT = "/v1/chat/completions"
ENDLESS = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "Go on."}],
    "max_tokens": 20_000,
    "ignore_eos": True,
}
IMAGE = {"type": "image_url", "image_url": {"url": data_url(encoded(picture(500, 400)))}}


@pytest.fixture(scope="module")
def narrow_gateway(upstream, tmp_path_factory):
    """It lets one request in and the others wait."""
    with upstream.gateway(tmp_path_factory.mktemp("narrow"), budget={"sequences": 1}) as running:
        yield running


@contextlib.contextmanager
def streaming(url):
    """A stream from which the first piece has been read; leaving the block hangs up."""
    with httpx.stream("POST", f"{url}{CHAT}", json=ENDLESS | {"stream": True}, timeout=60) as answer:
        assert answer.status_code == 200
        pieces = answer.iter_raw()  # httpx hangs up when this iterator goes away
        next(pieces)
        yield pieces


def ask_and_leave(url, *, after_seconds=0.5, **fields):
    """Wait for an answer for a while, then hang up."""
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{url}{CHAT}", json=ENDLESS | fields, timeout=httpx.Timeout(60, read=after_seconds))


def assert_all_is_released(upstream, gateway):
    assert eventually(lambda: at_work(upstream.url) == (0, 0)), at_work(upstream.url)
    assert eventually(lambda: still_held(gateway.url) == {}), still_held(gateway.url)


def test_in_the_middle_of_a_stream(upstream, gateway):
    with streaming(gateway.url):
        assert eventually(lambda: at_work(upstream.url) == (1, 0))
        assert 'gateway_held{resource="sequences"}' in still_held(gateway.url)
    assert_all_is_released(upstream, gateway)


def test_while_waiting_for_an_answer_in_one_piece(upstream, gateway):
    ask_and_leave(gateway.url)
    assert_all_is_released(upstream, gateway)


def test_before_the_first_token_while_the_engine_lets_it_wait(upstream, gateway):
    with contextlib.ExitStack() as others:
        for _ in range(SEQUENCES):
            others.enter_context(streaming(upstream.url))
        ask_and_leave(gateway.url, messages=[{"role": "user", "content": [IMAGE]}])
        assert eventually(lambda: at_work(upstream.url) == (SEQUENCES, 0))
    assert_all_is_released(upstream, gateway)


def test_while_it_waits_in_the_gateway(upstream, narrow_gateway):
    with streaming(narrow_gateway.url):
        ask_and_leave(narrow_gateway.url)
        assert eventually(lambda: "gateway_queue_depth" not in still_held(narrow_gateway.url))
        assert at_work(upstream.url) == (1, 0)
    assert_all_is_released(upstream, narrow_gateway)
