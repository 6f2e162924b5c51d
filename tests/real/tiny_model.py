"""Writes a model folder that vLLM serves on a CPU with random weights: a very small Qwen2.5-VL.

Other families: tiny_families.py.

Real: architecture and processor names, patch and merge sizes, pixel limits, special tokens, the ChatML layout with
tools. Small: layers, widths, vocabulary. The tokenizer has merges, so text tokens are not bytes and only a reader of
`tokenizer.json` can count them.
"""

import json
import pathlib
from collections.abc import Mapping, Sequence

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

END_OF_TEXT, END_OF_TURN = "<|endoftext|>", "<|im_end|>"
SPECIAL_TOKENS = [
    END_OF_TEXT,
    "<|im_start|>",
    END_OF_TURN,
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
]

# How Qwen2 cuts text before its merges.
PRE_TOKENIZER = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

# Merges are learned from this; any English would do.
CORPUS = """
The photograph shows a narrow street in the morning light, with three bicycles leaning against the wall of a bakery.
Describe what you see in this picture, and say how many people are standing in front of the yellow door.
There are two people: one is reading a newspaper, the other is carrying a basket of bread. The sky is bright and clear.
Which of these images was taken first? The second one, because the shadow of the tower is longer than in the others.
Read the text on the label and answer with the numbers only. The total amount is written at the bottom of the page.
"""

# The tools stand at the end of the first system turn, a tool's answer inside a user turn, as Qwen2.5 writes them.
CHAT_TEMPLATE = """\
{%- macro tool_list() -%}
{%- if tools -%}
{{ '\\n\\n# Tools\\n\\nYou may call these functions:\\n<tools>' }}
{%- for tool in tools -%}{{ '\\n' }}{{ tool | tojson }}{%- endfor -%}
{{ '\\n</tools>' }}
{%- endif -%}
{%- endmacro -%}
{%- for message in messages -%}
{%- if loop.first and message['role'] != 'system' -%}
{{ '<|im_start|>system\\nYou are a helpful assistant.' }}{{ tool_list() }}{{ '<|im_end|>\\n' }}
{%- endif -%}
{%- if message['role'] == 'tool' -%}
{{ '<|im_start|>user\\n<tool_response>\\n' }}
{%- else -%}
{{ '<|im_start|>' + message['role'] + '\\n' }}
{%- endif -%}
{%- if message['content'] is string -%}
{{ message['content'] }}
{%- elif message['content'] -%}
{%- for part in message['content'] -%}
{%- if part['type'] in ('image', 'image_url') or 'image' in part or 'image_url' in part -%}
{{ '<|vision_start|><|image_pad|><|vision_end|>' }}
{%- elif part['type'] == 'video' or 'video_url' in part -%}
{{ '<|vision_start|><|video_pad|><|vision_end|>' }}
{%- elif 'text' in part -%}
{{ part['text'] }}
{%- endif -%}
{%- endfor -%}
{%- endif -%}
{%- for call in message['tool_calls'] or [] -%}
{{ '\\n<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
{{- call.function.arguments | tojson }}{{ '}\\n</tool_call>' }}
{%- endfor -%}
{%- if message['role'] == 'tool' -%}{{ '\\n</tool_response>' }}{%- endif -%}
{%- if loop.first and message['role'] == 'system' -%}{{ tool_list() }}{%- endif -%}
{{ '<|im_end|>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}
"""


