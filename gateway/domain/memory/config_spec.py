"""A model's spec from its config.json: the numbers that memory depends on, by the names that model families use."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from gateway.domain.memory.config_numbers import refuse_odd_numbers
from gateway.domain.memory.defaults import NotPlannableError
from gateway.domain.memory.plan import Latent, ModelSpec, Moe, RopeTable, Sliding, TextSpec, VisionSpec
from gateway.domain.vision.registry import family_of_config
from gateway.domain.vision.sources import Source

_NESTED_TEXT = ("text_config", "llm_config", "language_config")
_STATEFUL = ("linear_attention", "mamba", "recurrent", "conv")
_MROPE_FACTOR = 4
"""vLLM's tables for multimodal positions are four times as long as the context."""
_POOLING = ("ForSequenceClassification", "EmbeddingModel", "ForRewardModel")


def spec_from_config(
    name: str,
    config: Mapping[str, Any],
    processor: tuple[Source, ...] = (),
    *,
    source: str = "config.json",
    file_bytes: int | None = None,
) -> ModelSpec:
    """Raises NotPlannableError, which names the key that is missing."""
    key = next((key for key in _NESTED_TEXT if isinstance(config.get(key), Mapping)), None)
    text = config[key] if key else config
    vision = config.get("vision_config")
    refuse_odd_numbers(text, config, vision if isinstance(vision, Mapping) else {}, _rope(text))
    quantised = config.get("quantization_config") or text.get("quantization_config")
    architectures = [str(each) for each in config.get("architectures") or ()]
    return ModelSpec(
        name=name,
        source=source,
        text=_text(text, config),
        vision=_vision(vision, config) if isinstance(vision, Mapping) else None,
        quantization=str(quantised.get("quant_method", "unknown")) if isinstance(quantised, Mapping) else None,
        file_bytes=file_bytes,
        unsupported=_out_of_scope(text, config),
        is_pooling=any(each.endswith(_POOLING) for each in architectures),
        family=family_of_config(config) if isinstance(vision, Mapping) else None,
        processor=processor,
    )


def _text(text: Mapping[str, Any], config: Mapping[str, Any]) -> TextSpec:
    heads, hidden = _whole(text, "num_attention_heads"), _whole(text, "hidden_size")
    layers = _whole(text, "num_hidden_layers")
    head_dim = text.get("head_dim") or hidden // heads
    kind = str(text.get("model_type") or config.get("model_type") or "")
    latent = text.get("kv_lora_rank")
    return TextSpec(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=text.get("num_key_value_heads") or heads,
        head_dim=head_dim,
        intermediate=text.get("intermediate_size") or 4 * hidden,
        vocab=text.get("vocab_size") or _whole(config, "vocab_size"),
        is_tied=_is_tied(text, config, kind),
        has_qkv_bias=bool(text.get("attention_bias")) or kind.startswith("qwen2"),
        has_qk_norm=kind.startswith(("qwen3", "gemma3")),
        moe=_moe(text),
        sliding=_sliding(text, layers),
        latent_dims=latent + text.get("qk_rope_head_dim", 0) if latent else None,
        latent=_latent(text) if latent else None,
        max_positions=_context(text),
        rope=tuple(_rope_tables(text, head_dim)),
    )


def _is_tied(text: Mapping[str, Any], config: Mapping[str, Any], kind: str) -> bool:
    """As the model's class assumes where no file says."""
    said = config.get("tie_word_embeddings", text.get("tie_word_embeddings"))
    return bool(said) if said is not None else kind.startswith("gemma")


def _moe(text: Mapping[str, Any]) -> Moe | None:
    experts = next((text[key] for key in ("num_experts", "n_routed_experts", "num_local_experts") if text.get(key)), 0)
    if not experts:
        return None
    width = text.get("moe_intermediate_size") or text.get("intermediate_size") or 0
    shared = (text.get("n_shared_experts") or 0) * width or text.get("shared_expert_intermediate_size") or 0
    every = text.get("decoder_sparse_step") or text.get("moe_layer_freq")
    return Moe(
        experts,
        text.get("num_experts_per_tok") or 1,
        width,
        shared,
        every if isinstance(every, int) and every else 1,
        text.get("first_k_dense_replace") or 0,
    )


def _latent(text: Mapping[str, Any]) -> Latent:
    return Latent(
        text.get("q_lora_rank") or 0,
        _whole(text, "kv_lora_rank"),
        _whole(text, "qk_nope_head_dim"),
        text.get("qk_rope_head_dim") or 0,
        _whole(text, "v_head_dim"),
    )


def _sliding(text: Mapping[str, Any], layers: int) -> Sliding | None:
    """Layers of a window or a chunk beside full ones. A window that all layers share makes no groups."""
    kinds = [str(kind) for kind in text.get("layer_types") or ()]
    chunk, window = text.get("attention_chunk_size"), text.get("sliding_window")
    if kinds:
        local = sum(kind in {"sliding_attention", "chunked_attention"} for kind in kinds)
    elif text.get("sliding_window_pattern"):
        local = layers - layers // text["sliding_window_pattern"]
    else:
        local = 0
    width = chunk if "chunked_attention" in kinds else window
    return Sliding(width, local, "chunked_attention" in kinds) if local and width else None


