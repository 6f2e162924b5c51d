import re

import pytest

from gateway.domain.geometry import Size
from gateway.domain.vision.base import ProcessorConfigError
from gateway.domain.vision.checkpoints import CHECKPOINTS, checkpoint_of_model_name
from gateway.domain.vision.registry import (
    FAMILIES,
    UnknownFamilyError,
    family_for,
    family_of_architecture,
    family_of_config,
    family_of_model_name,
    resolve,
)
from gateway.domain.vision.sources import CLASS_DEFAULT, Source


@pytest.mark.parametrize(
    ("family", "tokens"),
    [
        ("qwen2_vl", 2691),
        ("qwen2_5_vl", 2691),
        ("qwen3_vl", 2040),
        ("qwen3_vl_moe", 2040),
        ("qwen3_5", 2040),
        ("qwen3_5_moe", 2040),
    ],
)
def test_each_family_prices_by_what_its_checkpoints_ship(family, tokens):
    model = family_for(family, None)
    assert model.name == family
    assert model.tokens(Size(1920, 1080)).placeholder == tokens


def test_a_checkpoints_own_configuration_wins_over_the_shipped_one():
    assert family_for("qwen2_vl", {"max_pixels": 802816}).max_image_tokens == 1024


def test_the_newer_file_nests_the_image_processor():
    nested = {"processor_class": "Qwen3VLProcessor", "image_processor": {"patch_size": 16, "max_pixels": 1024 * 2000}}
    assert family_for("qwen3_vl", nested).max_image_tokens == 2000


def test_and_keeps_some_numbers_beside_it():
    nested = {"image_seq_len": 64, "image_processor": {"size": {"longest_edge": 728}}}
    assert family_for("idefics3", nested).tokens(Size(10, 10)).placeholder == (4 + 1) * 66 + 2 + 1


def test_a_nested_image_processor_that_is_no_object_is_named():
    with pytest.raises(ProcessorConfigError, match="image_processor must be an object, not 'x'"):
        family_for("qwen3_vl", {"image_processor": "x"})


def test_an_unknown_family_is_told_which_there_are():
    with pytest.raises(UnknownFamilyError, match=r"'bogus'; known are qwen2_vl, qwen2_5_vl, qwen3_vl"):
        family_for("bogus", None)


@pytest.mark.parametrize(
    ("architecture", "family"),
    [
        ("Qwen2VLForConditionalGeneration", "qwen2_vl"),
        ("Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl"),
        ("Qwen3VLForConditionalGeneration", "qwen3_vl"),
        ("Qwen3VLMoeForConditionalGeneration", "qwen3_vl_moe"),
        ("Qwen3_5ForConditionalGeneration", "qwen3_5"),
        ("Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe"),
        ("InternVLChatModel", "internvl"),
        ("LlavaForConditionalGeneration", "llava_1_5"),
        ("Qwen2_5OmniModel", None),
        ("LlamaForCausalLM", None),
    ],
)
def test_family_by_architecture(architecture, family):
    assert family_of_architecture(architecture) == family


LLAVA = {"architectures": ["LlavaForConditionalGeneration"]}


@pytest.mark.parametrize(
    ("config", "family"),
    [
        ({"architectures": ["Gemma3ForConditionalGeneration"]}, "gemma3"),
        ({"architectures": ["SomethingElse", "MiniCPMV"]}, "minicpmv"),
        (
            {"architectures": ["LlavaForConditionalGeneration"], "vision_config": {"model_type": "pixtral"}},
            "pixtral_hf",
        ),
        (
            {"architectures": ["LlavaForConditionalGeneration"], "vision_config": {"model_type": "clip_vision_model"}},
            "llava_1_5",
        ),
        ({"architectures": ["LlamaForCausalLM"]}, None),
        ({}, None),
    ],
)
def test_family_by_the_whole_of_config_json(config, family):
    assert family_of_config(config) == family


def test_no_architecture_is_of_two_families():
    architectures = [architecture for row in FAMILIES.values() for architecture in row.architectures]
    assert len(architectures) == len(set(architectures))


