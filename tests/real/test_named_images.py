"""Images by their `uuid` alone, and prefixes of one tenant each, at a real vLLM: it does with the gateway's names and
salts what the gateway counts on.
"""

from hashlib import sha256

import httpx
import pytest

from tests.real.test_exact_tokens import settings
from tests.support.pictures import data_url, encoded, picture
from tests.support.processes import metrics, running_gateway

pytestmark = pytest.mark.real

LARGE = data_url(encoded(picture(1400, 1120, seed=8001)))
SMALL = data_url(encoded(picture(280, 140, seed=8002)))
TENANTS = [{"name": who, "key_sha256": [sha256(f"sk-{who}".encode()).hexdigest()]} for who in ("a", "b")]
LONG = "The same beginning of a prompt, over and over. " * 60


@pytest.fixture(scope="module")
def gateway_url(real_vllm, tmp_path_factory):
    sections = settings(real_vllm, tenants=TENANTS)
    with running_gateway(real_vllm.url, tmp_path_factory.mktemp("gateway"), sections) as gateway:
        yield gateway.url


def ask(url, model, content, who="a", **headers):
    headers |= {"authorization": f"Bearer sk-{who}"}
    messages = [{"role": "user", "content": content}]
    body = {"model": model, "messages": messages, "max_tokens": 1}
    return httpx.post(f"{url}/v1/chat/completions", json=body, headers=headers, timeout=120)


def sent(url, uuid):
    return [{"type": "text", "text": "?"}, {"type": "image_url", "image_url": {"url": url}, "uuid": uuid}]


def named(uuid, value=None):
    return [{"type": "text", "text": "?"}, {"type": "image_url", "image_url": value, "uuid": uuid}]


def tokens(answer):
    """Those that vLLM counted, which were predicted."""
    assert answer.status_code == 200, answer.text
    counted = answer.json()["usage"]["prompt_tokens"]
    assert answer.headers["x-gateway-prompt-tokens"] == str(counted)
    return counted


@pytest.mark.parametrize("value", [None, "", {"url": None}, {"url": ""}, {}], ids=str)
def test_an_image_that_was_sent_is_counted_right_by_its_name_alone(real_vllm, gateway_url, value):
    first = tokens(ask(gateway_url, real_vllm.model, sent(SMALL, "small")))
    assert tokens(ask(gateway_url, real_vllm.model, named("small", value))) == first


def test_another_tenant_gets_a_miss_and_not_the_picture(real_vllm, gateway_url):
    large = tokens(ask(gateway_url, real_vllm.model, sent(LARGE, "mine")))
    miss = ask(gateway_url, real_vllm.model, named("mine"), who="b")
    assert (miss.status_code, miss.json()["error"]["code"]) == (400, "unknown_image_uuid")
    small = tokens(ask(gateway_url, real_vllm.model, sent(SMALL, "mine"), who="b"))
    assert small < large
    assert tokens(ask(gateway_url, real_vllm.model, named("mine"), who="b")) == small
    assert tokens(ask(gateway_url, real_vllm.model, named("mine"))) == large


def test_the_word_of_a_client_is_no_name_at_the_server(real_vllm, gateway_url):
    """Nor does vLLM keep tenants apart by itself: that is why."""
    tokens(ask(gateway_url, real_vllm.model, sent(SMALL, "word")))
    miss = ask(real_vllm.url, real_vllm.model, named("word"))
    assert miss.status_code == 400
    assert miss.json()["error"]["message"].startswith("Cache miss for image at index 0 but data is not provided.")
    assert ask(real_vllm.url, real_vllm.model, sent(SMALL, "bare"), who="a").status_code == 200
    assert ask(real_vllm.url, real_vllm.model, named("bare"), who="b").status_code == 200


def test_other_bytes_under_the_same_word_are_the_ones_that_are_seen(real_vllm, gateway_url):
    small = tokens(ask(gateway_url, real_vllm.model, sent(SMALL, "again")))
    assert tokens(ask(gateway_url, real_vllm.model, sent(LARGE, "again"))) > small


def test_a_smaller_picture_is_another_one(real_vllm, gateway_url):
    whole = tokens(ask(gateway_url, real_vllm.model, sent(LARGE, "shrunk")))
    shrunk = tokens(ask(gateway_url, real_vllm.model, sent(LARGE, "shrunk"), **{"x-gateway-resize": "thumbnail"}))
    assert shrunk < whole
    assert tokens(ask(gateway_url, real_vllm.model, named("shrunk"))) == shrunk


def test_a_server_that_lost_it_says_so_and_is_believed(real_vllm, tmp_path):
    """Names that this gateway made with another key than the one that it has now are none that the server has."""
    folder = tmp_path / "gateway"
    with running_gateway(real_vllm.url, folder, settings(real_vllm)) as gateway:
        tokens(ask(gateway.url, real_vllm.model, sent(SMALL, "kept")))
        tokens(ask(gateway.url, real_vllm.model, named("kept")))
    with running_gateway(real_vllm.url, tmp_path / "next", settings(real_vllm)) as gateway:
        miss = ask(gateway.url, real_vllm.model, named("kept"))
        assert miss.json()["error"]["code"] == "unknown_image_uuid"


def test_prefixes_are_found_again_by_their_own_tenant_alone(real_vllm, gateway_url, report_line):
    def hits():
        return sum(value for name, value in metrics(real_vllm.url).items() if "vllm:prefix_cache_hits_total" in name)

    def found(who):
        before = hits()
        tokens(ask(gateway_url, real_vllm.model, LONG, who=who))
        return hits() - before

    assert found("a") == 0
    assert found("b") == 0
    own = found("a")
    assert own > 0
    assert found("b") == own
    report_line(f"tokens found in the prefix cache by their own tenant: {own:g}, by another: 0")
