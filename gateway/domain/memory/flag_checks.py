"""Values of flags that vLLM refuses: each by itself, and where it contradicts another flag or the model."""

import math
from collections.abc import Mapping
from difflib import get_close_matches

from gateway.domain.memory.defaults import NotPlannableError
from gateway.domain.memory.plan import Flags, ModelSpec

_CHOICES: Mapping[str, tuple[str, ...]] = {
    "dtype": ("auto", "half", "float16", "bfloat16", "float", "float32"),
    "kv-cache-dtype": (
        "auto", "float16", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc", "fp8_ds_mla",
        "fp8_per_token_head", "int8_per_token_head",
    ),
    "block-size": ("1", "8", "16", "32", "64", "128", "256"),
    "mm-encoder-tp-mode": ("weights", "data"),
    "runner": ("auto", "generate", "pooling"),
}  # fmt: skip
"""Source: vLLM 0.32 `config/model.py`, `config/cache.py`; left out are those whose bytes are not known here."""
_MODALITIES = ("image", "video", "audio", "vision_chunk")
_WHILE_LOADING = ("fp8", "bitsandbytes", "bnb", "int8", "experts_int8", "mxfp8")
"""Schemes that a checkpoint of 16 bits can be brought to while it is loaded; others need one that has them."""


def choice_mistake(name: str, value: str) -> str | None:
    """What is wrong with the value of that flag; None: nothing."""
    choices = _CHOICES[name]
    return None if value in choices else f"--{name} {value}: write one of {', '.join(choices)}"


def modality_mistake(modality: str) -> str | None:
    """The same of a name under --limit-mm-per-prompt, where vLLM would keep a misspelt one without effect."""
    if modality in _MODALITIES:
        return None
    close = get_close_matches(modality, _MODALITIES, n=1)
    hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(_MODALITIES)}"
    return f"--limit-mm-per-prompt: {modality} is no modality; {hint}"


def amount_mistake(name: str, value: float) -> str | None:
    """The same of GiB that may be none."""
    return None if 0 <= value < math.inf else f"--{name} {value:g}: write GiB, 0 or more"


def refuse_contradictions(model: ModelSpec, flags: Flags, complete: Flags) -> None:
    """`flags` as they were given, `complete` with defaults. Raises NotPlannableError."""
    own, length = model.text.max_positions, complete.max_model_len or 0
    if own is not None and length > own:
        raise NotPlannableError(
            f"--max-model-len {length}: vLLM refuses more than the {own:,} tokens of {model.name}'s own context, "
            "unless its config.json scales the rope; give the folder of one that does as --model"
        )
    tokens = complete.max_num_batched_tokens or 0
    if (flags.max_num_seqs or 0) > tokens:
        raise NotPlannableError(
            f"--max-num-seqs {flags.max_num_seqs} is above --max-num-batched-tokens {tokens}, which vLLM refuses: "
            "every sequence may take one token of a batch"
        )
    scheme = flags.quantization
    if scheme is not None and model.quantization is None and not scheme.lower().startswith(_WHILE_LOADING):
        raise NotPlannableError(
            f"--quantization {scheme}: {model.name} is not quantised so, and vLLM brings no checkpoint to it while it "
            "loads; give the id or the folder of one that is, with --hub if it is on the hub"
        )