@pytest.mark.parametrize(
    ("model", "family"),
    [
        ("Qwen/Qwen2-VL-7B-Instruct", "qwen2_vl"),
        ("Qwen/QVQ-72B-Preview", "qwen2_vl"),
        ("Qwen/Qwen2.5-VL-7B-Instruct", "qwen2_5_vl"),
        ("remodlai/qwen-2.5-vl-7b-instruct-lexiq", "qwen2_5_vl"),
        ("qwen2_5_vl", "qwen2_5_vl"),
        ("Qwen/Qwen3-VL-8B-Instruct", "qwen3_vl"),
        ("/models/Qwen3-VL-30B-A3B-Instruct-FP8", "qwen3_vl_moe"),
        ("Qwen/Qwen3.5-0.8B", "qwen3_5"),
        ("Qwen/Qwen3.5-35B-A3B", "qwen3_5_moe"),
        ("Qwen/Qwen3-VL-Reranker-2B", None),
        ("Qwen/Qwen3-VL-Embedding-2B", None),
        ("Qwen/Qwen2.5-Omni-7B", None),
        ("Qwen/Qwen3-8B", None),
        ("qwen2-vl-and-qwen2.5-vl", None),
        ("tiny", None),
    ],
)
def test_family_by_served_name_is_a_careful_guess(model, family):
    assert family_of_model_name(model) == family


