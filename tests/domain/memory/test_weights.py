"""Loaded weights: figures that vLLM printed, and the parts that make them."""

from dataclasses import replace

import pytest

from gateway.domain.memory.config_spec import spec_from_config
from gateway.domain.memory.defaults import NotPlannableError
from gateway.domain.memory.plan import Flags, ModelSpec, Moe, TextSpec, VisionSpec
from gateway.domain.memory.weights import embedding_params, loaded_weights, scheme_of, text_params, vision_params
from gateway.models.known_specs import known_specs
from tests.support.memory import GEMMA_4B, LLAMA_8B, QWEN3_8B, QWEN_3B, QWEN_7B, spec

TINY = TextSpec(layers=2, hidden=64, heads=4, kv_heads=2, head_dim=16, intermediate=128, vocab=100)


def loaded(name, flags=None, **changes):
    found = loaded_weights(spec(name), flags or Flags(max_num_batched_tokens=2048, **changes))
    return found.weights + found.rotary + found.buffers + found.rounding


@pytest.mark.parametrize(
    ("name", "changes", "printed_gib"),
    [
        (QWEN_3B, {}, 7.155),  # vLLM 0.11.0 on L4
        (QWEN_7B, {}, 15.6271),  # 0.9.0.1 on L4
        ("Qwen2.5-VL-72B-Instruct", {"tensor_parallel_size": 4}, 34.434),  # 0.8.3 on A100-40
        ("Qwen3-VL-2B-Instruct", {}, 4.24),
        (GEMMA_4B, {}, 8.58),
        ("gemma-3-27b-it", {"tensor_parallel_size": 8}, 6.74),
        (LLAMA_8B, {}, 14.9888),
        (LLAMA_8B, {"tensor_parallel_size": 4}, 3.77),
        (LLAMA_8B, {"dtype": "float32"}, 29.98),
        ("Llama-3.2-11B-Vision-Instruct", {"tensor_parallel_size": 2}, 10.0714),
        ("Idefics3-8B-Llama3", {}, 14.826),
        ("Qwen3-30B-A3B", {"tensor_parallel_size": 2}, 28.44),  # 30.53 billion parameters by two; no log of it here
    ],
)
def test_what_vllm_printed(name, changes, printed_gib):
    assert loaded(name, **changes) == pytest.approx(printed_gib, rel=0.0015)


V2_LITE = {
    "hidden_size": 2048, "num_hidden_layers": 27, "num_attention_heads": 16, "intermediate_size": 10_944,
    "vocab_size": 102_400, "tie_word_embeddings": False, "kv_lora_rank": 512, "q_lora_rank": None,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 64, "n_shared_experts": 2,
    "moe_intermediate_size": 1408, "first_k_dense_replace": 1, "moe_layer_freq": 1, "max_position_embeddings": 163_840,
}  # fmt: skip
"""Of DeepSeek-V2-Lite."""
V3 = V2_LITE | {
    "hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 128, "intermediate_size": 18_432,
    "vocab_size": 129_280, "q_lora_rank": 1536, "n_routed_experts": 256, "n_shared_experts": 1,
    "moe_intermediate_size": 2048, "first_k_dense_replace": 3,
}  # fmt: skip


def test_projections_of_latent_attention_and_dense_layers_are_counted():
    assert text_params(spec_from_config("m", V2_LITE).text) == 15_706_484_224  # 29.26 GiB
    assert text_params(spec_from_config("m", V3).text) == pytest.approx(671.03e9, rel=1e-4)  # as it is published


def test_each_rank_keeps_the_narrow_steps_of_latent_attention():
    one, two = (
        loaded_weights(spec_from_config("m", V2_LITE), Flags(tensor_parallel_size=ranks)).weights for ranks in (1, 2)
    )
    narrow = 27 * 2048 * (512 + 64) * 2 / 2**30
    assert two == pytest.approx((one + narrow) / 2)


def test_deepstack_buffers_grow_with_the_batch_and_are_whole_on_every_rank():
    # 3 levels x 4096 wide x 2 bytes = 24,576 bytes a batched token: 16.78 and 16.97 GiB were printed.
    small, large = (loaded_weights(spec(QWEN3_8B), Flags(max_num_batched_tokens=size)) for size in (8192, 16_384))
    assert small.buffers == 24_576 * 8192 / 2**30 == 0.1875
    assert large.buffers == 0.375
    split = loaded_weights(spec(QWEN3_8B), Flags(max_num_batched_tokens=8192, tensor_parallel_size=2))
    assert split.buffers == small.buffers
    assert split.rotary == small.rotary == 0.25


def test_rotary_tables_follow_the_models_context_and_not_the_served_one():
    short = loaded_weights(spec(GEMMA_4B), Flags(max_model_len=512, max_num_batched_tokens=2048))
    assert short.rotary == 0.5 + 0.0625  # 131,072 x 8 x 256 x 2 bytes, and the local layers' own


