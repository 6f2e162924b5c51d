"""What the engine counts: totals, histograms and the gauges published at the end of each step. Values only."""

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from itertools import accumulate

_TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000)
_REQUEST_SECONDS = (
    0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1_920, 7_680,
)  # fmt: skip
_TOKEN_GAP_SECONDS = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80,
)  # fmt: skip
_FIRST_TOKEN_SECONDS = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2_560,
)  # fmt: skip

HISTOGRAMS: dict[str, tuple[tuple[float, ...], str]] = {
    "request_prompt_tokens": (_TOKENS, "Number of prefill tokens processed."),
    "request_generation_tokens": (_TOKENS, "Number of generation tokens processed."),
    "iteration_tokens_total": (
        (1, 8, 16, 32, 64, 128, 256, 512, 1_024, 2_048, 4_096, 8_192, 16_384),
        "Histogram of number of tokens per engine_step.",
    ),
    "request_max_num_generation_tokens": (_TOKENS, "Histogram of maximum number of requested generation tokens."),
    "request_params_n": ((1, 2, 5, 10, 20), "Histogram of the n request parameter."),
    "request_params_max_tokens": (_TOKENS, "Histogram of the max_tokens request parameter."),
    "time_to_first_token_seconds": (_FIRST_TOKEN_SECONDS, "Histogram of time to first token in seconds."),
    "inter_token_latency_seconds": (_TOKEN_GAP_SECONDS, "Histogram of inter-token latency in seconds."),
    "request_time_per_output_token_seconds": (
        _TOKEN_GAP_SECONDS,
        "Histogram of time_per_output_token_seconds per request.",
    ),
    "e2e_request_latency_seconds": (_REQUEST_SECONDS, "Histogram of e2e request latency in seconds."),
    "request_queue_time_seconds": (_REQUEST_SECONDS, "Histogram of time spent in WAITING phase for request."),
    "request_inference_time_seconds": (_REQUEST_SECONDS, "Histogram of time spent in RUNNING phase for request."),
    "request_prefill_time_seconds": (_REQUEST_SECONDS, "Histogram of time spent in PREFILL phase for request."),
    "request_decode_time_seconds": (_REQUEST_SECONDS, "Histogram of time spent in DECODE phase for request."),
    "request_num_preemptions": ((1, 2, 3, 4, 5, 10, 20), "Histogram of the number of times a request was preempted."),
    "request_prefill_kv_computed_tokens": (
        _TOKENS,
        "Histogram of new KV tokens computed during prefill (excluding cached tokens).",
    ),
}


class Histogram:
    """Observations by upper bound."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        return sum(self._counts)

    def cumulative(self) -> list[int]:
        """Observations at or below each bound, the last entry being all."""
        return list(accumulate(self._counts))


@dataclass(frozen=True, slots=True)
class Gauges:
    """What /metrics shows of the present. Stale while a step runs, and for ever when the engine is frozen."""

    running: int = 0
    waiting: int = 0
    kv_cache_usage_ratio: float = 0.0


@dataclass(slots=True)
class Totals:
    """Everything counted since the start. Aborted requests are counted nowhere, as in vLLM."""

    prompt_tokens: int = 0
    generation_tokens: int = 0
    cached_prompt_tokens: int = 0
    prefix_queries: int = 0
    prefix_hits: int = 0
    preemptions: int = 0
    finished: Counter[str] = field(default_factory=Counter)
    histograms: dict[str, Histogram] = field(
        default_factory=lambda: {name: Histogram(bounds) for name, (bounds, _) in HISTOGRAMS.items()}
    )


@dataclass(frozen=True, slots=True)
class EngineStatistics:
    """The engine as it is now, between the lines of /metrics. For tests and benchmarks."""

    running: int
    waiting: int
    free_blocks: int
    total_blocks: int
    held_encoder_tokens: int
    preemptions: int
    finished: int
    prompt_tokens: int
    generation_tokens: int
    published: Gauges

    @property
    def used_blocks(self) -> int:
        return self.total_blocks - self.free_blocks
