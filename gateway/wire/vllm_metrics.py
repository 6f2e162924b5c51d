"""vLLM's `/metrics`, cut down to what admission reads every second.

Only the lines of the wanted names go through the parser; the rest, some hundred histogram buckets, is skipped.
Several engines (data parallel) are added up; their KV usage is the mean weighted by their blocks, which is the share
of the whole pool. Names of releases before 0.10 are read too.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

_RUNNING = ("vllm:num_requests_running",)
_WAITING = ("vllm:num_requests_waiting",)
_KV_USAGE = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
_PREEMPTIONS = ("vllm:num_preemptions_total", "vllm:num_preemptions")
_CONFIG = ("vllm:cache_config_info",)
_GENERATED = ("vllm:generation_tokens_total", "vllm:generation_tokens")
_STEPS = ("vllm:iteration_tokens_total_count",)
_STARTED = ("process_start_time_seconds",)
_REJECTIONS = ("vllm:admission_rejections_total",)
_WANTED = frozenset(
    _RUNNING + _WAITING + _KV_USAGE + _PREEMPTIONS + _CONFIG + _GENERATED + _STEPS + _STARTED + _REJECTIONS
)
# Beyond what any number of engines needs: the parser takes 10 us a line.
_MOST_LINES = 4096
_LONGEST_LINE = 16_384
_HIGHEST_COUNT = 2**53


@dataclass(frozen=True, slots=True)
class EngineReport:
    """All engines of one server together; None where a name is missing, or its value is no count that could be meant:
    infinite, negative, beyond 2**53.

    `running` and `waiting` requests, `kv_usage` from 0 to 1, `preemptions` since the start, `num_gpu_blocks` summed,
    `smallest_engine_blocks` those of the engine that has the fewest, `block_size` in tokens, `engines` that reported.
    `longest_request_blocks` is what the server takes one request of its whole context to need, over all KV groups.
    A server without a KV cache (pooling models) has no blocks. `generated_tokens` and `steps` of the engine are since
    the start, which was at `started_at` (seconds since 1970; vLLM with several API processes does not tell it).
    `rejections` at the limit of requests that the server itself has, if it has one.
    """

    running: int | None = None
    waiting: int | None = None
    kv_usage: float | None = None
    preemptions: int | None = None
    num_gpu_blocks: int | None = None
    smallest_engine_blocks: int | None = None
    block_size: int | None = None
    longest_request_blocks: int | None = None
    enable_prefix_caching: bool | None = None
    engines: int = 0
    generated_tokens: int | None = None
    steps: int | None = None
    started_at: int | None = None
    rejections: int | None = None


def parse_metrics(text: str) -> EngineReport:
    """Read an answer of `/metrics`. ValueError where a wanted line cannot be read, or there are too many of them."""
    samples = _wanted_samples(text)
    configs = _by_engine(samples, _CONFIG)
    labels = [sample.labels for sample in configs.values()]
    blocks = {engine: _blocks(sample.labels.get("num_gpu_blocks")) for engine, sample in configs.items()}
    known_blocks = [count for count in blocks.values() if count is not None]
    return EngineReport(
        running=_sum(samples, _RUNNING),
        waiting=_sum(samples, _WAITING),
        kv_usage=_mean_usage(_by_engine(samples, _KV_USAGE), blocks),
        preemptions=_sum(samples, _PREEMPTIONS),
        num_gpu_blocks=_total(known_blocks),
        smallest_engine_blocks=min(known_blocks, default=None),
        block_size=_number(labels[0].get("block_size")) if labels else None,
        longest_request_blocks=max(filter(None, map(_longest_request_blocks, labels)), default=None),
        enable_prefix_caching=_flag(labels[0].get("enable_prefix_caching")) if labels else None,
        engines=len(_by_engine(samples, _RUNNING)),
        generated_tokens=_sum(samples, _GENERATED),
        steps=_sum(samples, _STEPS),
        started_at=_sum(samples, _STARTED),
        rejections=_sum(
            [sample for sample in samples if sample.labels.get("reason") == "max_num_queued_reqs"], _REJECTIONS
        ),
    )


def _wanted_samples(text: str) -> list[Sample]:
    # Label values may hold the other characters at which `splitlines` cuts.
    lines = [line for line in text.split("\n") if line.partition("{")[0].partition(" ")[0] in _WANTED]
    if len(lines) > _MOST_LINES or max(map(len, lines), default=0) > _LONGEST_LINE:
        raise ValueError("there are more or longer lines than engines could have")
    families = text_string_to_metric_families("\n".join(lines) + "\n")
    return [sample for family in families for sample in family.samples]


def _by_engine(samples: Iterable[Sample], names: tuple[str, ...]) -> dict[str, Sample]:
    return {sample.labels.get("engine", "0"): sample for sample in samples if sample.name in names}


def _sum(samples: Iterable[Sample], names: tuple[str, ...]) -> int | None:
    return _total(_count(sample.value) for sample in _by_engine(samples, names).values())


def _count(value: float) -> int | None:
    return int(value) if 0 <= value <= _HIGHEST_COUNT else None


def _total(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _mean_usage(usages: dict[str, Sample], blocks: dict[str, int | None]) -> float | None:
    known = {engine: min(usage.value, 1.0) for engine, usage in usages.items() if usage.value >= 0}
    if not known:
        return None
    weights = {engine: blocks.get(engine) or 0 for engine in known}
    if not all(weights.values()):
        weights = dict.fromkeys(known, 1)
    return sum(known[engine] * weight for engine, weight in weights.items()) / sum(weights.values())


def _number(label: str | None) -> int | None:
    """A whole number; unknown settings come as the string "None"."""
    return _count(float(label)) if label is not None and label.isdecimal() else None


def _blocks(label: str | None) -> int | None:
    """Without a KV cache vLLM reports its one null block (v1/core/kv_cache_utils.py): that is no pool."""
    count = _number(label)
    return None if count == 1 else count


def _longest_request_blocks(labels: Mapping[str, str]) -> int | None:
    """By these vLLM divides its blocks (v1/core/kv_cache_utils.py `get_max_concurrency_for_kv_cache_config`)."""
    blocks, concurrency = _blocks(labels.get("num_gpu_blocks")), _ratio(labels.get("kv_cache_max_concurrency"))
    longest = blocks / concurrency if blocks and concurrency else 0.0
    return round(longest) or None if longest <= _HIGHEST_COUNT else None


def _ratio(label: str | None) -> float | None:
    """A number above 0; "None" where the server has not worked it out."""
    try:
        value = float(label or "")
    except ValueError:
        return None
    return value if 0 < value <= _HIGHEST_COUNT else None


def _flag(label: str | None) -> bool | None:
    return {"True": True, "False": False}.get(label or "")
