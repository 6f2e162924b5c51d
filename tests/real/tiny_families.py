"""Model folders that vLLM serves on a CPU with random weights: one very small model of each of several families.

Real: architecture and processor names, patch and tile sizes, pixel limits, special tokens, and where the chat templates
put pictures. Small: layers, widths, vocabulary. Qwen2.5-VL, of which more is tested: tiny_model.py.
"""

import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

from tokenizers import Tokenizer

from tests.real import tiny_model
from tests.real.tiny_model import make_tokenizer, tokenizer_config, write_files

HIDDEN, VISION_HIDDEN = 64, 32
HALF = [0.5, 0.5, 0.5]
WINDOW_TOKENS = 256
"""What the layers of the tiny Gemma 3 look back, five of six: two of vLLM's blocks on a CPU."""


class TinyFamily(NamedTuple):
    """`family` is the gateway's name of it, which it has to find by itself; `arguments` are those of the server."""

    family: str
    write: Callable[[pathlib.Path], None]
    arguments: tuple[str, ...] = ()


class _Chat(NamedTuple):
    """How a family writes a conversation. `picture` stands for one in the template."""

    special_tokens: tuple[str, ...]
    eos: str
    pad: str
    picture: str
    turn: tuple[str, str]
    answer: str
    bos: str | None = None
    plain_tokens: tuple[str, ...] = ()

    @property
    def template(self) -> str:
        """The layout of the family with the parts of a message in their order."""
        opening, closing = self.turn
        return (
            "{{- bos_token or '' -}}"
            "{%- for message in messages -%}"
            f"{opening}"
            "{%- if message['content'] is string -%}{{ message['content'] }}"
            "{%- else -%}{%- for part in message['content'] -%}"
            "{%- if part['type'] in ('image', 'image_url') -%}"
            f"{{{{ {self.picture!r} }}}}"
            "{%- elif 'text' in part -%}{{ part['text'] }}{%- endif -%}"
            "{%- endfor -%}{%- endif -%}"
            f"{{{{ {closing!r} }}}}"
            "{%- endfor -%}"
            f"{{%- if add_generation_prompt -%}}{{{{ {self.answer!r} }}}}{{%- endif -%}}"
        )


_CHATML = ("{{ '<|im_start|>' + message['role'] + '\\n' }}", "<|im_end|>\n")
_INTERNVL = _Chat(
    ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<img>", "</img>", "<IMG_CONTEXT>", "<video>"),
    eos="<|im_end|>",
    pad="<|endoftext|>",
    picture="<IMG_CONTEXT>\n",
    turn=_CHATML,
    answer="<|im_start|>assistant\n",
)
_LLAVA = _Chat(
    ("<unk>", "<s>", "</s>", "<pad>", "<image>"),
    eos="</s>",
    pad="<pad>",
    picture="<image>\n",
    turn=("{{ message['role'] | upper + ': ' }}", "\n"),
    answer="ASSISTANT:",
    bos="<s>",
)
_GEMMA3 = _Chat(
    (
        *("<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"),
        *("<start_of_image>", "<end_of_image>", "<image_soft_token>"),
    ),
    eos="<eos>",
    pad="<pad>",
    picture="<start_of_image>",
    turn=(
        "{{ '<start_of_turn>' + ('model' if message['role'] == 'assistant' else message['role']) + '\\n' }}",
        "<end_of_turn>\n",
    ),
    answer="<start_of_turn>model\n",
    bos="<bos>",
    plain_tokens=("\n", "\n\n", "\n\n\n", "\n\n\n\n"),  # vLLM looks for these as they are spelled here
)


