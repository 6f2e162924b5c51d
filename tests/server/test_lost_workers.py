"""Worker processes that die under a running gateway: clients get an answer, and everything comes back."""

import os
import signal

import pytest

from gateway.imaging import workers
from gateway.imaging.processes import WorkerProcesses
from gateway.wire.encoded_file import EncodedFile
from tests.support import isolation
from tests.support.live_gateway import image, live_gateway
from tests.support.model_server import error_of, model_server, posts
from tests.support.pictures import data_url, encoded, picture

PICTURE = image(data_url(encoded(picture(64, 64))))
OTHER = image(data_url(encoded(picture(64, 64, seed=1))))


@pytest.fixture
async def start(stack, monkeypatch):
    """A gateway with worker processes of its own."""
    own = []

    def processes(limits):
        own.append(WorkerProcesses(limits))
        return own[-1]

    monkeypatch.setattr("gateway.composing.WorkerProcesses", processes)

    async def start(**images):
        upstream = await stack.enter_async_context(model_server())
        gateway = await stack.enter_async_context(live_gateway(upstream.base_url, images=images))
        await gateway.until_up()
        return gateway, upstream, own[0]

    return start


async def test_a_crash_is_not_the_end_of_the_request(start, monkeypatch, tmp_path):
    monkeypatch.setenv("CRASH_ONCE", str(tmp_path / "crashed"))  # workers get it when they start
    gateway, upstream, _ = await start()
    monkeypatch.setattr(workers, "judge", isolation.crash_once)
    answer = await gateway.chat(PICTURE)
    assert answer.status_code == 200
    assert len(posts(upstream)) == 1
    assert gateway.metrics("gateway_image_workers_lost_total") == {'{cause="died"}': 1}
    await gateway.until_released()


async def test_what_crashes_every_process_is_refused_and_others_are_served(start, monkeypatch):
    gateway, upstream, processes = await start()
    with monkeypatch.context() as patch:
        patch.setattr(workers, "judge", isolation.crash)
        first = await gateway.chat("Well?", PICTURE)
    assert (first.status_code, error_of(first)["code"]) == (400, "image_parse_error")
    assert error_of(first)["param"] == "messages[0].content[1].image_url.url"
    again = await gateway.chat(PICTURE)
    assert (again.status_code, processes.statistics().died) == (400, 2)
    assert (await gateway.chat(OTHER)).status_code == 200
    assert len(posts(upstream)) == 1
    await gateway.until_released()


async def test_what_never_ends_is_ended(start, monkeypatch):
    gateway, upstream, _ = await start(decode_seconds=1)
    monkeypatch.setattr(workers, "judge", isolation.spin)
    answer = await gateway.chat(PICTURE)
    assert (answer.status_code, error_of(answer)["code"]) == (400, "image_parse_error")
    assert posts(upstream) == []
    await gateway.until_released()


async def test_whoever_kills_the_workers_is_not_noticed_by_clients(start):
    gateway, _, processes = await start()
    file = EncodedFile(b"QUJD")
    for seed in range(2, 6):
        os.kill(processes.run(0, isolation.process_id, file), signal.SIGKILL)
        answer = await gateway.chat(image(data_url(encoded(picture(64, 64, seed=seed)))))
        assert answer.status_code == 200
    await gateway.until_released()


async def test_all_pictures_of_a_request_have_so_much_time_together(start, monkeypatch):
    gateway, upstream, processes = await start(transform_seconds=0.5)
    monkeypatch.setattr(workers, "judge", isolation.hang)
    answer = await gateway.chat(PICTURE, OTHER)
    error = error_of(answer)
    assert (answer.status_code, error["code"]) == (503, "server_is_overloaded")
    assert "The 2 images" in error["message"]
    assert "images.transform_seconds" in error["message"]
    assert answer.headers["retry-after"] == "60"
    assert posts(upstream) == []
    processes.close()
    await gateway.until_released()
