"""Asks vLLM's own functions, without starting an engine, how they group layers and what one long request needs.

Runs under vLLM's interpreter. Reads a list of models as JSON from standard input, each with its layers (`kind`, `span`,
`kv_heads`, `head_size`), `block`, `batched` and `context` tokens; writes for each `groups` (`kind`, `layers`, `block`),
`block_bytes` and `longest_blocks`.
"""

import json
import sys
from types import SimpleNamespace

import torch
from vllm.v1.core import kv_cache_utils
from vllm.v1.core.single_type_kv_cache_manager import register_all_kvcache_specs
from vllm.v1.kv_cache_interface import ChunkedLocalAttentionSpec, FullAttentionSpec, SlidingWindowSpec
from vllm.v1.kv_cache_layout import KVCacheLayout


def describe(model):
    config = engine_config(model)
    specs = {f"layer.{place}": spec_of(layer, model) for place, layer in enumerate(model["layers"])}
    groups = kv_cache_utils.get_kv_cache_groups(config, specs)
    return {
        "groups": [
            {
                "kind": type(layer_spec(group)).__name__,
                "layers": len(group.layer_names),
                "block": layer_spec(group).block_size,
            }
            for group in groups
        ],
        "block_bytes": kv_cache_utils._pool_bytes_per_block(config, groups),
        "longest_blocks": sum(
            -(-group.kv_cache_spec.max_memory_usage_bytes(config) // group.kv_cache_spec.page_size_bytes)
            for group in groups
        ),
    }


def layer_spec(group):
    spec = group.kv_cache_spec
    return getattr(spec, "first_spec", spec)


def spec_of(layer, model):
    common = {
        "block_size": model["block"],
        "num_kv_heads": layer["kv_heads"],
        "head_size": layer["head_size"],
        "dtype": torch.bfloat16,
    }
    if layer["kind"] == "sliding_attention":
        return SlidingWindowSpec(sliding_window=layer["span"], **common)
    if layer["kind"] == "chunked_attention":
        return ChunkedLocalAttentionSpec(attention_chunk_size=layer["span"], **common)
    return FullAttentionSpec(**common)


def engine_config(model):
    """What these functions ask of an engine's configuration."""
    return SimpleNamespace(
        scheduler_config=SimpleNamespace(disable_hybrid_kv_cache_manager=model["without_windows"]),
        cache_config=SimpleNamespace(get_resolved_kv_cache_layout=lambda: KVCacheLayout.LBHNC),
        attention_config=SimpleNamespace(hisparse_config=None),
        model_config=SimpleNamespace(max_model_len=model["context"]),
        parallel_config=SimpleNamespace(decode_context_parallel_size=1),
        max_in_flight_tokens=model["batched"],
        speculative_config=None,
    )


if __name__ == "__main__":
    register_all_kvcache_specs(SimpleNamespace())
    json.dump([describe(model) for model in json.load(sys.stdin)], sys.stdout)
