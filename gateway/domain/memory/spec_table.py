"""Model specs as the built-in table writes them: the fields of plan.py under their own names."""

from collections.abc import Mapping
from typing import Any

from gateway.domain.memory.plan import ModelSpec, Moe, RopeTable, Sliding, TextSpec, VisionSpec
from gateway.domain.vision.checkpoints import checkpoint_of_model_name

_BUILT_IN = "built-in table"


def is_recalled(spec: ModelSpec) -> bool:
    """Whether nothing of it was read from files of the model."""
    return spec.source.startswith(_BUILT_IN)


def spec_from_row(name: str, row: Mapping[str, Any]) -> ModelSpec:
    """One row of the table."""
    vision = row.get("vision")
    checkpoint = checkpoint_of_model_name(name)
    return ModelSpec(
        name=name,
        source=f"{_BUILT_IN} ({row['origin']}; {row['checked']})",
        text=_text(row["text"]),
        vision=VisionSpec(**vision) if vision else None,
        unsupported=row.get("unsupported"),
        family=row.get("family") or (checkpoint.family if checkpoint and vision else None),
    )


def _text(row: Mapping[str, Any]) -> TextSpec:
    nested: dict[str, Any] = {"rope": tuple(RopeTable(*table) for table in row.get("rope", ()))}
    if "moe" in row:
        nested["moe"] = Moe(**row["moe"])
    if "sliding" in row:
        nested["sliding"] = Sliding(**row["sliding"])
    return TextSpec(**{**row, **nested})


def same_name(asked: str, known: str) -> bool:
    """Whether the id that was asked for means the known model: its last part, in any case and spelling of points."""
    return _plain(asked) == _plain(known)


def _plain(name: str) -> str:
    last = name.rstrip("/").rpartition("/")[2].lower()
    return last.replace("_", "-").replace(".", "-")
