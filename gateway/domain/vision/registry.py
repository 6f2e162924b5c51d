"""Which family prices a model's images: one row per family here, one file per arithmetic beside it.

A row holds the name that settings and oracle files use, the `architectures` of `config.json`, how served names spell
it, the processor configuration that its checkpoints ship, and what reads such a configuration.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gateway.domain.vision import qwen_vl
from gateway.domain.vision.base import ProcessorConfigError, VisionFamily


class UnknownFamilyError(ValueError):
    """No row of that name; the text lists those there are."""

    def __init__(self, family: str) -> None:
        super().__init__(f"unknown model family {family!r}; known are {', '.join(FAMILIES)}")


@dataclass(frozen=True, slots=True)
class Row:
    """`served_name` is a pattern searched in the lower-case model id."""

    architectures: tuple[str, ...]
    shipped_config: Mapping[str, object]
    build: Callable[[str, Mapping[str, object]], VisionFamily]
    served_name: str


_QWEN2 = {"patch_size": 14, "merge_size": 2, "min_pixels": 3136, "max_pixels": 12845056}
_QWEN3 = {"patch_size": 16, "merge_size": 2, "size": {"shortest_edge": 65536, "longest_edge": 16777216}}

FAMILIES: Mapping[str, Row] = {
    "qwen2_vl": Row(
        ("Qwen2VLForConditionalGeneration",),
        _QWEN2,
        qwen_vl.from_config,
        r"qwen[-_]?2[-_]?vl|qvq-72b",
    ),
    "qwen2_5_vl": Row(
        ("Qwen2_5_VLForConditionalGeneration",),
        _QWEN2,
        qwen_vl.from_config,
        r"qwen[-_]?2[._-]5[-_]?vl",
    ),
    "qwen3_vl": Row(
        ("Qwen3VLForConditionalGeneration",),
        _QWEN3,
        qwen_vl.from_config,
        r"qwen[-_]?3[-_]?vl(?!-\d+b-a\d+b)",
    ),
    "qwen3_vl_moe": Row(
        ("Qwen3VLMoeForConditionalGeneration",),
        _QWEN3,
        qwen_vl.from_config,
        r"qwen[-_]?3[-_]?vl-\d+b-a\d+b",
    ),
    "qwen3_5": Row(
        ("Qwen3_5ForConditionalGeneration",),
        _QWEN3,
        qwen_vl.from_config,
        r"qwen[-_]?3[._]5(?!-\d+b-a\d+b)",
    ),
    "qwen3_5_moe": Row(
        ("Qwen3_5MoeForConditionalGeneration",),
        _QWEN3,
        qwen_vl.from_config,
        r"qwen[-_]?3[._]5-\d+b-a\d+b",
    ),
}
"""Shipped values verified in public copies of each checkpoint's preprocessor_config.json."""

_OTHER_MODELS = re.compile(r"embed|rerank|omni|audio|coder")
"""Siblings whose names contain a family's name but whose limits or input differ."""


def family_for(family: str, processor_config: Mapping[str, object] | None) -> VisionFamily:
    """The arithmetic of `family` with a checkpoint's processor configuration, or the shipped one where there is none.

    `processor_config` is the content of preprocessor_config.json, or of processor_config.json with its nested
    `image_processor`. Raises UnknownFamilyError, or ProcessorConfigError naming the key.
    """
    row = FAMILIES.get(family)
    if row is None:
        raise UnknownFamilyError(family)
    return row.build(family, row.shipped_config if processor_config is None else _image_processor(processor_config))


def family_of_architecture(architecture: str) -> str | None:
    """Name of the family that serves an entry of `architectures` in config.json."""
    return next((name for name, row in FAMILIES.items() if architecture in row.architectures), None)


def family_of_model_name(name: str) -> str | None:
    """A careful guess from a served model id such as `Qwen/Qwen2.5-VL-7B-Instruct`; None when it is unsure."""
    lowered = name.lower()
    if _OTHER_MODELS.search(lowered):
        return None
    found = [family for family, row in FAMILIES.items() if re.search(row.served_name, lowered)]
    return found[0] if len(found) == 1 else None


def _image_processor(config: Mapping[str, object]) -> Mapping[str, object]:
    nested = config.get("image_processor", config)
    if not isinstance(nested, Mapping):
        raise ProcessorConfigError("image_processor", f"must be an object, not {nested!r}")
    return nested
