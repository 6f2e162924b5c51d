"""Starts of vLLM that were observed, as a cases file writes them: what each was started with, and what it showed.

The format is that of tests/data/memory_cases.json. A case often lacks something; what then cannot be compared is said
with the reason, and the rest is compared all the same.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from zlib import crc32

from gateway.domain.memory.gpus import gpu_of, is_supported, known_total_gib
from gateway.domain.memory.plan import Flags, Gpu, ModelSpec, Version
from gateway.models.known_specs import known_spec

_MEASURED_ON = (Version(0, 19), Version(0, 23))
"""The newest that the constants were measured on, of 0.1x and of 0.2x."""
_SCHEMES = {
    "bitsandbytes": r"bnb|bitsandbytes|unsloth",
    "awq": r"awq",
    "gptq": r"gptq",
    "w8a8": r"w8a8",
    "fp8": r"fp8",
    "gguf": r"gguf",
    "another scheme": r"quantised|quantized|nvfp4|mxfp4|modelopt|[48]-?bit|int[48]|w4a16",
}
_GIB = r"(?<![\d.])(\d+(?:\.\d+)?) GiB"
_FOREIGN = re.compile(
    r"other process(?:es)?\D{1,30}?{0}|{0}\D{1,30}?other process|{0} foreign".replace("{0}", _GIB), re.IGNORECASE
)
_LARGEST = 1e12
"""Beyond it no number of a case is meant."""
_POOLING = re.compile(r"\b(e5|gte|bge)-|embed|rerank", re.IGNORECASE)
_SMALL_CARD = Gpu("a small card", 24.0)
"""For the weights alone, which depend on the card by a default only."""


class CaseError(ValueError):
    """A case that cannot be read; the text says why."""


@dataclass(frozen=True, slots=True)
class Case:
    """`spec` is None where the geometry is not known, `gpu` where its memory is not. `shows_utilisation` also where the
    case says that it was left at its default.
    """

    id: str
    is_v0: bool
    version: Version
    spec: ModelSpec | None
    gpu: Gpu | None
    is_supported_card: bool
    flags: Flags
    shows_utilisation: bool
    observed: Mapping[str, Any]

    @property
    def is_fitted_on(self) -> bool:
        """Of the half that constants were set on; the other half only measures them."""
        return crc32(self.id.encode()) % 2 == 0

    @property
    def gpu_for_weights(self) -> Gpu:
        return self.gpu or _SMALL_CARD

    @property
    def kv_gib(self) -> float | None:
        """As it was printed."""
        return _number(self.observed, "kv_cache_gib")

    @property
    def weights_gib(self) -> float | None:
        return _number(self.observed, "weights_gib")

    @property
    def kv_tokens(self) -> int | None:
        return _whole(self.observed, "kv_cache_tokens")

    @property
    def kv_blocks(self) -> int | None:
        return _whole(self.observed, "num_gpu_blocks")

    @property
    def failed_in(self) -> str | None:
        """The phase as the file names it, None where the server started."""
        phase = self.observed.get("oom_phase")
        return str(phase) if phase else None

    @property
    def has_started(self) -> bool:
        shown = ("kv_cache_gib", "kv_cache_tokens", "num_gpu_blocks", "activation_peak_gib", "cuda_graph_gib")
        return self.failed_in is None and any(self.observed.get(key) is not None for key in shown)


def read_case(case: object) -> Case:
    """Raises CaseError."""
    if not isinstance(case, Mapping) or not case.get("id"):
        raise CaseError("no object with an id")
    flags, observed = _object(case, "flags"), _object(case, "observed")
    name = str(case.get("model") or "")
    card, total = str(case.get("gpu") or "not stated"), _above_nothing(case, "gpu_mem_gib")
    total = total or known_total_gib(card)
    return Case(
        id=str(case["id"]),
        is_v0=case.get("engine") == "V0",
        version=version_of(str(case.get("vllm_version") or "")),
        spec=_spec(case.get("spec_ref"), name, flags),
        gpu=gpu_of(card, total, _foreign_gib(case)) if total else None,
        is_supported_card=is_supported(card),
        flags=_flags(case, flags, observed),
        shows_utilisation="gpu_memory_utilization" in flags,
        observed=observed,
    )


def _foreign_gib(case: Mapping[str, Any]) -> float:
    """What other processes hold, which cases tell in their notes."""
    found = _FOREIGN.search(str(case.get("notes") or ""))
    return float(next(filter(None, found.groups()))) if found else 0.0


def version_of(text: str) -> Version:
    """Of `0.9.1.dev287`, `0.8.x`, `0.12 (a plugin)`. One told by its first digit alone, or not at all, is taken as the
    newest of those that were measured.
    """
    found = re.search(r"(\d+)\.(\d+)(?!\d*x)(?:\.(\d+))?", text)
    if found:
        return Version(int(found[1]), int(found[2]), int(found[3] or 0))
    return _MEASURED_ON[1] if "0.2x" in text else _MEASURED_ON[0]


def _spec(reference: object, name: str, flags: Mapping[str, Any]) -> ModelSpec | None:
    spec = known_spec(str(reference)) if reference else None
    if spec is None:
        return None
    told = f"{name} {flags.get('quantization') or ''}".lower()
    scheme = next((scheme for scheme, pattern in _SCHEMES.items() if re.search(pattern, told)), None)
    if scheme and "runtime" in told:
        scheme = "another scheme"
    return replace(spec, quantization=scheme, is_pooling=bool(_POOLING.search(name)))


def _flags(case: Mapping[str, Any], flags: Mapping[str, Any], observed: Mapping[str, Any]) -> Flags:
    limits, options = flags.get("limit_mm_per_prompt"), flags.get("mm_processor_kwargs")
    return Flags(
        gpu_memory_utilization=_share(flags, "gpu_memory_utilization"),
        max_model_len=_count(flags, "max_model_len"),
        max_num_seqs=_count(flags, "max_num_seqs"),
        max_num_batched_tokens=_count(flags, "max_num_batched_tokens"),
        tensor_parallel_size=_count(case, "tp") or 1,
        dtype=str(flags.get("dtype") or "auto"),
        kv_cache_dtype=str(flags.get("kv_cache_dtype") or "auto"),
        block_size=_count(observed, "block_size") or 16,
        enforce_eager=bool(flags.get("enforce_eager")),
        limit_mm_per_prompt=_limits(limits) if isinstance(limits, Mapping) else {},
        mm_processor_kwargs=dict(options) if isinstance(options, Mapping) else {},
        mm_encoder_tp_mode=str(flags.get("mm_encoder_tp_mode") or "weights"),
    )


def _limits(limits: Mapping[str, Any]) -> dict[str, int]:
    """Counts alone; what is told in another way is no limit that changes a plan."""
    return {name: count for name, count in limits.items() if isinstance(count, int) and count >= 0}


def _object(case: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = case.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise CaseError(f"{key} is no object")
    return value


def _number(values: Mapping[str, Any], key: str) -> float | None:
    value = values.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= _LARGEST:
        raise CaseError(f"{key} is no number: {str(value)[:40]!r}")
    return float(value)


def _whole(values: Mapping[str, Any], key: str) -> int | None:
    value = _number(values, key)
    return None if value is None else int(value)


def _above_nothing(values: Mapping[str, Any], key: str) -> float | None:
    value = _number(values, key)
    if value is not None and value <= 0:
        raise CaseError(f"{key} must be above 0: {value:g}")
    return value


def _count(values: Mapping[str, Any], key: str) -> int | None:
    value = _above_nothing(values, key)
    if value is not None and value != int(value):
        raise CaseError(f"{key} is no whole number: {value:g}")
    return None if value is None else int(value)


def _share(values: Mapping[str, Any], key: str) -> float | None:
    value = _above_nothing(values, key)
    if value is not None and value > 1:
        raise CaseError(f"{key} must be at most 1: {value:g}")
    return value
