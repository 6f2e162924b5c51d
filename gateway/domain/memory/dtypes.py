"""Bytes of a number, by the names that vLLM's flags and configurations use."""

from gateway.domain.memory.plan import Flags

_BYTES = {"float32": 4, "float": 4, "bfloat16": 2, "float16": 2, "half": 2}


def model_bytes(flags: Flags) -> int:
    """Of a weight that is not quantised, and of an activation. `auto` serves 32-bit checkpoints in 16 bits."""
    return _BYTES.get(flags.dtype, 2)


def kv_bytes(flags: Flags) -> int:
    """Of a key or a value. `auto` is as the model is computed."""
    kind = flags.kv_cache_dtype
    if kind == "auto":
        return model_bytes(flags)
    return 1 if kind.startswith(("fp8", "int8")) else _BYTES.get(kind, 2)
