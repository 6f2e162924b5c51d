"""GET /metrics in Prometheus' text format: names, types and labels of vLLM 0.32."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gateway.emulator.config import EmulatorConfig
from gateway.emulator.kv_groups import blocks_of_longest
from gateway.emulator.server_state import ServerState
from gateway.emulator.statistics import HISTOGRAMS, Histogram

Labels = Mapping[str, str]


@dataclass(slots=True)
class _Writer:
    """Collects lines. Counters and histograms also get a `_created` series each, as prometheus_client writes."""

    started_at: float
    common: Labels
    lines: list[str] = field(default_factory=list)

    def gauge(self, name: str, text: str, values: Iterable[tuple[Labels, float]]) -> None:
        self._head(name, "gauge", text)
        for labels, value in values:
            self._sample(name, {**self.common, **labels}, value)

    def info(self, name: str, text: str, labels: Labels) -> None:
        """A gauge of 1 whose labels are the message; it has not the common ones."""
        self._head(name, "gauge", text)
        self._sample(name, labels, 1)

    def counter(self, name: str, text: str, values: Iterable[tuple[Labels, float]], *, bare: bool = False) -> None:
        """`bare`: the series has not the common labels."""
        common = {} if bare else self.common
        samples = [({**common, **labels}, value) for labels, value in values]
        self._head(f"{name}_total", "counter", text)
        for labels, value in samples:
            self._sample(f"{name}_total", labels, value)
        self._created(name, text, [labels for labels, _ in samples])

    def histogram(self, name: str, text: str, histogram: Histogram) -> None:
        self._head(name, "histogram", text)
        bounds = [*(str(float(bound)) for bound in histogram.bounds), "+Inf"]
        for bound, count in zip(bounds, histogram.cumulative(), strict=True):
            self._sample(f"{name}_bucket", {**self.common, "le": bound}, count)
        self._sample(f"{name}_count", self.common, histogram.count)
        self._sample(f"{name}_sum", self.common, histogram.total)
        self._created(name, text, [self.common])

    def _created(self, name: str, text: str, labels_of_series: Iterable[Labels]) -> None:
        self._head(f"{name}_created", "gauge", text)
        for labels in labels_of_series:
            self._sample(f"{name}_created", labels, self.started_at)

    def _head(self, name: str, kind: str, text: str) -> None:
        self.lines += (f"# HELP {name} {text}", f"# TYPE {name} {kind}")

    def _sample(self, name: str, labels: Labels, value: float) -> None:
        inner = ",".join(f'{key}="{_escaped(labels[key])}"' for key in sorted(labels))
        self.lines.append(f"{name}{{{inner}}} {float(value)}")


def render(state: ServerState) -> bytes:
    """The whole page. The engine's gauges are those of its last finished step."""
    model = state.config.model
    writer = _Writer(state.started_at, {"model_name": model, "engine": "0"})
    _gauges(writer, state)
    _cache_counters(writer, state)
    _token_counters(writer, state)
    rejections = [
        ({"model_name": model, "reason": reason}, state.rejections[reason])
        for reason in ("max_num_queued_reqs", "max_num_queued_tokens")
    ]
    text = "Number of admission attempts rejected by a queue limit, by reason."
    writer.counter("vllm:admission_rejections", text, rejections, bare=True)
    for name, (_, text) in HISTOGRAMS.items():
        writer.histogram(f"vllm:{name}", text, state.engine.totals.histograms[name])
    writer.info("vllm:cache_config_info", "Information of the LLMEngine CacheConfig", _cache(state.config))
    writer.lines.append("# TYPE process_start_time_seconds gauge")
    writer.lines.append(f"process_start_time_seconds {state.started_at}")
    requests = [
        ({"handler": handler, "method": method, "status": status}, count)
        for (handler, method, status), count in state.http_requests.items()
    ]
    writer.counter("http_requests", "Total number of requests by method, status and handler.", requests, bare=True)
    return ("\n".join(writer.lines) + "\n").encode()


def _gauges(writer: _Writer, state: ServerState) -> None:
    gauges = state.engine.gauges
    writer.gauge("vllm:num_requests_running", "Number of requests in model execution batches.", [({}, gauges.running)])
    writer.gauge("vllm:num_requests_waiting", "Number of requests waiting to be processed.", [({}, gauges.waiting)])
    by_reason = [({"reason": "capacity"}, gauges.waiting), ({"reason": "deferred"}, 0)]
    writer.gauge("vllm:num_requests_waiting_by_reason", "Number of waiting requests by reason.", by_reason)
    sleep = [({"sleep_state": name}, name == "awake") for name in ("awake", "weights_offloaded", "discard_all")]
    writer.gauge("vllm:engine_sleep_state", "Engine sleep state; awake = 0 means engine is sleeping.", sleep)
    text = "KV-cache usage. 1 means 100 percent usage."
    writer.gauge("vllm:kv_cache_usage_perc", text, [({}, gauges.kv_cache_usage_ratio)])