def write(folder: pathlib.Path, *, layers: int = 2, hidden: int = 64) -> None:
    """Fill `folder`. More layers and a greater width (an even number) make a slower model, for tests of waiting."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = make_tokenizer(SPECIAL_TOKENS)
    tokenizer.save(str(folder / "tokenizer.json"))
    files = {
        "config.json": _config(tokenizer, layers=layers, hidden=hidden),
        "preprocessor_config.json": _processor_config(),
        "tokenizer_config.json": tokenizer_config(
            tokenizer, SPECIAL_TOKENS, processor_class="Qwen2_5_VLProcessor", eos=END_OF_TURN, pad=END_OF_TEXT
        ),
        "generation_config.json": {
            "eos_token_id": [tokenizer.token_to_id(END_OF_TURN), tokenizer.token_to_id(END_OF_TEXT)],
            "pad_token_id": tokenizer.token_to_id(END_OF_TEXT),
        },
    }
    write_files(folder, files, CHAT_TEMPLATE)


def write_files(folder: pathlib.Path, files: Mapping[str, object], chat_template: str) -> None:
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=2) + "\n")
    (folder / "chat_template.jinja").write_text(chat_template)


def make_tokenizer(special_tokens: Sequence[str], plain_tokens: Sequence[str] = ()) -> Tokenizer:
    """`plain_tokens` stand for themselves in texts too."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PRE_TOKENIZER), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        CORPUS.splitlines(),
        trainers.BpeTrainer(vocab_size=504, min_frequency=1, initial_alphabet=alphabet, show_progress=False),
    )
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special_tokens])
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in plain_tokens])
    return tokenizer


def tokenizer_config(
    tokenizer: Tokenizer,
    special_tokens: Sequence[str],
    *,
    processor_class: str,
    eos: str,
    pad: str,
    bos: str | None = None,
) -> dict[str, object]:
    flags = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "processor_class": processor_class,
        "model_max_length": 131072,
        "clean_up_tokenization_spaces": False,
        "bos_token": bos,
        "eos_token": eos,
        "pad_token": pad,
        "unk_token": None,
        "added_tokens_decoder": {
            str(tokenizer.token_to_id(token)): {"content": token, **flags} for token in special_tokens
        },
    }


def _processor_config() -> dict[str, object]:
    return {
        "image_processor_type": "Qwen2VLImageProcessor",
        "processor_class": "Qwen2_5_VLProcessor",
        "patch_size": 14,
        "temporal_patch_size": 2,
        "merge_size": 2,
        "min_pixels": 3136,
        "max_pixels": 12845056,
        "image_mean": [0.48145466, 0.4578275, 0.40821073],
        "image_std": [0.26862954, 0.26130258, 0.27577711],
    }


def _config(tokenizer: Tokenizer, *, layers: int, hidden: int) -> dict[str, object]:
    heads, vision_hidden, vision_layers = 2, 32, 2
    half_head = hidden // heads // 2
    height_section = width_section = half_head * 3 // 8
    return {
        "architectures": ["Qwen2_5_VLForConditionalGeneration"],
        "model_type": "qwen2_5_vl",
        "torch_dtype": "bfloat16",
        "vocab_size": tokenizer.get_vocab_size(),
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": 1,
        "hidden_act": "silu",
        "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
        "rope_scaling": {
            "type": "mrope",
            "mrope_section": [half_head - height_section - width_section, height_section, width_section],
        },
        "initializer_range": 0.02,
        "use_cache": True,
        "use_sliding_window": False,
        "sliding_window": None,
        "attention_dropout": 0.0,
        "tie_word_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": tokenizer.token_to_id(END_OF_TURN),
        "image_token_id": tokenizer.token_to_id("<|image_pad|>"),
        "video_token_id": tokenizer.token_to_id("<|video_pad|>"),
        "vision_start_token_id": tokenizer.token_to_id("<|vision_start|>"),
        "vision_end_token_id": tokenizer.token_to_id("<|vision_end|>"),
        "vision_config": {
            "model_type": "qwen2_5_vl",
            "depth": vision_layers,
            "num_heads": 1,
            "hidden_size": vision_hidden,
            "intermediate_size": 2 * vision_hidden,
            "out_hidden_size": hidden,
            "hidden_act": "silu",
            "patch_size": 14,
            "temporal_patch_size": 2,
            "spatial_merge_size": 2,
            "in_channels": 3,
            "in_chans": 3,
            "window_size": 112,
            "tokens_per_second": 2,
            "fullatt_block_indexes": [vision_layers - 1],
            "initializer_range": 0.02,
        },
    }
