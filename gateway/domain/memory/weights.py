"""What vLLM logs as "Model loading took ...": weights, rotary tables, multimodal buffers and the allocator's rounding.

Weights alone miss the logged figure by up to a tenth; with the other three the median is below a thousandth.
"""

from collections.abc import Iterator
from typing import NamedTuple

from gateway.domain.memory.defaults import NotPlannableError
from gateway.domain.memory.dtypes import model_bytes
from gateway.domain.memory.plan import GIB, Flags, Latent, ModelSpec, TextSpec, VisionSpec
from gateway.domain.quantities import ceil_div

_MIB = 1 << 20
_VOCABULARY_STEP = 64

_QUANTISED_BYTES = {
    "awq": 0.52,  # four bits, and a scale and a zero point for each 128
    "gptq": 0.52,
    "bitsandbytes": 0.54,  # four bits, and a scale for each 64
    "fp8": 1.0,
    "w8a8": 1.0,
    "int8": 1.0,
}
"""Bytes of a weight in a linear layer, by scheme. Embeddings and output layer keep 16 bits, and vision towers too but
for bitsandbytes."""

_EXACT_MARGIN, _FILES_MARGIN, _SCHEME_MARGIN, _TOWER_MARGIN = 0.003, 0.005, 0.04, 0.02
"""Shares of the whole: counted parameters, files that were looked at, a scheme by its name, a tower not counted."""


class Loaded(NamedTuple):
    """In GiB on one rank."""

    weights: float
    rotary: float
    buffers: float
    rounding: float
    margin: float


def loaded_weights(model: ModelSpec, flags: Flags) -> Loaded:
    """Raises NotPlannableError for a quantised checkpoint whose size is not known."""
    scheme = scheme_of(model, flags)
    number_bytes = model_bytes(flags)
    if model.file_bytes is not None:
        weight_bytes, margin = model.file_bytes / flags.tensor_parallel_size, _FILES_MARGIN
    elif scheme is None:
        weight_bytes, margin = _plain_bytes(model, flags, number_bytes)
    else:
        weight_bytes, margin = _scheme_bytes(model, flags, scheme, number_bytes), _SCHEME_MARGIN
    rotary = sum(table.positions * table.dims for table in model.text.rope) * number_bytes / GIB
    buffers = _deepstack_bytes(model, flags, number_bytes) / GIB
    rounding = 0.0 if scheme else _rounding_bytes(model, flags, number_bytes) / GIB
    weights = weight_bytes / GIB
    return Loaded(weights, rotary, buffers, rounding, margin * (weights + rotary + buffers))


def scheme_of(model: ModelSpec, flags: Flags) -> str | None:
    """How the weights are quantised, by one of the names above or by another; None: not at all."""
    named = flags.quantization or model.quantization
    if named is None:
        return None
    return next((known for known in _QUANTISED_BYTES if known in named.lower().replace("-", "")), named)


def embedding_params(text: TextSpec) -> int:
    """Of the input embedding, and of the output layer where it is another."""
    return _padded(text.vocab) * text.hidden * (1 if text.is_tied else 2)


def text_params(text: TextSpec) -> int:
    """Counted where the spec does not say."""
    if text.params is not None:
        return text.params
    attention = _plain_attention(text) if text.latent is None else _latent_attention(text, text.latent)
    norms = 2 * text.hidden
    return text.layers * (attention + norms) + _mlp_params(text) + text.hidden + embedding_params(text)


def _plain_attention(text: TextSpec) -> int:
    query, key_value = text.heads * text.head_dim, text.kv_heads * text.head_dim
    attention = text.hidden * (2 * query + 2 * key_value)
    if text.has_qkv_bias:
        attention += query + 2 * key_value
    if text.has_qk_norm:
        attention += 2 * text.head_dim
    return attention


def _latent_attention(text: TextSpec, latent: Latent) -> int:
    narrow = _latent_down(text, latent) + latent.query_rank + latent.cached_rank
    return narrow + sum(_latent_up(text, latent))


def _latent_down(text: TextSpec, latent: Latent) -> int:
    """Into the narrow steps, which every rank keeps whole."""
    return text.hidden * (latent.query_rank + latent.cached_rank + latent.rope_dims)


def _latent_up(text: TextSpec, latent: Latent) -> tuple[int, int, int]:
    """To each head's query, to its key and value, and out of the heads."""
    query = (latent.query_rank or text.hidden) * text.heads * (latent.plain_dims + latent.rope_dims)
    key_value = latent.cached_rank * text.heads * (latent.plain_dims + latent.value_dims)
    return query, key_value, text.heads * latent.value_dims * text.hidden


def vision_params(vision: VisionSpec, text: TextSpec) -> int:
    """An estimate where the spec does not say: the layers, the patches' embedding and a projector."""
    if vision.params is not None:
        return vision.params
    matrices = 3 if vision.is_gated else 2
    layer = 4 * vision.hidden**2 + matrices * vision.hidden * vision.intermediate + 9 * vision.hidden
    projected = vision.hidden * vision.unit_patches
    return vision.depth * layer + 3 * vision.patch**2 * vision.hidden + projected * (projected + text.hidden)


