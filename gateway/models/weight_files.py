"""How many bytes a checkpoint's weights take once loaded, from the headers of its safetensors files alone."""

import json
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any

from gateway.models.processor_config import ModelFilesError, read_json

_INDEX = "model.safetensors.index.json"
_LARGEST_HEADER = 100_000_000
"""As the format itself limits it."""
_POINTER_START = b"version "
_BYTES = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "BF16": 2, "F16": 2, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}


def loaded_bytes(folder: Path, *, is_quantised: bool) -> int | None:
    """None where the folder has no such files. Tensors of 32 bits are loaded in 16, but for those that belong to a
    quantisation. Of files that are named by the index and not there, its total stands for all.

    Raises ModelFilesError for a file that cannot be read.
    """
    index = folder / _INDEX
    if index.exists():
        content = read_json(index)
        named = sorted(set(_object(content, "weight_map").values()))
        if not all((folder / str(name)).exists() for name in named):
            return _total_size(content)
    else:
        named = sorted(path.name for path in folder.glob("*.safetensors") if not path.name.startswith("consolidated"))
    if not named:
        return None
    return sum(_file_bytes(folder / str(name), halves=not is_quantised) for name in named)


def _total_size(index: Mapping[str, Any]) -> int | None:
    total = _object(index, "metadata").get("total_size")
    return total if isinstance(total, int) else None


def _object(values: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = values.get(key)
    return value if isinstance(value, Mapping) else {}


def _file_bytes(path: Path, *, halves: bool) -> int:
    return sum(
        prod(shape) * (2 if halves and dtype == "F32" else _BYTES.get(dtype, 1)) for dtype, shape in _tensors(path)
    )


def _tensors(path: Path) -> Iterator[tuple[str, list[int]]]:
    """Each tensor's type and shape. The file begins with the length of its header, which is JSON."""
    try:
        with path.open("rb") as file:
            header = json.loads(file.read(_header_length(path.name, file.read(8))))
    except ModelFilesError:
        raise
    except (OSError, ValueError) as broken:
        raise ModelFilesError(path.name, f"cannot be read: {broken}") from broken
    tensors = (
        [tensor for name, tensor in header.items() if name != "__metadata__"] if isinstance(header, dict) else [None]
    )
    for tensor in tensors:
        if not isinstance(tensor, dict):
            raise ModelFilesError(path.name, "its header is no object of tensors")
        yield str(tensor.get("dtype")), list(tensor.get("shape") or ())


def _header_length(name: str, start: bytes) -> int:
    if start == _POINTER_START:
        raise ModelFilesError(name, "is a pointer of Git LFS and not the file: run git lfs pull")
    length = int.from_bytes(start, "little")
    if length > _LARGEST_HEADER:
        raise ModelFilesError(name, f"is no safetensors file: a header of {length} bytes")
    return length
