import pytest

from gateway.models.processor_config import ModelFilesError, parse_model, read_model_folder

QWEN3_VL_4B = {
    "architectures": ["Qwen3VLForConditionalGeneration"],
    "text_config": {
        "hidden_size": 2560,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
    },
}


def with_text(**changes):
    return QWEN3_VL_4B | {"text_config": QWEN3_VL_4B["text_config"] | changes}


def test_a_folder_says_what_its_images_and_its_kv_cache_cost(model_folder):
    files = read_model_folder(model_folder())
    assert files.family_name == "qwen2_5_vl"
    assert files.image_processor["max_pixels"] == 802_816
    assert (files.text.layers, files.text.kv_heads, files.text.head_size) == (28, 4, 128)
    assert files.text.kv_bytes_per_token == 57344  # vLLM's own number for Qwen2.5-VL-7B in bfloat16


def test_the_language_model_may_be_nested():
    files = parse_model(QWEN3_VL_4B, None, None)
    assert files.text.kv_bytes_per_token == 147456
    assert files.image_processor is None


def test_an_embedding_is_as_wide_as_the_language_model_once_for_each_layer_it_feeds():
    assert parse_model(QWEN3_VL_4B, None, None).embedding_bytes == 2560 * 2
    vision = {"vision_config": {"deepstack_visual_indexes": [5, 11, 17]}}
    assert parse_model(QWEN3_VL_4B | vision, None, None).embedding_bytes == 4 * 2560 * 2


def test_without_groups_every_head_has_its_own_cache():
    text = parse_model(with_text(num_key_value_heads=None, head_dim=None), None, None).text
    assert (text.kv_heads, text.head_size) == (32, 80)


def test_layers_of_several_kinds_make_groups():
    alike = parse_model(with_text(layer_types=["full_attention"] * 36), None, None).text
    assert (alike.kv_bytes_per_token, alike.kv_groups) == (147456, 1)
    windows = ["full_attention", *["sliding_attention"] * 5] * 6
    mixed = parse_model(with_text(layer_types=windows, sliding_window=1024), None, None).text
    assert (mixed.kv_bytes_per_token, mixed.kv_groups) == (147456, 6)


def test_layers_of_an_unknown_kind_have_no_cost():
    text = parse_model(with_text(layer_types=["hybrid"] * 36), None, None).text
    assert (text.kv_bytes_per_token, text.kv_groups) == (None, None)


def test_an_architecture_not_known_here_has_no_family():
    files = parse_model(QWEN3_VL_4B | {"architectures": ["LlamaForCausalLM"]}, None, None)
    assert files.family_name is None


def test_the_vision_tower_says_what_an_architecture_leaves_open():
    llava = QWEN3_VL_4B | {"architectures": ["LlavaForConditionalGeneration"]}
    assert parse_model(llava, None, None).family_name == "llava_1_5"
    assert parse_model(llava | {"vision_config": {"model_type": "pixtral"}}, None, None).family_name == "pixtral_hf"


@pytest.mark.parametrize("key", ["text_config", "llm_config", "language_config"])
def test_models_nest_the_language_model_in_their_own_way(key):
    config = {"architectures": ["InternVLChatModel"], key: QWEN3_VL_4B["text_config"]}
    assert parse_model(config, None, None).text.layers == 36


def test_what_the_file_leaves_out_is_what_the_models_class_assumes_where_that_is_known():
    text = {"hidden_size": 2560, "num_hidden_layers": 34}
    gemma = {"architectures": ["Gemma3ForConditionalGeneration"], "text_config": text}
    files = parse_model(gemma, None, None)
    assert (files.family_name, files.text, files.embedding_bytes) == ("gemma3", None, None)
    files = parse_model(gemma | {"text_config": text | {"model_type": "gemma3_text"}}, None, None)
    assert (files.text.kv_heads, files.text.kv_groups, files.embedding_bytes) == (4, 7, 2 * 2560)


def test_families_read_the_image_processor_first_and_config_json_last():
    processor = {"image_seq_len": 64, "image_processor": {"patch_size": 16}}
    assert [source.name for source in parse_model(QWEN3_VL_4B, {"a": 1}, processor).sources] == [
        "processor_config.json",
        "processor_config.json",
        "config.json",
    ]
    older = parse_model(QWEN3_VL_4B, {"a": 1}, None).sources
    assert [(source.name, "a" in source.values) for source in older] == [
        ("preprocessor_config.json", True),
        ("config.json", False),
    ]


def test_a_nested_image_processor_wins_over_the_older_file():
    older, newer = {"max_pixels": 1}, {"patch_size": 16, "max_pixels": 1024 * 2000}
    assert parse_model(QWEN3_VL_4B, older, {"image_processor": newer}).image_processor == newer
    assert parse_model(QWEN3_VL_4B, older, {"processor_class": "X"}).image_processor == older


@pytest.mark.parametrize(
    ("config", "processor", "text"),
    [
        ({}, None, "config.json: architectures must list at least one name, not None"),
        (QWEN3_VL_4B | {"architectures": []}, None, "config.json: architectures"),
        (QWEN3_VL_4B | {"text_config": 5}, None, "config.json: text_config must be an object, not 5"),
        (with_text(hidden_size=None), None, "config.json: hidden_size must be a whole number above 0, not None"),
        (with_text(num_hidden_layers="9"), None, "config.json: num_hidden_layers .* not '9'"),
        (with_text(hidden_size=True), None, "config.json: hidden_size .* not True"),
        (
            QWEN3_VL_4B | {"vision_config": {"deepstack_visual_indexes": 3}},
            None,
            "config.json: deepstack_visual_indexes must be a list, not 3",
        ),
        (with_text(head_dim=-1), None, "config.json: head_dim .* not -1"),
        (with_text(layer_types=["full_attention"]), None, "config.json: layer_types must have an entry for each of 36"),
        (QWEN3_VL_4B, {"image_processor": 5}, "processor_config.json: image_processor must be an object, not 5"),
    ],
)
def test_mistakes_name_the_file_and_the_key(config, processor, text):
    with pytest.raises(ModelFilesError, match=text):
        parse_model(config, None, processor)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, "cannot be read"),
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "holds list where an object is needed"),
    ],
)
def test_files_that_cannot_be_read_are_named(model_folder, content, text):
    with pytest.raises(ModelFilesError, match=f"config.json: {text}") as refused:
        read_model_folder(model_folder(**{"config.json": content}))
    assert refused.value.file == "config.json"
