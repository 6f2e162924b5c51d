"""A running server as a start: what it tells of itself, without its log."""

from collections.abc import Mapping
from math import isfinite

from gateway.domain.doctor.fields import value_of
from gateway.domain.doctor.measured import Stage, Start, Term
from gateway.domain.doctor.reader import Log

_LABELS: Mapping[str, Term] = {
    "gpu_memory_utilization": Term.UTILISATION,
    "num_gpu_blocks": Term.KV_BLOCKS,
    "kv_cache_size_tokens": Term.KV_TOKENS,
    "kv_cache_max_concurrency": Term.CONCURRENCY,
}
_GIVEN: Mapping[str, str] = {
    "cache_dtype": "kv_cache_dtype",
    "kv_cache_memory_bytes": "kv_cache_memory_bytes",
    "num_gpu_blocks_override": "num_gpu_blocks_override",
    "gpu_memory_utilization": "gpu_memory_utilization",
}
"""Labels under which the engine tells what its flags were set to."""


def log_of_server(labels: Mapping[str, str], version: str | None, model: str | None, max_model_len: int | None) -> Log:
    """`labels` are those of `vllm:cache_config_info`: all of them text, "None" for what is not set."""
    start = Start(1, version=version, model=model, stage=Stage.SERVING, marks={"server"})
    for label, term in _LABELS.items():
        _read(start, term, value_of(labels.get(label, "None")))
    block = value_of(labels.get("effective_attention_block_size", "None")) or value_of(labels.get("block_size", "None"))
    _read(start, Term.BLOCK_TOKENS, block)
    for term in (Term.CONTEXT, Term.CONCURRENCY_CONTEXT):
        _read(start, term, max_model_len)
    for label, flag in _GIVEN.items():
        value = value_of(labels.get(label, "None"))
        if value is not None:
            start.flags[flag] = value
    return Log(start, lines=len(labels), vllm_lines=len(labels))


def _read(start: Start, term: Term, value: object) -> None:
    """In a server without a KV cache, labels are "None"."""
    if isinstance(value, int | float) and isfinite(value) and value > 0:
        start.read(term, float(value), 0)
