"""Readings of GPUs: from the driver's tool, from NVIDIA's exporter, and what is told when there are none.

There is no GPU here: the tool is a script that prints what the driver's does, the exporter a page of its format.
"""

import asyncio
import os

import pytest

from gateway.upstream.gpu import (
    DcgmExporter,
    GpuError,
    GpuReading,
    GpuWatch,
    NvidiaSmi,
    readings_of_dcgm,
    readings_of_nvidia_smi,
    source_of,
)
from tests.support.live_gateway import live_gateway, until
from tests.support.model_server import model_server
from tests.support.raw_http import raw_http_server

MIB = 1 << 20
PAGE = """# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).
# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-1",device="nvidia0",modelName="NVIDIA L4",Hostname="a"} 37
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-1",device="nvidia0",GPU_I_ID="1",Hostname="a"} 99
# HELP DCGM_FI_DEV_FB_FREE Framebuffer memory free (in MiB).
# TYPE DCGM_FI_DEV_FB_FREE gauge
DCGM_FI_DEV_FB_FREE{gpu="0",UUID="GPU-1"} 1000
DCGM_FI_DEV_FB_FREE{gpu="1",UUID="GPU-2"} 22563
# HELP DCGM_FI_DEV_FB_USED Framebuffer memory used (in MiB).
# TYPE DCGM_FI_DEV_FB_USED gauge
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-1"} 21563
DCGM_FI_DEV_FB_USED{gpu="1",UUID="GPU-2"} 0
# HELP DCGM_FI_DEV_FB_RESERVED Framebuffer memory reserved (in MiB).
# TYPE DCGM_FI_DEV_FB_RESERVED gauge
DCGM_FI_DEV_FB_RESERVED{gpu="0",UUID="GPU-1"} 471
"""


def test_lines_of_the_drivers_tool():
    text = "0, 21563, 23034, 37\n1, 3, 23034, [N/A]\n2, [N/A], [N/A], 0\n\nNo devices were found\n"
    assert list(readings_of_nvidia_smi(text)) == [
        GpuReading("0", 21563 * MIB, 23034 * MIB, 0.37),
        GpuReading("1", 3 * MIB, 23034 * MIB, None),
    ]


def test_a_page_of_the_exporter():
    assert list(readings_of_dcgm(PAGE)) == [
        GpuReading("0", 21563 * MIB, (21563 + 1000 + 471) * MIB, 0.37),
        GpuReading("1", 0, 22563 * MIB, None),
    ]
    assert list(readings_of_dcgm('DCGM_FI_DEV_GPU_UTIL{gpu="0"} 1\n')) == []
    assert list(readings_of_dcgm(PAGE.replace("} 21563", "} NaN"))) == [GpuReading("1", 0, 22563 * MIB, None)]
    assert list(readings_of_nvidia_smi("0, nan, 23034, 1\n1, 1, inf, 1\n")) == []


def test_a_page_that_is_none():
    with pytest.raises(GpuError, match="cannot be read"):
        list(readings_of_dcgm("<html>\n"))


@pytest.fixture
def tool(tmp_path, monkeypatch):
    """`nvidia-smi` is what the test writes."""

    def tool(script):
        file = tmp_path / "nvidia-smi"
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    return tool


async def test_the_drivers_tool_is_asked(tool):
    tool('echo "0, 100, 200, 5"; test "$2" = --format=csv,noheader,nounits')
    assert await source_of("nvidia-smi").read() == [GpuReading("0", 100 * MIB, 200 * MIB, 0.05)]


async def test_a_driver_that_cannot_be_asked(tool, tmp_path, monkeypatch):
    tool("echo NVIDIA-SMI has failed because it could not communicate with the NVIDIA driver; exit 9")
    with pytest.raises(GpuError, match="ended with 9: NVIDIA-SMI has failed"):
        await NvidiaSmi().read()
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    with pytest.raises(GpuError, match="cannot be started: No such file"):
        await NvidiaSmi().read()


