"""The same contract before two upstreams: the emulator (always) and a real vLLM (`-m real`)."""

from collections.abc import Iterator

import pytest

from gateway.emulator.config import EmulatorConfig
from gateway.emulator.serve import running_emulator
from tests.conformance import byte_model
from tests.conformance.harness import BLOCK_TOKENS, IMAGE_LIMIT, KV_BLOCKS, MODEL, SEQUENCES, Upstream
from tests.support.processes import RunningGateway


@pytest.fixture(scope="session", params=["emulator", pytest.param("real", marks=pytest.mark.real)])
def upstream(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Upstream]:
    if request.param == "real":
        vllm = request.getfixturevalue("real_vllm")
        yield Upstream(vllm.url, vllm.folder)
        return
    folder = tmp_path_factory.mktemp("byte-model")
    byte_model.write(folder)
    config = EmulatorConfig(
        model=MODEL,
        image_limit=IMAGE_LIMIT,
        max_num_seqs=SEQUENCES,
        num_gpu_blocks=KV_BLOCKS,
        block_size=BLOCK_TOKENS,
        enable_prompt_tokens_details=True,
    )
    with running_emulator(config) as emulator:
        yield Upstream(emulator.base_url, folder)


@pytest.fixture(scope="session")
def gateway(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with upstream.gateway(tmp_path_factory.mktemp("gateway")) as running:
        yield running
