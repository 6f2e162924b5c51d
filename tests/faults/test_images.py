"""What goes wrong where pictures are decoded: a process there is lost at most, and one request."""

import os
import signal

import pytest

from gateway.imaging import workers
from gateway.wire.encoded_file import EncodedFile
from tests.faults.asking import ask_many
from tests.server.test_lost_workers import OTHER, PICTURE, start
from tests.support import isolation
from tests.support.live_gateway import chat, image
from tests.support.model_server import error_of
from tests.support.pictures import data_url, encoded, picture

__all__ = ["start"]  # a fixture

pytestmark = pytest.mark.usefixtures("short_pools")


def pictures(count, first_seed=10):
    return [image(data_url(encoded(picture(64, 64, seed=first_seed + n)))) for n in range(count)]


async def warm(gateway):
    """Every process is there."""
    await ask_many(gateway, [chat(each) for each in pictures(8, first_seed=100)])
    await gateway.until_released()


@pytest.mark.fault("image worker killed")
async def test_killed(fault, start):
    gateway, _, processes = await start()
    await warm(gateway)
    async with fault.inside(gateway):
        for each in pictures(5):
            os.kill(processes.run(0, isolation.process_id, EncodedFile(b"QUJD")), signal.SIGKILL)
            assert (await gateway.chat(each)).status_code == 200
        fault.clients_saw("5 x 200")


@pytest.mark.fault("image worker hangs")
async def test_hangs(fault, start, monkeypatch):
    gateway, _, _ = await start(decode_seconds=1)
    await warm(gateway)
    async with fault.inside(gateway):
        with monkeypatch.context() as patch:
            patch.setattr(workers, "judge", isolation.spin)
            answer = await gateway.chat(PICTURE)
        assert (answer.status_code, error_of(answer)["code"]) == (400, "image_parse_error")
        fault.clients_saw("400 image_parse_error; the next one 200")
        assert (await gateway.chat(OTHER)).status_code == 200


@pytest.mark.fault("poison image")
async def test_poison(fault, start, monkeypatch):
    gateway, _, processes = await start()
    await warm(gateway)
    async with fault.inside(gateway):
        with monkeypatch.context() as patch:
            patch.setattr(workers, "judge", isolation.crash)
            first = await gateway.chat(PICTURE)
        assert (first.status_code, error_of(first)["code"]) == (400, "image_parse_error")
        died = processes.statistics().died
        again = await gateway.chat(PICTURE)
        assert (again.status_code, processes.statistics().died) == (400, died), "known by now"
        assert (await gateway.chat(OTHER)).status_code == 200
        fault.clients_saw("400 image_parse_error, again without a process lost; others 200")
