"""A server is asked how many tokens a prompt has, over a real socket."""

import json

import pytest

from gateway.upstream.counting import Counter, CountError, CountRefusedError, Way

COUNT, USAGE = b'{"count":7}', b'{"usage":{"prompt_tokens":9,"completion_tokens":1}}'
BAD = b'{"error":{"message":"not that","code":400}}'


@pytest.fixture
async def counter(stub):
    counter = Counter(stub.base_url, "key")
    yield counter
    await counter.close()


def answers(stub, *told):
    """Statuses and bodies, one for each request, the last for all that follow."""
    left = list(told)

    async def script(visit):
        status, body = left.pop(0) if len(left) > 1 else left[0]
        await visit.answer(status, body, "content-type: application/json")

    stub.script = script


async def test_tokenize_is_asked_with_the_servers_key(stub, counter):
    answers(stub, ("200 OK", COUNT))
    assert await counter.count(Way.TOKENIZE, "m", b"png") == 7
    [visit] = stub.visits
    assert (visit.method, visit.path) == ("POST", "/tokenize")
    assert visit.header("authorization") == ["Bearer key"]
    assert visit.header("content-type") == ["application/json"]
    assert len(json.loads(visit.body)["messages"][0]["content"]) == 2


async def test_completions_go_last(stub, counter):
    answers(stub, ("200 OK", USAGE))
    assert await counter.count(Way.COMPLETIONS, "m", None) == 9
    [visit] = stub.visits
    assert visit.path == "/v1/chat/completions"
    assert json.loads(visit.body)["priority"] > 0


async def test_a_server_that_knows_no_priority_is_asked_without_from_then_on(stub, counter):
    answers(stub, ("400 Bad Request", BAD), ("200 OK", USAGE))
    assert await counter.count(Way.COMPLETIONS, "m", None) == 9
    assert await counter.count(Way.COMPLETIONS, "m", b"png") == 9
    assert ["priority" in json.loads(visit.body) for visit in stub.visits] == [True, False, False]


async def test_what_is_refused_with_and_without_priority_is_refused(stub, counter):
    answers(stub, ("400 Bad Request", BAD))
    with pytest.raises(CountRefusedError, match="/v1/chat/completions answered 400: not that"):
        await counter.count(Way.COMPLETIONS, "m", b"png")
    with pytest.raises(CountRefusedError):
        await counter.count(Way.COMPLETIONS, "m", b"png")
    assert ["priority" in json.loads(visit.body) for visit in stub.visits] == [True, False] * 2


@pytest.mark.parametrize(
    ("told", "text"),
    [
        (("404 Not Found", b'{"detail":"Not Found"}'), "/tokenize answered 404"),
        (("500 Internal Server Error", b'{"error":{"message":"dead"}}'), "/tokenize answered 500: dead"),
        (("200 OK", b"{}"), "/tokenize: its answer has no count"),
    ],
)
async def test_anything_else_is_a_failure(stub, counter, told, text):
    answers(stub, told)
    with pytest.raises(CountError) as failure:
        await counter.count(Way.TOKENIZE, "m", None)
    assert (str(failure.value), isinstance(failure.value, CountRefusedError)) == (text, False)


async def test_so_is_a_server_that_is_silent_or_away(stub):
    async def silent(visit):
        await visit.reader.read()

    stub.script = silent
    counter = Counter(stub.base_url, None, timeout_seconds=0.05)
    with pytest.raises(CountError, match="/tokenize: did not answer in time"):
        await counter.count(Way.TOKENIZE, "m", None)
    await stub.stop()
    with pytest.raises(CountError, match="/tokenize: "):
        await counter.count(Way.TOKENIZE, "m", None)
    await counter.close()


async def test_a_closed_one_connects_anew(stub, counter):
    answers(stub, ("200 OK", COUNT))
    await counter.close()
    assert await counter.count(Way.TOKENIZE, "m", None) == 7
    await counter.close()
    assert await counter.count(Way.TOKENIZE, "m", None) == 7
    assert stub.connections == 2