def test_a_rest_of_up_to_a_mebibyte_stays_with_a_large_tensor():
    # Qwen2.5-7B's down projection: 3584 x 18944 x 2 = 129.5 MiB, 0.5 lost; 28 layers, and gate and up 28 x 1.0.
    assert loaded_weights(spec(QWEN_7B), Flags(max_num_batched_tokens=2048)).rounding == pytest.approx(0.056, abs=0.002)
    assert loaded_weights(spec("Phi-4"), Flags(quantization="awq", max_num_batched_tokens=2048)).rounding == 0


def test_more_ranks_than_kv_heads_keep_some_heads_twice():
    two, four = (
        loaded_weights(spec(QWEN_3B), Flags(max_num_batched_tokens=2048, tensor_parallel_size=ranks)).weights
        for ranks in (2, 4)
    )
    heads = 2 * 2048 * 128 * 36 * 2 / 2**30  # keys and values of one head in all layers
    assert four == pytest.approx(two / 2 + heads / 2)


def test_a_tower_that_is_whole_on_every_rank():
    sharded, whole = (
        loaded_weights(spec(QWEN_7B), Flags(tensor_parallel_size=2, mm_encoder_tp_mode=mode)).weights
        for mode in ("weights", "data")
    )
    assert whole - sharded == pytest.approx(676_550_144 * 2 / 2 / 2**30)


@pytest.mark.parametrize(
    ("name", "scheme", "printed_gib"),
    [
        ("Qwen2-VL-7B-Instruct", "awq_marlin", 6.47),
        ("Qwen2.5-0.5B-Instruct", "awq", 0.4315),
        ("Llama-3.1-70B-Instruct", "w8a8", 67.7229),
        ("Phi-4", "bitsandbytes", 8.63),
    ],
)
def test_a_scheme_by_its_name_is_an_estimate_and_says_so(name, scheme, printed_gib):
    found = loaded_weights(spec(name), Flags(quantization=scheme, max_num_batched_tokens=2048))
    total = found.weights + found.rotary + found.buffers
    assert total == pytest.approx(printed_gib, rel=0.02)
    assert found.margin == pytest.approx(0.04 * total)


def test_files_that_were_looked_at_win_over_counting():
    known = ModelSpec("m", "files", TINY, quantization="gguf", file_bytes=4 * 2**30)
    found = loaded_weights(known, Flags(tensor_parallel_size=2))
    assert (found.weights, found.margin) == (2.0, 0.005 * 2.0)


def test_a_scheme_that_nobody_knows_needs_files():
    with pytest.raises(NotPlannableError, match="quantised by gguf cannot be told from its name: give the folder"):
        loaded_weights(ModelSpec("m", "table", TINY), Flags(quantization="gguf"))


def test_the_flag_says_the_scheme_before_the_checkpoint_does():
    quantised = ModelSpec("m", "files", TINY, quantization="compressed-tensors")
    assert scheme_of(quantised, Flags()) == "compressed-tensors"
    assert scheme_of(quantised, Flags(quantization="gptq_marlin")) == "gptq"


# OPT has another kind of layer.
@pytest.mark.parametrize(
    "name", [name for name, each in known_specs().items() if each.text.params and name != "opt-125m"]
)
def test_counting_gives_what_the_table_has(name):
    text = known_specs()[name].text
    assert text_params(replace(text, params=None)) == text.params


def test_experts_beside_dense_layers():
    moe = Moe(experts=4, top_k=2, intermediate=32, shared_intermediate=16, every=2)
    dense = text_params(TINY)
    mixed = text_params(TextSpec(2, 64, 4, 2, 16, 128, 100, moe=moe))
    assert mixed - dense == (4 * 3 * 64 * 32 + 64 * 4 + 3 * 64 * 16) - 3 * 64 * 128


def test_a_tied_output_layer_is_the_embedding():
    assert embedding_params(TINY) == 2 * 128 * 64  # 100 rows are padded to 128
    assert embedding_params(TextSpec(2, 64, 4, 2, 16, 128, 100, is_tied=True)) == 128 * 64


def test_a_tower_that_nobody_counted_is_estimated_to_a_few_hundredths():
    known = spec(QWEN_7B)
    tower = known.vision
    bare = VisionSpec(
        tower.kind, tower.depth, tower.hidden, tower.heads, tower.intermediate, tower.patch, merge=2, is_gated=True
    )
    assert vision_params(bare, known.text) == pytest.approx(tower.params, rel=0.03)
    found = loaded_weights(ModelSpec("m", "config.json", known.text, bare), Flags(max_num_batched_tokens=2048))
    assert found.margin == pytest.approx(0.02 * (found.weights + found.rotary))
