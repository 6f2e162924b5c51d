"""More than the budget at once: every request is answered or refused with the reason and the time to come back."""

import concurrent.futures
from collections import Counter

import openai

from tests.conformance.harness import MODEL, eventually, sdk, still_held
from tests.support.pictures import data_url, encoded, picture
from tests.support.processes import metrics

REQUESTS = 24
BUDGET = {"budget": {"kv_blocks": 30, "sequences": 3}, "queue": {"requests": 6, "wait_seconds": 2}}


def ask(client, number):
    """Status and headers; 200 only for an answer that came whole. Odd requests are streams."""
    image = {"type": "image_url", "image_url": {"url": data_url(encoded(picture(600, 400 + number)))}}
    question = {"model": MODEL, "messages": [{"role": "user", "content": [image]}], "max_tokens": 100}
    try:
        if number % 2:
            events = list(client.chat.completions.create(**question, stream=True, extra_body={"ignore_eos": True}))
            assert events[-1].choices[0].finish_reason == "length"
        else:
            answer = client.chat.completions.create(**question, extra_body={"ignore_eos": True})
            assert answer.usage.completion_tokens == 100
    except openai.APIStatusError as refusal:
        return refusal.status_code, refusal.response.headers
    return 200, {}


def preemptions(url):
    return sum(value for name, value in metrics(url).items() if name.startswith("vllm:num_preemptions_total"))


def test_a_burst_beyond_the_budget(upstream, tmp_path):
    preemptions_before = preemptions(upstream.url)
    with upstream.gateway(tmp_path, **BUDGET) as gateway:
        with sdk(gateway.url) as client, concurrent.futures.ThreadPoolExecutor(REQUESTS) as pool:
            endings = list(pool.map(lambda number: ask(client, number), range(REQUESTS)))
        statuses = Counter(status for status, _ in endings)
        assert set(statuses) <= {200, 429, 503}
        assert statuses[200] >= 3
        assert statuses[429] + statuses[503] > 0
        for headers in (headers for status, headers in endings if status != 200):
            assert 1 <= int(headers["retry-after"]) <= 60
            assert headers["x-gateway-reason"] in {"queue_full", "would_miss_deadline", "deadline_passed"}
        assert eventually(lambda: still_held(gateway.url) == {}), still_held(gateway.url)
    assert preemptions(upstream.url) == preemptions_before
