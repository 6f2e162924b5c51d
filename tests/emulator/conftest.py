"""Two emulated servers: one set up like the captured vLLM, and for each test that breaks something one of its own."""

from collections.abc import Iterator

import httpx
import pytest

from gateway.emulator.config import EmulatorConfig
from gateway.emulator.serve import RunningEmulator, running_emulator

AS_CAPTURED = EmulatorConfig.fast(
    max_model_len=32_768, num_gpu_blocks=32_768, block_size=128, max_num_seqs=8, image_limit=4
)


@pytest.fixture(scope="session")
def server() -> Iterator[RunningEmulator]:
    with running_emulator(AS_CAPTURED) as running:
        yield running


@pytest.fixture(scope="session")
def client(server: RunningEmulator) -> Iterator[httpx.Client]:
    no_reuse = httpx.Limits(max_keepalive_connections=0)  # after a 500 the server closes without a word, as vLLM does
    with httpx.Client(base_url=server.base_url, timeout=20, trust_env=False, limits=no_reuse) as http:
        yield http