@pytest.mark.parametrize(
    ("model", "title"),
    [
        ("rednote-hilab/dots.ocr", "dots.ocr"),
        ("XiaomiMiMo/MiMo-VL-7B-RL", "MiMo-VL-7B"),
        ("XiaomiMiMo/MiMo-V2.5-Base", "MiMo-V2.5"),
        ("baidu/ERNIE-4.5-VL-28B-A3B-PT", "ERNIE-4.5-VL"),
        ("zai-org/GLM-4.1V-9B-Thinking", "GLM-4.1V, GLM-4.5V"),
        ("zai-org/GLM-4.5V-FP8", "GLM-4.1V, GLM-4.5V"),
        ("zai-org/GLM-4.5-Air", None),
        ("zai-org/GLM-4.6V", "GLM-4.6V"),
        ("zai-org/GLM-OCR", "GLM-OCR"),
        ("zai-org/glm-4v-9b", "GLM-4V-9B"),
        ("PaddlePaddle/PaddleOCR-VL", "PaddleOCR-VL"),
        ("PaddlePaddle/PaddleOCR-VL-1.5", "PaddleOCR-VL-1.5"),
        ("Kwai-Keye/Keye-VL-8B-Preview", "Keye-VL"),
        ("Kwai-Keye/Keye-VL-1_5-8B", None),
        ("AIDC-AI/Ovis2.5-9B", "Ovis2.5"),
        ("AIDC-AI/Ovis2-8B", "Ovis2"),
        ("LiquidAI/LFM2-VL-450M", "LFM2-VL-450M"),
        ("LiquidAI/LFM2-VL-1.6B", "LFM2-VL-1.6B"),
        ("moonshotai/Kimi-VL-A3B-Instruct", "Kimi-VL"),
        ("moonshotai/Kimi-VL-A3B-Thinking-2506", "Kimi-VL 2506"),
        ("moonshotai/Kimi-K2.5", "Kimi-K2.5"),
        ("moonshotai/Kimi-K2-Instruct", None),
        ("mistralai/Pixtral-12B-2409", "Pixtral-12B-2409"),
        ("mistral-community/pixtral-12b", "Pixtral-12B (Hugging Face)"),
        ("mistralai/Mistral-Small-3.1-24B-Instruct-2503", "Mistral Small 3.1, 3.2"),
        ("OpenGVLab/InternVL3-8B", "InternVL2, 2.5, 3, 3.5"),
        ("OpenGVLab/InternVL2_5-8B-AWQ", "InternVL2, 2.5, 3, 3.5"),
        ("OpenGVLab/InternVL3-8B-hf", "InternVL (-hf), Intern-S1"),
        ("internlm/Intern-S1-mini", "InternVL (-hf), Intern-S1"),
        ("nvidia/NVLM-D-72B", "NVLM-D"),
        ("h2oai/h2ovl-mississippi-800m", "H2OVL Mississippi"),
        ("nvidia/Llama-3.1-Nemotron-Nano-VL-8B-V1", "Llama Nemotron Nano VL"),
        ("nvidia/NVIDIA-Nemotron-Nano-12B-v2-VL-BF16", "Nemotron Nano V2 VL"),
        ("deepseek-ai/deepseek-vl2-tiny", "DeepSeek-VL2"),
        ("deepseek-ai/DeepSeek-OCR", "DeepSeek-OCR"),
        ("deepseek-ai/DeepSeek-OCR-2", None),
        ("llava-hf/llava-1.5-7b-hf", "LLaVA-1.5"),
        ("llava-hf/llava-v1.6-mistral-7b-hf", "LLaVA-NeXT (Vicuna, Mistral)"),
        ("llava-hf/llava-v1.6-34b-hf", None),
        ("llava-hf/llava-onevision-qwen2-7b-ov-hf", "LLaVA-OneVision"),
        ("lmms-lab/LLaVA-OneVision-1.5-8B-Instruct", None),
        ("ibm-granite/granite-vision-3.1-2b-preview", "Granite Vision 3"),
        ("ibm-granite/granite-4.0-3b-vision", "Granite 4 Vision"),
        ("google/gemma-3-4b-it", "Gemma 3"),
        ("google/gemma-3-1b-it", None),
        ("google/gemma-3n-E4B-it", "Gemma 3n"),
        ("google/gemma-4-31b-it", "Gemma 4"),
        ("google/paligemma2-3b-mix-448", "PaliGemma 448"),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", "Llama 4"),
        ("meta-llama/Llama-3.2-11B-Vision-Instruct", "Llama 3.2 Vision"),
        ("meta-llama/Llama-3.2-3B-Instruct", None),
        ("HuggingFaceM4/Idefics3-8B-Llama3", "Idefics3"),
        ("HuggingFaceTB/SmolVLM2-256M-Video-Instruct", "SmolVLM 256M, 500M"),
        ("HuggingFaceTB/SmolVLM-Instruct", "SmolVLM 2.2B"),
        ("openbmb/MiniCPM-V-2_6", "MiniCPM-V 2.6 to 4.5, MiniCPM-o 2.6"),
        ("openbmb/MiniCPM-V-4_5", "MiniCPM-V 2.6 to 4.5, MiniCPM-o 2.6"),
        ("openbmb/MiniCPM-o-2_6", "MiniCPM-V 2.6 to 4.5, MiniCPM-o 2.6"),
        ("openbmb/MiniCPM-V-4.6", "MiniCPM-V 4.6"),
        ("openbmb/MiniCPM-Llama3-V-2_5", "MiniCPM-Llama3-V-2.5"),
        ("microsoft/Phi-3.5-vision-instruct", "Phi-3.5-vision"),
        ("microsoft/Phi-3-vision-128k-instruct", "Phi-3-vision"),
        ("microsoft/Phi-4-multimodal-instruct", "Phi-4-multimodal"),
        ("allenai/Molmo-7B-D-0924", "Molmo-7B"),
        ("stepfun-ai/step3", "Step3-VL"),
        ("CohereLabs/command-a-vision-07-2025", "Command A Vision"),
        ("CohereLabs/aya-vision-8b", "Aya Vision"),
        ("adept/fuyu-8b", "Fuyu-8B"),
        ("deepseek-ai/Janus-Pro-7B", "Janus"),
        ("deepseek-community/Janus-1.3B", "Janus"),
    ],
)
def test_checkpoint_by_served_name(model, title):
    found = checkpoint_of_model_name(model)
    assert (found and found.title) == title


