"""What the page shows of a model server that has told nothing yet."""

from gateway.emulator.config import EmulatorConfig
from gateway.emulator.serve import running_emulator
from tests.support.live_gateway import live_gateway, until
from tests.support.model_server import model_server

NAME = "gateway_upstream_preemptions_total"


async def samples(gateway):
    """Lines of the metric as Prometheus gets them, zeros too."""
    page = (await gateway.http.get("/metrics")).text
    assert f"# TYPE {NAME} counter" in page
    return [line for line in page.splitlines() if line.startswith(NAME)]


async def test_there_are_no_preemptions_before_the_engine_has_reported():
    async with live_gateway("http://127.0.0.1:9") as gateway:
        assert await samples(gateway) == []


async def test_there_are_none_of_a_server_that_does_not_count_them():
    async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
        await gateway.until_up()
        assert await samples(gateway) == []


async def test_each_engine_that_has_reported_has_its_count():
    with running_emulator(EmulatorConfig.fast(model="tiny")) as engine:
        async with live_gateway({"away": "http://127.0.0.1:9", "there": engine.base_url}) as gateway:
            await until_reported(gateway, "there")
            assert await samples(gateway) == [f'{NAME}{{upstream="there"}} 0.0']


async def until_reported(gateway, name):
    (poller,) = [each.poller for each in gateway.application._running.backends if each.name == name]
    await until(lambda: poller.state.report is not None)
