"""The layers of a language model that keep keys and values, from its configuration: kind, window, bytes. Pure.

What a file leaves out is what the configuration class of its `model_type` assumes.
Sources: transformers 5.19 `models/*/configuration_*.py` (defaults and patterns); vLLM 0.32 `engine/arg_utils.py` (a
window without `layer_types` is every layer's) and `model_executor/models/`: `commandr.py` (one token more),
`llama4.py`, `gemma3n.py` and `gemma4.py` (the last layers look into the cache of earlier ones).
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gateway.domain.kv_layout import Kind, KvLayout, Layer, group_layers
from gateway.domain.quoting import quoted

_NUMBER_BYTES = 2
"""Of a key or a value: vLLM serves 32-bit checkpoints in 16 bits, and others as they are."""

MOST_LAYERS = 4096
MOST_NUMBER = 2**31
"""The file may be anybody's: each layer is weighed by itself, and what is multiplied should stay a number to show."""


class KvConfigError(ValueError):
    """A configuration that cannot be read; the text names the key."""


class _Class(NamedTuple):
    """What a configuration class assumes: every layer whose number, from 1 on, is a multiple of `period` is of full
    attention and all between are of the kind `others`; 0: all are alike. Windows have `more_tokens` than the file says.
    """

    period: int = 0
    others: Kind = Kind.SLIDING
    window_tokens: int | None = None
    more_tokens: int = 0
    numbers: Mapping[str, int] = {}


_GEMMA = {"num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256}
_GEMMA3 = _Class(6, window_tokens=4096, numbers=_GEMMA)
_GEMMA3N = _Class(
    5,
    window_tokens=512,
    numbers=_GEMMA | {"num_hidden_layers": 35, "num_key_value_heads": 2, "num_kv_shared_layers": 15},
)
_GEMMA4 = _Class(6, window_tokens=512, numbers=_GEMMA | {"num_hidden_layers": 30, "global_head_dim": 512})
_QWEN_HYBRID = _Class(4, Kind.STATE)
_CLASSES: Mapping[str, _Class] = {
    "gemma2": _Class(2, window_tokens=4096, numbers=_GEMMA),
    "gemma3": _GEMMA3,
    "gemma3_text": _GEMMA3,
    "gemma3n_text": _GEMMA3N,
    "gemma4_text": _GEMMA4,
    "cohere2": _Class(4, window_tokens=4096, more_tokens=1),
    "gpt_oss": _Class(2, window_tokens=128),
    "llama4_text": _Class(4, Kind.CHUNKED, window_tokens=8192),
    "qwen3_5_text": _QWEN_HYBRID,
    "qwen3_5_moe_text": _QWEN_HYBRID,
    "qwen3_next": _QWEN_HYBRID,
    "mistral": _Class(window_tokens=4096),
}
_UNKNOWN = _Class()
_PERIODS = ("sliding_window_pattern", "_sliding_window_pattern", "full_attention_interval", "no_rope_layer_interval")
_KINDS = {kind.value: kind for kind in Kind} | dict.fromkeys(("conv", "mamba", "recurrent"), Kind.STATE)
_WINDOW_KEYS = {Kind.SLIDING: "sliding_window", Kind.CHUNKED: "attention_chunk_size"}


def with_class_numbers(text: Mapping[str, Any]) -> Mapping[str, Any]:
    """A language model's configuration with the numbers that its class puts in the place of missing ones."""
    return {**_class_of(text).numbers, **text}


def read_layout(text: Mapping[str, Any]) -> KvLayout | None:
    """The KV groups of the language model with this configuration, unsharded and with a 16-bit cache.

    None where neither the file nor its class says how many layers there are, or of a kind that is not known here.
    Raises KvConfigError.
    """
    layers = read_layers(text)
    return group_layers(layers) if layers else None


def read_layers(text: Mapping[str, Any]) -> tuple[Layer, ...] | None:
    """The layers with a cache of their own, in order. None and errors as `read_layout`."""
    known, text = _class_of(text), with_class_numbers(text)
    number = _number(text, "num_hidden_layers", most=MOST_LAYERS)
    kinds = _kinds(text, known, number) if number else None
    if kinds is None:
        return None
    own = kinds[: number - _number(text, "num_kv_shared_layers")]
    spans = {kind: _span(text, known, kind) for kind in own}
    # A window that is switched off leaves full attention.
    own = [kind if spans[kind] is not None else Kind.FULL for kind in own]
    return tuple(Layer(kind, spans.get(kind) or 0, _token_bytes(text, kind)) for kind in own)


def _class_of(text: Mapping[str, Any]) -> _Class:
    return _CLASSES.get(str(text.get("model_type")), _UNKNOWN)


def _kinds(text: Mapping[str, Any], known: _Class, number: int) -> list[Kind] | None:
    told, rotates = _list(text, "layer_types", number), _list(text, "no_rope_layers", number)
    if told:
        kinds = [_KINDS[kind] for kind in told if isinstance(kind, str) and kind in _KINDS]
        return kinds if len(kinds) == number else None
    if rotates:
        return [known.others if each else Kind.FULL for each in rotates]
    period = next((_number(text, key) for key in _PERIODS if key in text), known.period)
    if not period:
        return [Kind.SLIDING] * number
    return [known.others if (place + 1) % period else Kind.FULL for place in range(number)]


def _span(text: Mapping[str, Any], known: _Class, kind: Kind) -> int | None:
    """Tokens that layers of this kind look at; None where the window is switched off, 0 where there is none."""
    key = _WINDOW_KEYS.get(kind)
    if key is None:
        return 0
    window = known.window_tokens or 0 if key not in text else _number(text, key)
    is_off = not window or (kind is Kind.SLIDING and text.get("use_sliding_window") is False)
    return None if is_off else window + known.more_tokens


def _token_bytes(text: Mapping[str, Any], kind: Kind) -> int:
    """Keys and values of one token; 0 where the file leaves out what it takes, and of states."""
    heads = _number(text, "num_attention_heads")
    kv_heads = _number(text, "num_key_value_heads") or heads
    size = _number(text, "head_dim") or (_number(text, "hidden_size") // heads if heads else 0)
    if kind is Kind.FULL and _number(text, "global_head_dim"):
        size = _number(text, "global_head_dim")
        if text.get("attention_k_eq_v"):
            kv_heads = _number(text, "num_global_key_value_heads") or kv_heads
    return 0 if kind is Kind.STATE else 2 * kv_heads * size * _NUMBER_BYTES


def _number(text: Mapping[str, Any], key: str, most: int = MOST_NUMBER) -> int:
    """0 where it is missing or null."""
    value = text.get(key)
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise KvConfigError(f"{key} must be a whole number of at least 0, not {quoted(value)}")
    if value > most:
        raise KvConfigError(f"{key} must be at most {most}, not {quoted(value)}")
    return value


def _list(text: Mapping[str, Any], key: str, number: int) -> Sequence[Any]:
    """One entry for each layer; nothing where it is missing or empty."""
    value = text.get(key) or ()
    if not isinstance(value, list | tuple) or (value and len(value) < number):
        raise KvConfigError(f"{key} must have an entry for each of {number} layers, not {quoted(value)}")
    return value[:number]
