"""config.json of several series, cut down to what is read, to the numbers of the built-in table."""

import re
from dataclasses import replace

import pytest

from gateway.domain.memory.config_spec import spec_from_config
from gateway.domain.memory.defaults import NotPlannableError
from gateway.domain.memory.plan import Latent, Moe, RopeTable, Sliding
from tests.support.memory import GEMMA_4B, LLAMA_8B, QWEN3_8B, QWEN_3B, spec

QWEN25 = {
    "architectures": ["Qwen2_5_VLForConditionalGeneration"], "model_type": "qwen2_5_vl", "hidden_size": 2048,
    "num_hidden_layers": 36, "num_attention_heads": 16, "num_key_value_heads": 2, "intermediate_size": 11_008,
    "vocab_size": 151_936, "tie_word_embeddings": True, "max_position_embeddings": 128_000,
    "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
    "vision_config": {"depth": 32, "hidden_size": 1280, "num_heads": 16, "intermediate_size": 3420, "patch_size": 14,
                      "spatial_merge_size": 2, "temporal_patch_size": 2},
}  # fmt: skip
QWEN3 = {
    "architectures": ["Qwen3VLForConditionalGeneration"], "model_type": "qwen3_vl", "tie_word_embeddings": False,
    "text_config": {"model_type": "qwen3_vl_text", "hidden_size": 4096, "num_hidden_layers": 36, "head_dim": 128,
                    "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 12_288,
                    "vocab_size": 151_936, "max_position_embeddings": 262_144,
                    "rope_scaling": {"mrope_section": [24, 20, 20], "rope_type": "default"}},
    "vision_config": {"depth": 27, "hidden_size": 1152, "num_heads": 16, "intermediate_size": 4304, "patch_size": 16,
                      "spatial_merge_size": 2, "temporal_patch_size": 2, "deepstack_visual_indexes": [8, 16, 24]},
}  # fmt: skip
GEMMA3 = {
    "architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "mm_tokens_per_image": 256,
    "text_config": {"model_type": "gemma3_text", "hidden_size": 2560, "num_hidden_layers": 34, "head_dim": 256,
                    "num_attention_heads": 8, "num_key_value_heads": 4, "intermediate_size": 10_240,
                    "vocab_size": 262_208, "max_position_embeddings": 131_072, "sliding_window": 1024,
                    "sliding_window_pattern": 6, "rope_local_base_freq": 10_000,
                    "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
    "vision_config": {"num_hidden_layers": 27, "hidden_size": 1152, "num_attention_heads": 16,
                      "intermediate_size": 4304, "patch_size": 14, "image_size": 896},
}  # fmt: skip
LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14_336, "vocab_size": 128_256,
    "tie_word_embeddings": False, "max_position_embeddings": 131_072,
    "rope_scaling": {"rope_type": "llama3", "factor": 8},
}  # fmt: skip


def bare(known):
    """Without what only the table has: counts of parameters."""
    vision = known.vision and replace(known.vision, params=None, max_image_tokens=None)
    return replace(known.text, params=None), vision


@pytest.mark.parametrize(
    ("config", "name"), [(QWEN25, QWEN_3B), (QWEN3, QWEN3_8B), (GEMMA3, GEMMA_4B), (LLAMA, LLAMA_8B)]
)
def test_a_configuration_says_what_the_table_has(config, name):
    found, (text, vision) = spec_from_config("m", config), bare(spec(name))
    assert found.text == text
    assert found.vision == (replace(vision, kind=found.vision.kind) if vision else None)
    assert found.family == spec(name).family
    assert found.unsupported is None


def changed(config, **changes):
    return {key: value for key, value in {**config, **changes}.items() if value is not None}


def test_newer_files_list_the_kinds_of_layers_and_the_rope_of_each():
    text = changed(
        GEMMA3["text_config"], sliding_window_pattern=None, rope_local_base_freq=None, rope_scaling=None,
        layer_types=[*["sliding_attention"] * 5, "full_attention"] * 5 + ["sliding_attention"] * 4,
        rope_parameters={"full_attention": {"rope_type": "linear", "factor": 8.0}, "sliding_attention": {}},
    )  # fmt: skip
    found = spec_from_config("m", {**GEMMA3, "text_config": text})
    assert found.text == bare(spec(GEMMA_4B))[0]


def test_chunks():
    text = changed(LLAMA, layer_types=["chunked_attention"] * 24 + ["full_attention"] * 8, attention_chunk_size=8192)
    assert spec_from_config("m", text).text.sliding == Sliding(8192, 24, is_chunked=True)


def test_experts():
    moe = changed(LLAMA, num_experts=128, num_experts_per_tok=8, moe_intermediate_size=768, decoder_sparse_step=2)
    assert spec_from_config("m", moe).text.moe == Moe(128, 8, 768, 0, 2)
    shared = changed(LLAMA, n_routed_experts=64, n_shared_experts=2, moe_intermediate_size=896)
    assert spec_from_config("m", shared).text.moe == Moe(64, 1, 896, 1792)
    late = changed(shared, moe_layer_freq=1, first_k_dense_replace=3)
    assert spec_from_config("m", late).text.moe == Moe(64, 1, 896, 1792, 1, 3)
    listed = changed(shared, moe_layer_freq=[0, 1])
    assert spec_from_config("m", listed).text.moe == Moe(64, 1, 896, 1792)
    local = changed(LLAMA, num_local_experts=16, shared_expert_intermediate_size=8192)
    assert spec_from_config("m", local).text.moe == Moe(16, 1, 14_336, 8192)


