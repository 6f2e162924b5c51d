"""Flags that exist and do not do what they are often given for, or whose value is refused: one rule for each, which
looks at the value.
"""

from collections.abc import Callable, Mapping
from typing import Any

from gateway.domain.doctor.measured import Start
from gateway.domain.doctor.versions import version_of

_HIGH_UTILISATION = 0.97
_FEWEST_PIXELS = 28 * 28 * 64
"""A limit below this is a number of tokens that was taken for one of pixels: an image of 64 tokens shows nothing."""
_MANY_SEQUENCES = 512
_LIMITS_ARE_JSON_SINCE = (0, 10)
_NEAR_KEYS = frozenset(
    {"max_pixel", "maxpixels", "max_image_pixels", "image_max_pixels", "max-pixels", "pixels", "max_tokens"}
)


def _utilisation(value: Any, _start: Start) -> str | None:
    if isinstance(value, int | float) and value >= _HIGH_UTILISATION:
        return (
            f"{1 - value:.0%} of the card is left for fragmentation, CUDA graphs and peaks that the profile run "
            f"did not "
            "see. 0.92 is the default; above 0.95 servers fail at run time rather than at start."
        )
    return None


def _limit_mm(value: Any, start: Start) -> str | None:
    if isinstance(value, str):
        return f"NAME=NUMBER is an error since 0.10: write --limit-mm-per-prompt '{as_json_limits(value)}'."
    if not isinstance(value, dict):
        return None
    counts = {str(name): count for name, count in value.items() if isinstance(count, int)}
    reserved = [f"{name} {count}" for name, count in counts.items() if count > 0]
    if start.profiled_modality == "video" and counts.get("video") != 0:
        return (
            "Video is allowed, and the profile run took it, the most expensive kind. If clients send none, "
            "'{\"video\": 0}' takes it out; that is what saves memory."
        )
    if reserved and 0 not in counts.values():
        return (
            f"A count above 0 ({', '.join(reserved)}) sizes no memory: vLLM reserves for the largest item that is "
            f"allowed, "
            "whatever their number. Only 0 takes a kind out; smaller images need max_pixels."
        )
    return None


def _processor_kwargs(value: Any, _start: Start) -> str | None:
    if not isinstance(value, dict):
        return None
    near = [name for name in value if name.lower() in _NEAR_KEYS]
    if near:
        return f"{near[0]} is no key of any image processor, and unknown keys are ignored. The key is max_pixels."
    most = value.get("max_pixels")
    if isinstance(most, int) and 0 < most < _FEWEST_PIXELS:
        return (
            f"max_pixels {most} is an area of pixels: images of about {int(most**0.5)} x {int(most**0.5)}. If "
            f"{most} tokens "
            f"were meant, for Qwen2.5-VL (28 x 28 pixels a token) that is {most * 784:,}."
        )
    return None


def _processor_cache(value: Any, _start: Start) -> str | None:
    if value == 0:
        return (
            "This cache of preprocessed inputs is in host memory; 0 frees no GPU memory and costs CPU time. The "
            "encoder "
            "cache on the GPU has no switch."
        )
    return None


def _sequences(value: Any, _start: Start) -> str | None:
    if isinstance(value, int) and value > _MANY_SEQUENCES:
        return (
            f"The sampler's buffers grow with it: {value} rows of 152,000 logits take up to "
            f"{value * 152_000 * 39 / 2**30:.1f} GiB. It does not bound the KV cache; long prompts do that."
        )
    return None


def _mm_encoder_tp(value: Any, _start: Start) -> str | None:
    if value == "data":
        return "Every GPU keeps the whole vision tower; the batch is split instead of the weights. `weights` shards it."
    return None


def _executor(value: Any, start: Start) -> str | None:
    if value == "ray" and start.setting("nnodes") in {None, 1}:
        return "Ray is not needed on one machine, and how weights are sharded does not depend on it."
    return None


def _quantization(value: Any, _start: Start) -> str | None:
    if value in {"awq", "gptq"}:
        return (
            f"It names the format of the checkpoint; a checkpoint of 16 bits is not made smaller by it. vLLM "
            f"reads the format "
            f"from the checkpoint and picks faster kernels ({value}_marlin) if it is left out."
        )
    return None


def _kv_memory(value: Any, start: Start) -> str | None:
    if value and "gpu_memory_utilization" in start.flags:
        return "It sets the pool by hand, and then --gpu-memory-utilization has no say."
    return None


def _always(text: str) -> Callable[[Any, Start], str | None]:
    return lambda value, _start: text if value is not None and value is not False else None


MISLEADING: Mapping[str, Callable[[Any, Start], str | None]] = {
    "gpu_memory_utilization": _utilisation,
    "limit_mm_per_prompt": _limit_mm,
    "mm_processor_kwargs": _processor_kwargs,
    "mm_processor_cache_gb": _processor_cache,
    "max_num_seqs": _sequences,
    "mm_encoder_tp_mode": _mm_encoder_tp,
    "distributed_executor_backend": _executor,
    "quantization": _quantization,
    "kv_cache_memory_bytes": _kv_memory,
    "max_parallel_loading_workers": _always("It is taken and ignored: vLLM logs that it is not supported."),
    "num_gpu_blocks_override": _always("It is for tests: it replaces what was measured, in either direction."),
    "skip_mm_profiling": _always(
        "The vision tower's peak is then not reserved: what fails at start without it fails at run time with it."
    ),
    "enforce_eager": _always("It saves the memory of CUDA graphs and makes every token slower; take it last."),
    "enable_prefix_caching": lambda value, _start: (
        "It is on by default. It reuses KV blocks; the vision tower's output has a cache of its own."
        if value is True
        else None
    ),
    "cpu_offload_gb": lambda value, _start: (
        f"{value} GiB of weights go over the bus for every step: it makes a model fit, and slow." if value else None
    ),
}


def is_refused(name: str, start: Start) -> bool:
    """Whether vLLM ends with an error over this value; of an unknown version, the newest."""
    version = version_of(start.version)
    is_older = version is not None and version < _LIMITS_ARE_JSON_SINCE
    return name == "limit_mm_per_prompt" and isinstance(start.flags[name], str) and not is_older


def as_json_limits(text: str) -> str:
    """`image=1,video=0` as the JSON that vLLM reads today; what is of no such form, as an example."""
    pairs = [piece.partition("=") for piece in text.strip("'\" {}").split(",")]
    if all(name.strip().isidentifier() and count.strip().isdigit() for name, _, count in pairs):
        return "{" + ", ".join(f'"{name.strip()}": {count.strip()}' for name, _, count in pairs) + "}"
    return '{"image": 1, "video": 0}'
