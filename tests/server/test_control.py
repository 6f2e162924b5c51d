"""Routes that make no engine work, asked without a gateway behind them."""

import httpx
import pytest

from gateway import __version__
from gateway.server.control import create_control_app
from gateway.server.page_access import PageAccess
from tests.support.model_server import error_of


class Told:
    """A gateway that is as the test says."""

    def __init__(self, *, started=True, why_not=None, troubles=()):
        self._started, self._why_not, self._troubles = started, why_not, troubles

    def is_started(self):
        return self._started

    def why_not_ready(self):
        return self._why_not

    def remarks(self):
        return self._troubles

    def metrics_page(self, accept):
        return f"# for {accept}\n".encode(), "text/plain; version=1.0.0"

    def status(self):
        return b"{}"


def client(**facts) -> httpx.AsyncClient:
    app = create_control_app(Told(**facts), PageAccess())
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway")


@pytest.mark.parametrize("path", ["/livez", "/startupz", "/readyz", "/health"])
async def test_all_is_well(path):
    assert (await client().get(path)).status_code == 200


async def test_not_ready_says_why():
    for path in ("/readyz", "/health"):
        answer = await client(why_not="the model server is down").get(path)
        assert (answer.status_code, answer.json()["reason"]) == (503, "the model server is down")
    assert (await client(why_not="the model server is down").get("/livez")).status_code == 200


async def test_ready_without_some_says_without_whom():
    answer = await client(troubles=["the model server b is down"]).get("/readyz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok", "but": "the model server b is down"})


async def test_not_started():
    assert (await client(started=False).get("/startupz")).status_code == 503


async def test_version_metrics_and_documentation():
    assert (await client().get("/version")).json() == {"version": __version__}
    page = await client().get("/metrics", headers={"accept": "text/plain"})
    assert (page.text, page.headers["content-type"]) == ("# for text/plain\n", "text/plain; version=1.0.0")
    assert (await client().get("/docs")).status_code == 200


async def test_errors_have_the_shape_of_all_others():
    answer = await client().post("/livez")
    assert (answer.status_code, error_of(answer)["code"]) == (405, "method_not_allowed")
    assert answer.headers["allow"] == "GET"
    answer = await client().get("/livez/x")
    assert (answer.status_code, error_of(answer)["code"]) == (404, "not_found")