def _cache_counters(writer: _Writer, state: ServerState) -> None:
    totals, pictures = state.engine.totals, state.preprocessor.cache
    for name, text, value in (
        ("prefix_cache_queries", "Prefix cache queries, in terms of number of queried tokens.", totals.prefix_queries),
        ("prefix_cache_hits", "Prefix cache hits, in terms of number of cached tokens.", totals.prefix_hits),
        ("external_prefix_cache_queries", "External prefix cache queries from KV connector.", 0),
        ("external_prefix_cache_hits", "External prefix cache hits from KV connector.", 0),
        ("mm_cache_queries", "Multi-modal cache queries, in terms of number of queried items.", pictures.queries),
        ("mm_cache_hits", "Multi-modal cache hits, in terms of number of cached items.", pictures.hits),
        ("num_preemptions", "Cumulative number of preemption from the engine.", totals.preemptions),
        ("estimated_flops_per_gpu", "Estimated number of floating point operations per GPU.", 0),
        ("estimated_read_bytes_per_gpu", "Estimated number of bytes read from memory per GPU.", 0),
        ("estimated_write_bytes_per_gpu", "Estimated number of bytes written to memory per GPU.", 0),
    ):
        writer.counter(f"vllm:{name}", text, [({}, value)])


def _token_counters(writer: _Writer, state: ServerState) -> None:
    totals = state.engine.totals
    cached = totals.cached_prompt_tokens
    sources = {"local_compute": totals.prompt_tokens - cached, "local_cache_hit": cached, "external_kv_transfer": 0}
    tiers = {"device": cached, "host": 0, "p2p": 0, "disk": 0, "external_unspecified": 0}
    reasons = {reason: totals.finished[reason] for reason in ("stop", "length", "abort", "error", "repetition")}
    writer.counter("vllm:prompt_tokens", "Number of prefill tokens processed.", [({}, totals.prompt_tokens)])
    for name, label, text, values in (
        ("prompt_tokens_by_source", "source", "Number of prompt tokens by source.", sources),
        ("prompt_tokens_cached_by_source", "source", "Prefix-cache hit tokens by the cache tier.", tiers),
        ("request_success", "finished_reason", "Count of successfully processed requests.", reasons),
    ):
        writer.counter(f"vllm:{name}", text, [({label: key}, value) for key, value in values.items()])
    writer.counter("vllm:prompt_tokens_cached", "Number of cached prompt tokens (local + external).", [({}, cached)])
    text = "Number of generation tokens processed."
    writer.counter("vllm:generation_tokens", text, [({}, totals.generation_tokens)])


def _cache(config: EmulatorConfig) -> Labels:
    """The cache configuration as labels, all strings."""
    concurrency = config.num_gpu_blocks / blocks_of_longest(config)
    return {
        "_block_size_resolved": "True",
        "block_size": str(config.block_size),
        "cache_dtype": "auto",
        "cache_hit_alignment_tokens": "None",
        "effective_attention_block_size": str(config.block_size),
        "enable_mamba_shared_prefix_checkpoint": "False",
        "enable_prefix_caching": str(config.enable_prefix_caching),
        "engine": "0",
        "gpu_memory_utilization": "0.92",
        "hash_block_size": "None",
        "is_attention_free": "False",
        "kv_cache_dtype_skip_layers": "[]",
        "kv_cache_layout": "None",
        "kv_cache_max_concurrency": str(concurrency),
        "kv_cache_memory_bytes": "None",
        "kv_cache_size_tokens": str(int(concurrency * config.max_model_len)),
        "kv_offloading_backend": "native",
        "kv_offloading_size": "None",
        "kv_sharing_fast_prefill": "False",
        "mamba_block_size": "None",
        "mamba_cache_dtype": "auto",
        "mamba_cache_mode": "none",
        "mamba_page_size_padded": "None",
        "mamba_ssm_cache_dtype": "float32",
        "num_cpu_blocks": "None",
        "num_gpu_blocks": str(config.num_gpu_blocks),
        "num_gpu_blocks_override": "None",
        "prefix_cache_retention_interval": "0",
        "prefix_caching_hash_algo": "sha256",
        "prefix_match_unit": "None",
        "replayssm_buffer_len": "16",
        "skip_page_size_padded": "None",
        "sliding_window": "None",
        "swa_bounded_replay": "True",
        "use_kda_recoverssm": "False",
        "use_replayssm": "False",
        "user_specified_block_size": "False",
    }


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