async def test_a_tool_that_hangs_is_ended(tool, tmp_path, monkeypatch):
    monkeypatch.setattr("gateway.upstream.gpu._TIMEOUT_SECONDS", 0.5)
    tool(f"echo $$ > {tmp_path}/id; exec sleep 60")
    with pytest.raises(GpuError, match="took longer"):
        await NvidiaSmi().read()
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "id").read_text()), 0)


class Immortal:
    """A process that is stuck in its driver: no signal ends it."""

    returncode = None

    def kill(self):
        """Nothing comes of it."""

    async def communicate(self):
        await asyncio.Event().wait()


async def test_a_tool_that_does_not_end_even_then_is_left(monkeypatch):
    async def start(*_, **__):
        return Immortal()

    monkeypatch.setattr("asyncio.create_subprocess_exec", start)
    monkeypatch.setattr("gateway.upstream.gpu._TIMEOUT_SECONDS", 0.01)
    monkeypatch.setattr("gateway.upstream.gpu._END_SECONDS", 0.01)
    with pytest.raises(GpuError, match="took longer"):
        await NvidiaSmi().read()


async def test_the_exporter_is_asked():
    async def page(visit):
        assert visit.path == "/metrics"
        await visit.answer("200 OK", PAGE.encode())

    async with raw_http_server(page) as server:
        exporter = source_of(f"{server.base_url}/metrics")
        assert [reading.name for reading in await exporter.read()] == ["0", "1"]
        await exporter.close()


async def test_an_exporter_that_is_away_or_unwell():
    async def unwell(visit):
        await visit.answer("500 Oh")

    async with raw_http_server(unwell) as server:
        exporter = DcgmExporter(f"{server.base_url}/metrics")
        with pytest.raises(GpuError, match="answered 500"):
            await exporter.read()
        await exporter.close()
    exporter = DcgmExporter("http://127.0.0.1:9/metrics")
    with pytest.raises(GpuError, match="the DCGM exporter's page: "):
        await exporter.read()
    await exporter.close()


class Source:
    """Says one thing after the other; the last goes on."""

    def __init__(self, *said):
        self.said = list(said)
        self.is_closed = False

    async def read(self):
        said = self.said.pop(0) if len(self.said) > 1 else self.said[0]
        if isinstance(said, Exception):
            raise said
        return said

    async def close(self):
        self.is_closed = True


async def test_each_trouble_is_told_once_and_takes_the_readings_away():
    told, reading = [], GpuReading("0", 1, 2, None)
    watch = GpuWatch(Source([reading], GpuError("a"), GpuError("a"), [reading], GpuError("a")), 1.0, told.append)
    await watch.look()
    assert (watch.readings, watch.trouble) == ([reading], None)
    await watch.look()
    await watch.look()
    assert (watch.readings, watch.trouble, told) == ([], "a", ["a"])
    await watch.look()
    await watch.look()
    assert told == ["a", "a"]


async def test_what_nobody_thought_of_is_trouble_too():
    told = []
    watch = GpuWatch(Source(ZeroDivisionError()), 1.0, told.append)
    await watch.look()
    assert told == ["ZeroDivisionError"]


async def test_it_looks_on_and_on_until_it_is_closed():
    source = Source([], [GpuReading("7", 1, 2, None)])
    watch = GpuWatch(source, 0.0, print)
    await watch.start()
    await until(lambda: watch.readings != [])
    await watch.close()
    assert source.is_closed


async def test_cards_are_shown_beside_the_budget(tool):
    tool('echo "0, 100, 200, 5"; echo "1, 50, 200, [N/A]"')
    async with model_server() as upstream, live_gateway(upstream.base_url, gpu={"source": "nvidia-smi"}) as gateway:
        await until(lambda: gateway.metrics("gateway_gpu_memory_used_bytes") != {})
        assert gateway.metrics("gateway_gpu_memory_used_bytes") == {'{gpu="0"}': 100 * MIB, '{gpu="1"}': 50 * MIB}
        assert gateway.metrics("gateway_gpu_busy_ratio")['{gpu="0"}'] == 0.05


async def test_without_a_source_there_are_none():
    async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
        assert gateway.metrics("gateway_gpu") == {}
