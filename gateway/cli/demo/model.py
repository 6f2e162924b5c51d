"""The folder of the model that the demo emulates: Qwen2.5-VL-7B's own numbers, and the emulator's tokenizer.

The emulator counts a byte of text as a token, so this tokenizer does too. With it the gateway counts every prompt
exactly before it is sent, as it does with the folder of a real model.
"""

import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

from gateway.models.processor_config import ModelFiles, parse_model

NAME = "Qwen/Qwen2.5-VL-7B-Instruct"

_SPECIAL_TOKENS = ("<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|image_pad|>", "<|vision_end|>")

# https://huggingface.co/Qwen/Qwen2.5-VL-7B-Instruct/blob/main/config.json, as far as costs depend on it.
_CONFIG = {
    "architectures": ["Qwen2_5_VLForConditionalGeneration"],
    "hidden_size": 3584,
    "max_position_embeddings": 128_000,
    "num_attention_heads": 28,
    "num_hidden_layers": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152_064,
}

# A tag that ends in "-" eats the line end before it, so the role runs straight into the content.
_CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{%- if loop.first and message['role'] != 'system' -%}"
    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
    "{%- endif -%}"
    "<|im_start|>{{ message['role'] }}\n"
    "{%- if message['content'] is string -%}{{ message['content'] }}"
    "{%- else -%}{%- for part in message['content'] -%}"
    "{%- if part['type'] == 'image' -%}<|vision_start|><|image_pad|><|vision_end|>"
    "{%- elif 'text' in part -%}{{ part['text'] }}{%- endif -%}"
    "{%- endfor -%}{%- endif -%}"
    "<|im_end|>\n{% endfor -%}"
    "{%- if add_generation_prompt -%}<|im_start|>assistant\n{% endif -%}"
)


def describe() -> ModelFiles:
    """What a request of this model costs in bytes."""
    return parse_model(_CONFIG, None, None)


def write(folder: Path) -> None:
    """The folder, laid out as on the hub."""
    letters = {letter: place for place, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=letters, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in _SPECIAL_TOKENS])
    tokenizer.save(str(folder / "tokenizer.json"))
    picture = {
        f"{name}_token_id": tokenizer.token_to_id(token)
        for name, token in zip(("vision_start", "image", "vision_end"), _SPECIAL_TOKENS[2:], strict=True)
    }
    (folder / "config.json").write_text(json.dumps(_CONFIG | picture))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": _CHAT_TEMPLATE}))