def _qwen3_vl(folder: pathlib.Path) -> None:
    tokenizer = make_tokenizer(tiny_model.SPECIAL_TOKENS)
    half_head = HIDDEN // 2 // 2
    side = half_head * 3 // 8
    rope = {"rope_type": "default", "mrope_interleaved": True, "mrope_section": [half_head - 2 * side, side, side]}
    ids = {f"{name}_token_id": tokenizer.token_to_id(f"<|{name}_pad|>") for name in ("image", "video")}
    ids |= {f"vision_{end}_token_id": tokenizer.token_to_id(f"<|vision_{end}|>") for end in ("start", "end")}
    config = {
        "architectures": ["Qwen3VLForConditionalGeneration"],
        "model_type": "qwen3_vl",
        "torch_dtype": "bfloat16",
        "tie_word_embeddings": False,
        **ids,
        "text_config": _text("qwen3_vl_text", tokenizer, head_dim=HIDDEN // 2, rope_theta=5e6, rope_scaling=rope),
        "vision_config": {
            **_vision("qwen3_vl", patch_size=16, hidden_act="gelu_pytorch_tanh"),
            "depth": 2,
            "num_heads": 1,
            "in_channels": 3,
            "temporal_patch_size": 2,
            "spatial_merge_size": 2,
            "out_hidden_size": HIDDEN,
            "num_position_embeddings": 2304,
            "deepstack_visual_indexes": [0],
        },
    }
    steps = {"patch_size": 16, "temporal_patch_size": 2, "merge_size": 2, "image_mean": HALF, "image_std": HALF}
    named = {"processor_class": "Qwen3VLProcessor", **steps}
    _write(
        folder,
        tokenizer,
        _Chat(tuple(tiny_model.SPECIAL_TOKENS), tiny_model.END_OF_TURN, tiny_model.END_OF_TEXT, "", _CHATML, ""),
        processor_class="Qwen3VLProcessor",
        template=tiny_model.CHAT_TEMPLATE,
        files={
            "config.json": config,
            "preprocessor_config.json": {
                "image_processor_type": "Qwen2VLImageProcessorFast",
                "size": {"shortest_edge": 65536, "longest_edge": 16777216},
                **named,
            },
            "video_preprocessor_config.json": {
                "video_processor_type": "Qwen3VLVideoProcessor",
                "size": {"shortest_edge": 4096, "longest_edge": 25165824},
                **named,
            },
        },
    )


def _internvl(folder: pathlib.Path) -> None:
    tokenizer = make_tokenizer(_INTERNVL.special_tokens)
    config = {
        "architectures": ["InternVLForConditionalGeneration"],
        "model_type": "internvl",
        "torch_dtype": "bfloat16",
        "image_token_id": tokenizer.token_to_id("<IMG_CONTEXT>"),
        "image_seq_length": 256,
        "downsample_ratio": 0.5,
        "projector_hidden_act": "gelu",
        "vision_feature_layer": -1,
        "vision_feature_select_strategy": "default",
        "text_config": _text("qwen2", tokenizer, architectures=["Qwen2ForCausalLM"]),
        "vision_config": {
            **_vision("internvl_vision", image_size=[448, 448], patch_size=[14, 14], attention_bias=True),
            "num_hidden_layers": 2,
            "num_attention_heads": 1,
            "use_qk_norm": False,
            "norm_type": "layer_norm",
            "use_absolute_position_embeddings": True,
        },
    }
    pictures = {"size": {"height": 448, "width": 448}, "image_mean": HALF, "image_std": HALF}
    _write(
        folder,
        tokenizer,
        _INTERNVL,
        processor_class="InternVLProcessor",
        tokens={
            "start_image_token": "<img>",
            "end_image_token": "</img>",
            "context_image_token": "<IMG_CONTEXT>",
            "video_token": "<video>",
        },
        files={
            "config.json": config,
            "preprocessor_config.json": {
                "image_processor_type": "GotOcr2ImageProcessorFast",
                "processor_class": "InternVLProcessor",
                "crop_to_patches": False,
                "min_patches": 1,
                "max_patches": 12,
                "resample": 3,
                "do_resize": True,
                "do_rescale": True,
                "do_normalize": True,
                "do_convert_rgb": True,
                "rescale_factor": 1 / 255,
                **pictures,
            },
            "processor_config.json": {"processor_class": "InternVLProcessor", "image_seq_length": 256},
            "video_preprocessor_config.json": {
                "video_processor_type": "InternVLVideoProcessor",
                "processor_class": "InternVLProcessor",
                **pictures,
            },
        },
    )


def _llava(folder: pathlib.Path) -> None:
    tokenizer = make_tokenizer(_LLAVA.special_tokens)
    config = {
        "architectures": ["LlavaForConditionalGeneration"],
        "model_type": "llava",
        "torch_dtype": "bfloat16",
        "image_token_index": tokenizer.token_to_id("<image>"),
        "image_seq_length": 576,
        "projector_hidden_act": "gelu",
        "vision_feature_layer": -2,
        "vision_feature_select_strategy": "default",
        "text_config": _text("llama", tokenizer, architectures=["LlamaForCausalLM"], rope_theta=10000.0),
        "vision_config": {
            **_vision("clip_vision_model", image_size=336, patch_size=14, projection_dim=VISION_HIDDEN),
            "num_hidden_layers": 2,
            "num_attention_heads": 1,
            "vocab_size": 512,
        },
    }
    _write(
        folder,
        tokenizer,
        _LLAVA,
        processor_class="LlavaProcessor",
        files={
            "config.json": config,
            "preprocessor_config.json": {
                "image_processor_type": "CLIPImageProcessor",
                "processor_class": "LlavaProcessor",
                "crop_size": {"height": 336, "width": 336},
                "size": {"shortest_edge": 336},
                "resample": 3,
                "do_center_crop": True,
                "do_resize": True,
                "do_rescale": True,
                "do_normalize": True,
                "do_convert_rgb": True,
                "rescale_factor": 1 / 255,
                "image_mean": HALF,
                "image_std": HALF,
            },
            "processor_config.json": {
                "processor_class": "LlavaProcessor",
                "image_token": "<image>",
                "patch_size": 14,
                "num_additional_image_tokens": 1,
                "vision_feature_select_strategy": "default",
            },
        },
    )


def _gemma3(folder: pathlib.Path) -> None:
    tokenizer = make_tokenizer(_GEMMA3.special_tokens, _GEMMA3.plain_tokens)
    text = _text("gemma3_text", tokenizer, num_hidden_layers=12, head_dim=HIDDEN // 2, tie_word_embeddings=True)
    text |= {"sliding_window": WINDOW_TOKENS, "sliding_window_pattern": 6, "rope_local_base_freq": 10000.0}
    text |= {"query_pre_attn_scalar": HIDDEN // 2, "hidden_activation": "gelu_pytorch_tanh"}
    config = {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "model_type": "gemma3",
        "torch_dtype": "bfloat16",
        "boi_token_index": tokenizer.token_to_id("<start_of_image>"),
        "eoi_token_index": tokenizer.token_to_id("<end_of_image>"),
        "image_token_index": tokenizer.token_to_id("<image_soft_token>"),
        "mm_tokens_per_image": 256,
        "eos_token_id": [tokenizer.token_to_id(token) for token in ("<eos>", "<end_of_turn>")],
        "text_config": text,
        "vision_config": {
            **_vision("siglip_vision_model", image_size=896, patch_size=14, vision_use_head=False),
            "num_hidden_layers": 2,
            "num_attention_heads": 1,
        },
    }
    _write(
        folder,
        tokenizer,
        _GEMMA3,
        processor_class="Gemma3Processor",
        tokens={
            "boi_token": "<start_of_image>",
            "eoi_token": "<end_of_image>",
            "image_token": "<image_soft_token>",
        },
        files={
            "config.json": config,
            "preprocessor_config.json": {
                "image_processor_type": "Gemma3ImageProcessor",
                "processor_class": "Gemma3Processor",
                "size": {"height": 896, "width": 896},
                "image_seq_length": 256,
                "resample": 2,
                "do_resize": True,
                "do_rescale": True,
                "do_normalize": True,
                "do_pan_and_scan": None,
                "rescale_factor": 1 / 255,
                "image_mean": HALF,
                "image_std": HALF,
            },
            "processor_config.json": {"processor_class": "Gemma3Processor", "image_seq_length": 256},
        },
    )


def _text(model_type: str, tokenizer: Tokenizer, **more: Any) -> dict[str, Any]:
    return {
        "model_type": model_type,
        "vocab_size": tokenizer.get_vocab_size(),
        "hidden_size": HIDDEN,
        "intermediate_size": 2 * HIDDEN,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "hidden_act": "silu",
        "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
        "initializer_range": 0.02,
        "attention_dropout": 0.0,
        "tie_word_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": 1,
        "torch_dtype": "bfloat16",
        **more,
    }


def _vision(model_type: str, **more: Any) -> dict[str, Any]:
    hidden = {"hidden_size": VISION_HIDDEN, "intermediate_size": 2 * VISION_HIDDEN}
    return {"model_type": model_type, **hidden, "initializer_range": 0.02, **more}


def _write(
    folder: pathlib.Path,
    tokenizer: Tokenizer,
    chat: _Chat,
    *,
    processor_class: str,
    files: dict[str, Any],
    tokens: dict[str, str] | None = None,
    template: str | None = None,
) -> None:
    """`tokens` are those that the processor asks its tokenizer for by name."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    named = {**tokens, "extra_special_tokens": tokens} if tokens else {}
    config = tokenizer_config(
        tokenizer,
        chat.special_tokens,
        processor_class=processor_class,
        eos=chat.eos,
        pad=chat.pad,
        bos=chat.bos,
    )
    generation = {"eos_token_id": tokenizer.token_to_id(chat.eos), "pad_token_id": tokenizer.token_to_id(chat.pad)}
    write_files(
        folder,
        {**files, "tokenizer_config.json": config | named, "generation_config.json": generation},
        template or chat.template,
    )


TINY_FAMILIES = (
    TinyFamily("qwen3_vl", _qwen3_vl),
    # Its dearest image needs more than the encoder cache that comes with the default, 2,048 tokens.
    TinyFamily("internvl_hf", _internvl, ("--max-num-batched-tokens", "8192")),
    TinyFamily("llava_1_5", _llava),
    TinyFamily("gemma3", _gemma3),
)