def test_every_family_has_a_checkpoint_and_every_checkpoint_prices_an_image():
    assert {checkpoint.family for checkpoint in CHECKPOINTS} == set(FAMILIES)
    for checkpoint in CHECKPOINTS:
        found = resolve(checkpoint.family, checkpoint=checkpoint)
        assert found.family.name == checkpoint.family
        assert found.family.tokens(Size(640, 480)).placeholder > 0
        assert re.compile(checkpoint.served_name)


def test_what_a_checkpoint_is_published_with_is_all_read():
    """A key that its family does not know would be a number without effect."""
    for checkpoint in CHECKPOINTS:
        numbers = resolve(checkpoint.family, checkpoint=checkpoint).numbers
        read = {number.key.split(".")[0] for number in numbers if number.source != CLASS_DEFAULT}
        assert (checkpoint.title, read) == (checkpoint.title, set(checkpoint.config))


def sources_of(found):
    return {number.key: (number.value, number.source) for number in found.numbers}


def test_each_number_says_where_it_came_from():
    files = [
        Source("preprocessor_config.json", {"min_pixels": 3136, "max_pixels": 802816}),
        Source("config.json", {"architectures": ["Qwen2VLForConditionalGeneration"]}),
    ]
    found = resolve("qwen2_vl", files, options={"max_pixels": 401408}, has_processor=True)
    assert found.family.max_image_tokens == 512
    assert sources_of(found) == {
        "max_pixels": (401408, "mm-processor-kwargs"),
        "min_pixels": (3136, "preprocessor_config.json"),
        "patch_size": (14, CLASS_DEFAULT),
        "merge_size": (2, CLASS_DEFAULT),
    }


def test_a_size_of_the_servers_own_takes_the_place_of_a_files_areas():
    files = [Source("preprocessor_config.json", {"min_pixels": 3136, "max_pixels": 12845056})]
    own = {"size": {"shortest_edge": 3136, "longest_edge": 802816}}
    assert resolve("qwen2_vl", files, options=own, has_processor=True).family.max_image_tokens == 1024


def test_a_file_that_has_both_goes_by_the_areas():
    file = {"size": {"shortest_edge": 65536, "longest_edge": 16777216}, "min_pixels": 4095, "max_pixels": 1310720}
    found = resolve("qwen3_vl", [Source("preprocessor_config.json", file | {"patch_size": 16})])
    assert found.family.max_image_tokens == 1280


def test_a_file_of_the_processor_without_numbers_leaves_the_class_default():
    """And not what other checkpoints ship: 1280 tokens where Qwen2-VL has 16384."""
    file = [Source("preprocessor_config.json", {"processor_class": "Qwen2VLProcessor"})]
    assert resolve("qwen2_vl", file, has_processor=True).family.max_image_tokens == 1280
    assert resolve("qwen2_vl", file).family.max_image_tokens == 16384


def test_config_json_alone_says_enough_for_tile_families():
    config = {
        "force_image_size": 448,
        "vision_config": {"patch_size": 14, "image_size": 448},
        "downsample_ratio": 0.5,
        "dynamic_image_size": True,
        "use_thumbnail": True,
        "max_dynamic_patch": 6,
    }
    found = resolve("internvl", [Source("config.json", config)])
    assert found.family.max_image_tokens == 7 * 256 + 2
    assert sources_of(found)["max_dynamic_patch"] == (6, "config.json")
    assert sources_of(found)["min_dynamic_patch"] == (1, CLASS_DEFAULT)


def test_a_name_says_more_than_the_family_alone():
    model = checkpoint_of_model_name("moonshotai/Kimi-VL-A3B-Thinking-2506")
    found = resolve("kimi_vl", checkpoint=model)
    assert sources_of(found)["in_token_limit"] == (16384, "published Kimi-VL 2506 (verified)")
    assert sources_of(resolve("kimi_vl"))["in_token_limit"] == (4096, "published Kimi-VL (verified)")


def test_a_checkpoint_of_another_family_is_no_source():
    model = checkpoint_of_model_name("Qwen/Qwen3-VL-8B-Instruct")
    assert resolve("qwen2_vl", checkpoint=model).family.tokens(Size(1920, 1080)).placeholder == 2691
