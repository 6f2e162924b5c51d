"""Numbers of a config.json that are none, told by their key before anything is computed with them."""

import math
from collections.abc import Mapping
from typing import Any

from gateway.domain.memory.defaults import NotPlannableError

_WHOLE = (
    "attention_chunk_size", "decoder_sparse_step", "depth", "embed_dim", "first_k_dense_replace", "head_dim",
    "hidden_size", "intermediate_size", "kv_lora_rank", "layers", "max_position_embeddings", "mm_tokens_per_image",
    "moe_intermediate_size", "n_routed_experts", "n_shared_experts", "num_attention_heads", "num_experts",
    "num_experts_per_tok", "num_heads", "num_hidden_layers", "num_key_value_heads", "num_local_experts",
    "original_max_position_embeddings", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim",
    "shared_expert_intermediate_size", "sliding_window", "sliding_window_pattern", "spatial_merge_size",
    "temporal_patch_size", "v_head_dim", "vocab_size", "width",
)  # fmt: skip
_REAL = (
    "downsample_ratio", "factor", "mlp_ratio", "partial_rotary_factor", "pixel_shuffle_ratio", "scale_factor"
)  # fmt: skip


def refuse_odd_numbers(*parts: Mapping[str, Any]) -> None:
    """Raises NotPlannableError. Where a key has nothing, or 0, a default takes its place, or it is asked for."""
    for part in parts:
        for key in _WHOLE:
            value = part.get(key)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
                raise NotPlannableError(f"config.json: {key} must be a whole number above 0, not {value!r}")
        for key in _REAL:
            value = part.get(key)
            if value is not None and not _is_real(value):
                raise NotPlannableError(f"config.json: {key} must be a number above 0, not {value!r}")


def _is_real(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf
