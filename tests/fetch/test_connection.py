"""Before real sockets: the guard stands where they are made, and nothing of the client or the environment gets out."""

import asyncio
import socket
import ssl
import threading

import aiohttp
import pytest
from yarl import URL

from gateway.fetch.connection import DeniedAddressError, is_denied
from gateway.fetch.guard import AddressGuard
from tests.support.raw_http import Visit, answer_ok, raw_http_server

CLOSED = AddressGuard()


async def ask(connections, url, headers=None):
    async with connections.get(URL(url, encoded=True), headers or {}) as answer:
        return answer.status, await answer.read()


async def denied(connections, url) -> bool:
    with pytest.raises((aiohttp.ClientError, OSError)) as caught:
        await ask(connections, url)
    return is_denied(caught.value)


async def test_a_host_sees_the_gateway_and_nothing_of_the_client(stack, connect):
    host = await stack.enter_async_context(raw_http_server(answer_ok))
    assert await ask(await connect(), f"{host.base_url}/a%2Fb.png?c=%2f", {"If-None-Match": '"1"'}) == (200, b"{}")
    (visit,) = host.visits
    assert (visit.method, visit.path) == ("GET", "/a%2Fb.png?c=%2f")
    names = {name for name, _ in visit.headers}
    assert names == {"host", "user-agent", "accept", "accept-encoding", "if-none-match", "connection"}
    assert visit.header("user-agent")[0].startswith("vlm-gateway/")
    assert visit.header("accept-encoding") == ["identity"]


async def test_no_cookie_is_kept_and_no_redirect_is_followed(stack, connect):
    async def send_away(visit: Visit) -> None:
        await visit.answer("302 Found", b"", "set-cookie: a=b; path=/", "location: /elsewhere")

    host = await stack.enter_async_context(raw_http_server(send_away))
    connections = await connect()
    for _ in range(2):
        assert (await ask(connections, f"{host.base_url}/a.png"))[0] == 302
    assert [visit.path for visit in host.visits] == ["/a.png", "/a.png"]
    assert not any(visit.header("cookie") for visit in host.visits)


async def test_a_proxy_of_the_environment_is_ignored(stack, connect, monkeypatch):
    host = await stack.enter_async_context(raw_http_server(answer_ok))
    proxy = await stack.enter_async_context(raw_http_server(answer_ok))
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, proxy.base_url)
    await ask(await connect(), f"{host.base_url}/a.png")
    assert (len(host.visits), len(proxy.visits)) == (1, 0)


async def test_a_proxy_that_is_configured_is_asked_for_everything(stack, connect):
    proxy = await stack.enter_async_context(raw_http_server(answer_ok))
    connections = await connect(CLOSED, proxy=proxy.base_url)
    assert await ask(connections, "http://pictures.example/a.png") == (200, b"{}")
    assert [visit.path for visit in proxy.visits] == ["http://pictures.example/a.png"]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.1", "0x7f000001", "2130706433", "0177.0.0.1", "0"])
async def test_this_machine_is_denied_in_every_spelling(stack, connect, host):
    inside = await stack.enter_async_context(raw_http_server(answer_ok))
    port = URL(inside.base_url).port
    assert await denied(await connect(CLOSED), f"http://{host}:{port}/x.png")
    assert not inside.connections


async def test_a_name_that_points_inside_is_denied_and_one_of_several_addresses_may_serve(stack, connect, names):
    inside = await stack.enter_async_context(raw_http_server(answer_ok))
    port = URL(inside.base_url).port
    names["inside.example"] = [["10.0.0.5"]]
    names["both.example"] = [["10.0.0.5", "127.0.0.1"]]
    connections = await connect()
    assert await denied(connections, f"http://inside.example:{port}/")
    assert await ask(connections, f"http://both.example:{port}/") == (200, b"{}")
    assert await denied(await connect(CLOSED), f"http://both.example:{port}/")


async def test_a_name_that_changes_its_mind_is_judged_by_the_address_that_is_connected_to(stack, connect, names):
    """DNS rebinding: whoever looked first saw another address than the one that is asked."""
    inside = await stack.enter_async_context(raw_http_server(answer_ok))
    port = URL(inside.base_url).port
    names["rebound.example"] = [["127.0.0.1"], ["10.0.0.5"]]
    connections = await connect()
    assert await ask(connections, f"http://rebound.example:{port}/") == (200, b"{}")
    assert await denied(connections, f"http://rebound.example:{port}/")


async def test_what_fails_for_another_reason_is_not_called_denied(stack, connect):
    gone = await stack.enter_async_context(raw_http_server(answer_ok))
    await gone.stop()
    assert not await denied(await connect(), f"{gone.base_url}/a.png")


async def test_a_name_without_an_address_cannot_be_told_from_one_that_points_inside(connect, names):
    names["nowhere.example"] = [[]]
    names["inside.example"] = [["10.0.0.5"]]
    connections = await connect()
    assert await denied(connections, "http://nowhere.example/a.png")
    assert await denied(connections, "http://inside.example/a.png")


async def test_a_slow_name_server_does_not_hold_up_the_loop(connect, names, monkeypatch):
    may_answer = threading.Event()
    real = socket.getaddrinfo

    def slowly(host, *args, **kwargs):
        if host == "slow.example":
            may_answer.wait(10)
        return real("127.0.0.1", *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", slowly)
    asking = asyncio.create_task(ask(await connect(), "http://slow.example/a.png"))
    try:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(asking), 0.05)
    finally:
        may_answer.set()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)


def test_a_denial_is_found_wherever_it_stands_in_the_chain():
    denial = DeniedAddressError("no")
    wrapped = aiohttp.ClientError("outer")
    wrapped.__cause__ = ExceptionGroup("several", [ssl.SSLError("other"), denial])
    assert is_denied(denial)
    assert is_denied(wrapped)
    assert not is_denied(aiohttp.ClientError("outer"))
    looped = ValueError("itself")
    looped.__cause__ = OSError("back")
    looped.__cause__.__cause__ = looped
    assert not is_denied(looped)