def _context(text: Mapping[str, Any]) -> int | None:
    """What vLLM serves where nothing else is asked for (`config/model.py`, `_get_and_verify_max_len`)."""
    positions = text.get("max_position_embeddings")
    if not isinstance(positions, int):
        return None
    rope = _rope(text)
    kind = _rope_kind(rope)
    if kind in {"dynamic", "yarn"} and rope.get("factor"):
        return int((rope.get("original_max_position_embeddings") or positions) * rope["factor"])
    return positions


def _rope(text: Mapping[str, Any]) -> Mapping[str, Any]:
    found = text.get("rope_scaling") or text.get("rope_parameters") or {}
    nested = found.get("full_attention") if isinstance(found, Mapping) else None
    rope = nested if isinstance(nested, Mapping) else found
    return rope if isinstance(rope, Mapping) else {}


def _rope_kind(rope: Mapping[str, Any]) -> str:
    return str(rope.get("rope_type") or rope.get("type"))


def _rope_tables(text: Mapping[str, Any], head_dim: int) -> Iterator[RopeTable]:
    """One for each rotary setting, sized from the configuration and not from the context that is served."""
    positions = text.get("max_position_embeddings")
    if not isinstance(positions, int):
        return
    rope = _rope(text)
    share = text.get("partial_rotary_factor") or rope.get("partial_rotary_factor") or 1.0
    dims = int((text.get("qk_rope_head_dim") or head_dim) * share)
    kind = _rope_kind(rope)
    factor = rope.get("factor") or 1
    if "mrope_section" in rope:
        yield RopeTable(positions * _MROPE_FACTOR, dims)
    elif kind == "yarn":
        yield RopeTable(int((rope.get("original_max_position_embeddings") or positions) * factor), dims)
    elif kind in {"linear", "dynamic"}:
        yield RopeTable(int(positions * factor), dims)
    else:
        yield RopeTable(positions, dims)
    if text.get("rope_local_base_freq") or "sliding_attention" in (text.get("rope_parameters") or {}):
        yield RopeTable(positions, dims)


def _vision(vision: Mapping[str, Any], config: Mapping[str, Any]) -> VisionSpec:
    depth = next((vision[key] for key in ("depth", "num_hidden_layers", "layers") if vision.get(key)), None)
    hidden = next((vision[key] for key in ("embed_dim", "hidden_size", "width") if vision.get(key)), None)
    heads = next((vision[key] for key in ("num_heads", "num_attention_heads") if vision.get(key)), None)
    if not (depth and hidden and heads):
        raise NotPlannableError(
            "config.json: vision_config lacks the layers, width or heads of the tower; plan with --language-model-only"
        )
    kind = str(config.get("model_type") or vision.get("model_type") or "")
    return VisionSpec(
        kind=_kind(kind, vision),
        depth=depth,
        hidden=hidden,
        heads=heads,
        intermediate=vision.get("intermediate_size") or int(hidden * vision.get("mlp_ratio", 4)),
        patch=_side(vision.get("patch_size")) or 14,
        merge=_merge(vision, config),
        temporal_patch=vision.get("temporal_patch_size") or 1,
        is_gated=kind.startswith(("qwen2_5", "glm4v", "pixtral", "mistral3")) or "pixtral" in str(vision),
        deepstack_levels=len(vision.get("deepstack_visual_indexes") or ()),
    )


def _kind(kind: str, vision: Mapping[str, Any]) -> str:
    """As the built-in table names towers whose videos are known."""
    if kind.startswith(("qwen3_vl", "qwen3_5")):
        return "qwen3_vl"
    return "intern_vit" if kind.startswith("internvl") else kind or str(vision.get("model_type"))


def _merge(vision: Mapping[str, Any], config: Mapping[str, Any]) -> int:
    """Side of the square of patches that becomes one token."""
    for values in (vision, config):
        if values.get("spatial_merge_size") or values.get("scale_factor"):
            return int(values.get("spatial_merge_size") or values["scale_factor"])
        ratio = values.get("downsample_ratio") or values.get("pixel_shuffle_ratio")
        if ratio:
            return round(1 / float(ratio))
    tokens = config.get("mm_tokens_per_image")
    side, patch = _side(vision.get("image_size")), _side(vision.get("patch_size"))
    return math.isqrt((side // patch) ** 2 // tokens) if tokens and side and patch else 1


def _side(value: object) -> int | None:
    if isinstance(value, list | tuple) and value:
        value = value[0]
    return value if isinstance(value, int) else None


def _out_of_scope(text: Mapping[str, Any], config: Mapping[str, Any]) -> str | None:
    kinds = " ".join(str(kind) for kind in text.get("layer_types") or ())
    if any(word in kinds for word in _STATEFUL) or any(key.startswith(("linear_", "mamba_", "ssm_")) for key in text):
        return "it keeps states of linear attention beside KV pages, which are not planned"
    if config.get("is_encoder_decoder") or config.get("model_type") == "mllama":
        return "it attends across to an encoder, which is not planned"
    return None


def _whole(values: Mapping[str, Any], key: str) -> int:
    value = values.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise NotPlannableError(f"config.json: {key} must be a whole number above 0, not {value!r}")
    return value