def test_latent_attention():
    found = spec_from_config(
        "m", changed(LLAMA, kv_lora_rank=512, qk_rope_head_dim=64, qk_nope_head_dim=128, v_head_dim=96)
    ).text
    assert (found.latent_dims, found.latent) == (576, Latent(0, 512, 128, 64, 96))
    assert found.rope == (RopeTable(131_072, 64),)


@pytest.mark.parametrize(
    ("rope", "table", "context"),
    [
        ({"rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 512}}, (2048, 128), 2048),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, (262_144, 128), 262_144),
        ({"rope_scaling": None, "partial_rotary_factor": 0.5}, (131_072, 64), 131_072),
        ({"rope_scaling": "odd"}, (131_072, 128), 131_072),
    ],
)  # fmt: skip
def test_rotary_tables(rope, table, context):
    found = spec_from_config("m", changed(LLAMA, **rope)).text
    assert (found.rope, found.max_positions) == ((RopeTable(*table),), context)


def test_without_positions_there_is_neither_table_nor_context():
    found = spec_from_config("m", changed(LLAMA, max_position_embeddings=None)).text
    assert (found.rope, found.max_positions) == ((), None)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"layer_types": ["linear_attention", "full_attention"]}, "states of linear attention"),
        ({"linear_num_key_heads": 16}, "states of linear attention"),
        ({"mamba_d_state": 16}, "states of linear attention"),
        ({"is_encoder_decoder": True}, "attends across to an encoder"),
        ({"model_type": "mllama"}, "attends across to an encoder"),
    ],
)
def test_what_cannot_be_planned_says_why(changes, why):
    assert why in spec_from_config("m", {**LLAMA, **changes}).unsupported


def test_quantisation_and_pooling_as_the_file_says():
    found = spec_from_config("m", {**LLAMA, "quantization_config": {"quant_method": "awq"}}, file_bytes=5)
    assert (found.quantization, found.file_bytes) == ("awq", 5)
    unnamed = spec_from_config("m", {**LLAMA, "quantization_config": {"bits": 4}})
    assert unnamed.quantization == "unknown"
    assert spec_from_config("m", {**LLAMA, "architectures": ["LlamaForSequenceClassification"]}).is_pooling


@pytest.mark.parametrize(
    ("config", "vision", "merge"),
    [
        ({"downsample_ratio": 0.5}, {}, 2),
        ({"scale_factor": 3}, {}, 3),
        ({}, {"pixel_shuffle_ratio": 0.5}, 2),
        ({"spatial_merge_size": 2}, {}, 2),
        ({}, {}, 1),
        ({"mm_tokens_per_image": 256}, {"image_size": [896, 896], "patch_size": [14, 14]}, 4),
    ],
)
def test_patches_that_become_one_token(config, vision, merge):
    tower = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, **vision}
    found = spec_from_config("m", {**LLAMA, **config, "vision_config": tower}).vision
    assert (found.merge, found.patch, found.intermediate) == (merge, 14, 256)


def test_older_files_of_qwen2_call_the_towers_width_otherwise():
    tower = {"depth": 32, "embed_dim": 1280, "hidden_size": 3584, "num_heads": 16, "mlp_ratio": 4}
    found = spec_from_config("m", {**QWEN25, "model_type": "qwen2_vl", "vision_config": tower}).vision
    assert (found.hidden, found.intermediate, found.is_gated, found.kind) == (1280, 5120, False, "qwen2_vl")


@pytest.mark.parametrize(
    ("model_type", "tower_type", "kind"),
    [("internvl_chat", "", "intern_vit"), ("qwen3_5", "", "qwen3_vl"), ("", "pixtral", "pixtral")],
)
def test_towers_are_named_as_in_the_table(model_type, tower_type, kind):
    tower = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "model_type": tower_type}
    config = {**LLAMA, "model_type": model_type, "vision_config": tower}
    assert spec_from_config("m", config).vision.kind == kind


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({}, "num_attention_heads must be a whole number above 0, not None"),
        ({**LLAMA, "hidden_size": "4096"}, "hidden_size must be a whole number above 0, not '4096'"),
        ({**LLAMA, "vision_config": {"depth": 3}}, "vision_config lacks the layers, width or heads"),
    ],
)
def test_a_missing_number_is_named(config, why):
    with pytest.raises(NotPlannableError, match=why):
        spec_from_config("m", config)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"intermediate_size": "wide"}, "intermediate_size must be a whole number above 0, not 'wide'"),
        ({"vocab_size": float("nan")}, "vocab_size must be a whole number above 0, not nan"),
        ({"max_position_embeddings": True}, "max_position_embeddings must be a whole number above 0, not True"),
        ({"mm_tokens_per_image": -1}, "mm_tokens_per_image must be a whole number above 0, not -1"),
        (
            {"vision_config": {"temporal_patch_size": "2"}},
            "temporal_patch_size must be a whole number above 0, not '2'",
        ),
        ({"vision_config": {"mlp_ratio": True}}, "mlp_ratio must be a number above 0, not True"),
        ({"rope_scaling": {"factor": float("inf")}}, "factor must be a number above 0, not inf"),
        ({"partial_rotary_factor": {}}, "partial_rotary_factor must be a number above 0, not {}"),
    ],
)
def test_what_is_no_number_is_named(changes, why):
    with pytest.raises(NotPlannableError, match=re.escape(why)):
        spec_from_config("m", QWEN25 | changes)


@pytest.mark.parametrize(
    "rope", [{"type": "linear", "factor": None}, {"type": "yarn"}, {"type": ["yarn"]}, {"type": {}}]
)
def test_a_rope_without_a_factor_or_of_no_kind_leaves_its_table_as_it_is(rope):
    [table] = spec_from_config("m", QWEN25 | {"rope_scaling": rope}).text.rope
    assert table.positions == QWEN25["max_position_embeddings"]
