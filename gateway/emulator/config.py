"""What an emulated server is: its model, its memory, its limits and how fast it works. Values only."""

import dataclasses
import math
from dataclasses import dataclass, field

from gateway.emulator.vision import FAMILIES, Family


@dataclass(frozen=True, slots=True)
class StepCost:
    """Seconds that one engine step takes: base + work of each kind. The defaults resemble a small GPU."""

    base_seconds: float = 0.008
    prefill_token_seconds: float = 0.00006
    decode_sequence_seconds: float = 0.0001
    encoder_token_seconds: float = 0.0001

    def scaled(self, factor: float) -> "StepCost":
        return StepCost(*(factor * value for value in dataclasses.astuple(self)))


RUNNERS = ("generate", "pooling")
FREE = StepCost(0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class EmulatorConfig:
    """One emulated vLLM server. Field names follow vLLM's flags; see `vlm-gateway emulate --help`. `root` is what it
    lists as loaded, None: a published checkpoint of the family. `enable_responses_store` stands for the environment
    variable VLLM_ENABLE_RESPONSES_API_STORE=1.

    With a `sliding_window` (tokens, at least 2) there are `sliding_window_groups` groups of layers that hold no more,
    beside the one of full attention: 5 where each layer of full attention stands beside five with a window.
    A server whose `runner` is `pooling` embeds, classifies and scores, and generates nothing. With `dev_mode` it has
    the routes of VLLM_SERVER_DEV_MODE that empty caches.
    """

    model: str = "tiny"
    root: str | None = None
    runner: str = "generate"
    dev_mode: bool = False
    family: str = "qwen2_5_vl"
    max_model_len: int = 32_768
    num_gpu_blocks: int = 8_192
    block_size: int = 16
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2_048
    image_limit: int = 999
    video_limit: int = 0
    max_num_queued_reqs: int | None = None
    max_num_queued_tokens: int | None = None
    enable_prefix_caching: bool = True
    enable_prompt_tokens_details: bool = False
    enable_force_include_usage: bool = False
    enable_responses_store: bool = False
    max_pixels: int | None = None
    encoder_cache_size: int | None = None
    sliding_window: int | None = None
    sliding_window_groups: int = 5
    mean_output_tokens: int = 128
    preprocess_pixels_per_second: float = 20e6
    step_cost: StepCost = field(default_factory=StepCost)

    def __post_init__(self) -> None:
        if self.family not in FAMILIES:
            raise ValueError(f"family {self.family!r} is not one of {', '.join(FAMILIES)}")
        if self.runner not in RUNNERS:
            raise ValueError(f"runner {self.runner!r} is not one of {', '.join(RUNNERS)}")
        if self.num_gpu_blocks < 2:
            raise ValueError(f"num_gpu_blocks is {self.num_gpu_blocks}; vLLM keeps one for itself, so at least 2")

    @classmethod
    def fast(cls, **changes: object) -> "EmulatorConfig":
        """A server whose work takes no time, for tests and load tests; `changes` are other fields."""
        values: dict[str, object] = {"step_cost": FREE, "preprocess_pixels_per_second": math.inf, **changes}
        return cls(**values)  # type: ignore[arg-type]  # the dataclass checks the names, mypy cannot see them

    @property
    def vision(self) -> Family:
        """The family's rule under the server's `--mm-processor-kwargs max_pixels`."""
        family = FAMILIES[self.family]
        return dataclasses.replace(family, max_pixels=self.max_pixels) if self.max_pixels else family

    @property
    def encoder_budget_tokens(self) -> int:
        """Encoder compute per step and cache, in embeddings (vLLM: compute_mm_encoder_budget)."""
        largest_item = self.vision.max_pixels // self.vision.unit_pixels**2
        return self.encoder_cache_size or max(self.max_num_batched_tokens, largest_item)
