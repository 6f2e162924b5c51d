"""A model folder as on the hub, without weights: a Qwen2.5-VL whose tokenizer makes one token of each byte."""

import json

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>"]


def tokenizer():
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={letter: index for index, letter in enumerate(alphabet)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    return made


def config(made):
    return {
        "architectures": ["Qwen2_5_VLForConditionalGeneration"],
        "max_position_embeddings": 128000,
        "vocab_size": 152064,
        "hidden_size": 3584,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "image_token_id": made.token_to_id("<|image_pad|>"),
        "vision_start_token_id": made.token_to_id("<|vision_start|>"),
        "vision_end_token_id": made.token_to_id("<|vision_end|>"),
    }


@pytest.fixture
def model_folder(tmp_path):
    """`model_folder(**files)` writes the folder; a file given as None is left out."""

    def write(**files):
        made = tokenizer()
        standard = {
            "config.json": config(made),
            "tokenizer_config.json": {"eos_token": "<|im_end|>", "pad_token": {"content": "<|endoftext|>"}},
            "preprocessor_config.json": {"patch_size": 14, "merge_size": 2, "min_pixels": 3136, "max_pixels": 802816},
            "tokenizer.json": made.to_str(),
        }
        for name, content in (standard | {name.replace("__", "/"): text for name, text in files.items()}).items():
            if content is not None:
                (tmp_path / name).parent.mkdir(exist_ok=True)
                (tmp_path / name).write_text(content if isinstance(content, str) else json.dumps(content))
        return tmp_path

    return write
