"""The imitated rules, and beside them the SDK that they imitate."""

import random

import httpx2
import openai
import pytest
from openai._models import FinalRequestOptions

from benchmarks.overload.sdk_rules import asked_seconds, delay_seconds, is_retried

CASES = [
    (429, {}),
    (429, {"retry-after": "1"}),
    (429, {"retry-after-ms": "250", "retry-after": "1"}),
    (429, {"retry-after-ms": "soon", "retry-after": "2"}),
    (429, {"retry-after": "60", "x-should-retry": "false"}),
    (429, {"retry-after": "121"}),
    (429, {"retry-after": "0"}),
    (503, {"x-should-retry": "maybe"}),
    (500, {}),
    (409, {}),
    (408, {}),
    (400, {}),
    (400, {"x-should-retry": "true"}),
]


@pytest.fixture
def sdk():
    return openai.OpenAI(api_key="unused", max_retries=2)


@pytest.mark.parametrize(("status", "headers"), CASES)
def test_who_comes_back_comes_back_as_the_sdk_does(sdk, status, headers):
    answer = httpx2.Response(status, headers=headers)
    assert is_retried(status, headers) == sdk._should_retry(answer)


@pytest.mark.parametrize("headers", [headers for _, headers in CASES])
@pytest.mark.parametrize("retries_taken", [0, 1])
def test_who_waits_waits_as_the_sdk_does(sdk, monkeypatch, headers, retries_taken):
    draw = random.Random(7)
    monkeypatch.setattr("openai._base_client.random", random.Random(7).random)
    options = FinalRequestOptions(method="post", url="/", max_retries=2)
    expected = sdk._calculate_retry_timeout(2 - retries_taken, options, httpx2.Headers(headers))
    assert delay_seconds(headers, retries_taken, draw) == pytest.approx(expected)


def test_milliseconds_go_before_seconds():
    assert asked_seconds({"retry-after-ms": "250", "retry-after": "9"}) == 0.25
    assert asked_seconds({"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}) is None