def _mlp_params(text: TextSpec) -> int:
    dense = 3 * text.hidden * text.intermediate
    moe = text.moe
    if moe is None:
        return text.layers * dense
    with_experts = moe.layers_of(text.layers)
    experts = moe.experts * 3 * text.hidden * moe.intermediate + text.hidden * moe.experts
    shared = 3 * text.hidden * moe.shared_intermediate
    return with_experts * (experts + shared) + (text.layers - with_experts) * dense


def _plain_bytes(model: ModelSpec, flags: Flags, number_bytes: int) -> tuple[float, float]:
    params = text_params(model.text) / flags.tensor_parallel_size + _replicated_params(model.text, flags)
    margin = _EXACT_MARGIN
    if model.vision is not None:
        params += _vision_params_of_rank(model.vision, model.text, flags)
        margin = _EXACT_MARGIN if model.vision.params is not None else _TOWER_MARGIN
    return params * number_bytes, margin


def _vision_params_of_rank(vision: VisionSpec, text: TextSpec, flags: Flags) -> float:
    params = vision_params(vision, text)
    if flags.mm_encoder_tp_mode == "data":
        return params
    return vision.replicated_params + (params - vision.replicated_params) / flags.tensor_parallel_size


def _replicated_params(text: TextSpec, flags: Flags) -> float:
    """More ranks than KV heads: each keeps a whole head, so some are there twice. Of latent attention, its narrow
    steps.
    """
    ranks = flags.tensor_parallel_size
    if text.latent is not None:
        narrow = text.layers * _latent_down(text, text.latent)
        return narrow - narrow / ranks
    if text.latent_dims is not None or ranks <= text.kv_heads:
        return 0.0
    head = 2 * text.hidden * text.head_dim * text.layers
    return head - head * text.kv_heads / ranks


def _scheme_bytes(model: ModelSpec, flags: Flags, scheme: str, number_bytes: int) -> float:
    quantised_bytes = _QUANTISED_BYTES.get(scheme)
    if quantised_bytes is None:
        raise NotPlannableError(
            f"the size of a checkpoint quantised by {scheme} cannot be told from its name: give the folder with its "
            "safetensors files as --model"
        )
    text, vision = model.text, model.vision
    embeddings = embedding_params(text)
    total = (text_params(text) - embeddings) * quantised_bytes + embeddings * number_bytes
    if vision is not None:
        total += vision_params(vision, text) * (quantised_bytes if scheme == "bitsandbytes" else number_bytes)
    return total / flags.tensor_parallel_size


def _deepstack_bytes(model: ModelSpec, flags: Flags, number_bytes: int) -> int:
    """Qwen3-VL keeps what its tower feeds into deeper layers for a whole batch, on every rank."""
    levels = model.vision.deepstack_levels if model.vision else 0
    return levels * (flags.max_num_batched_tokens or 0) * model.text.hidden * number_bytes


def _rounding_bytes(model: ModelSpec, flags: Flags, number_bytes: int) -> int:
    """Torch takes a tensor of 10 MiB or more from a segment of whole 2 MiB, and a rest of up to 1 MiB stays with it."""
    lost = 0
    for params, count in _tensors(model, flags):
        size = params * number_bytes
        rest = -size % (2 * _MIB)
        if size >= 10 * _MIB and rest <= _MIB:
            lost += rest * count
    return lost


def _tensors(model: ModelSpec, flags: Flags) -> Iterator[tuple[int, int]]:
    """Parameters of each large tensor on a rank as vLLM fuses them, and how many there are."""
    text, ranks = model.text, flags.tensor_parallel_size
    yield _padded(text.vocab) * text.hidden // ranks, 1 if text.is_tied else 2
    yield from _attention_tensors(text, ranks)
    with_experts = 0
    if text.moe is not None:
        with_experts = text.moe.layers_of(text.layers)
        yield from _mlp_tensors(text.moe.experts * text.hidden, text.moe.intermediate, 2, with_experts, ranks)
    yield from _mlp_tensors(text.hidden, text.intermediate, 2, text.layers - with_experts, ranks)
    if model.vision is not None:
        yield from _tower_tensors(model.vision, 1 if flags.mm_encoder_tp_mode == "data" else ranks)


def _attention_tensors(text: TextSpec, ranks: int) -> Iterator[tuple[int, int]]:
    if text.latent is not None:
        yield from ((params // ranks, text.layers) for params in _latent_up(text, text.latent))
        return
    query = text.heads * text.head_dim // ranks
    key_value = max(1, text.kv_heads // ranks) * text.head_dim
    yield text.hidden * (query + 2 * key_value), text.layers
    yield text.hidden * query, text.layers


def _tower_tensors(vision: VisionSpec, ranks: int) -> Iterator[tuple[int, int]]:
    yield 3 * vision.hidden**2 // ranks, vision.depth
    yield vision.hidden**2 // ranks, vision.depth
    yield from _mlp_tensors(vision.hidden, vision.intermediate, 2 if vision.is_gated else 1, vision.depth, ranks)


def _mlp_tensors(width: int, intermediate: int, fused: int, layers: int, ranks: int) -> Iterator[tuple[int, int]]:
    """Into the inner layer, of which `fused` are one tensor, and out of it."""
    yield fused * width * intermediate // ranks, layers
    yield width * intermediate // ranks, layers


def _padded(vocabulary: int) -> int:
    return ceil_div(vocabulary, _VOCABULARY_STEP) * _VOCABULARY_STEP
