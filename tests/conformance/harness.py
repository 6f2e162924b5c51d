"""What the contract tests share: the upstream as they see it, the client, and questions about what is left behind."""

import pathlib
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import openai

from tests.support.processes import RunningGateway, metrics, running_gateway

MODEL = "tiny"
IMAGE_LIMIT = 4
SEQUENCES = 4
KV_BLOCKS = 257
BLOCK_TOKENS = 128


@dataclass(frozen=True, slots=True)
class Upstream:
    """A model server: its address, and the folder with its tokenizer."""

    url: str
    folder: pathlib.Path

    def gateway(self, work: pathlib.Path, **settings: object) -> AbstractContextManager[RunningGateway]:
        """A gateway of its own before this server; `settings` are sections of its file."""
        model = {"name": MODEL, "family": "qwen2_5_vl", "folder": str(self.folder)}
        return running_gateway(self.url, work, {"models": [model], "images": {"max_forwarded": IMAGE_LIMIT}} | settings)


def sdk(url: str) -> openai.OpenAI:
    """OpenAI's client as users have it, except that it does not try again by itself."""
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=60)


def at_work(url: str) -> tuple[float, float]:
    """Requests that the engine runs, and that wait in it."""
    values = metrics(url)
    return tuple(
        sum(value for name, value in values.items() if name.startswith(f"vllm:num_requests_{state}{{"))
        for state in ("running", "waiting")
    )


def still_held(url: str) -> dict[str, float]:
    """What the gateway holds or lets wait, without what is zero."""
    return {
        name: value
        for name, value in metrics(url).items()
        if name.startswith(("gateway_held", "gateway_queue_depth", "gateway_queue_cost_tokens")) and value
    }


def eventually(is_so: Callable[[], bool], *, within_seconds: float = 10) -> bool:
    """Ask until it is so: the other side is another process."""
    give_up_at = time.monotonic() + within_seconds
    while time.monotonic() < give_up_at:
        if is_so():
            return True
        time.sleep(0.05)
    return False
