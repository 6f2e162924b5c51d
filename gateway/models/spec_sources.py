"""Where a model's spec comes from: a folder, the cache of the Hugging Face hub or the built-in table, surest first.

Another place to look, such as the hub itself, is one more `Finder`.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from gateway.domain.memory.config_spec import spec_from_config
from gateway.domain.memory.defaults import NotPlannableError
from gateway.domain.memory.plan import ModelSpec
from gateway.models.known_specs import known_spec, known_specs
from gateway.models.processor_config import read_json, read_model_folder
from gateway.models.weight_files import loaded_bytes

Finder = Callable[[str], Path | None]
"""From a model's id to a folder with its config.json; None: it is not there."""


def find_spec(model: str, finders: Sequence[Finder]) -> ModelSpec:
    """Raises NotPlannableError for a model that nobody knows, ModelFilesError for files that cannot be read."""
    for find in finders:
        folder = find(model)
        if folder is not None:
            return spec_from_folder(model, folder)
    spec = known_spec(model)
    if spec is None:
        raise NotPlannableError(
            f"{model} is neither a folder with a config.json, nor in the cache of the hub, nor built in. "
            f"Built in are {', '.join(sorted(known_specs()))}"
        )
    return replace(spec, name=model)


def spec_from_folder(model: str, folder: Path) -> ModelSpec:
    """Raises NotPlannableError or ModelFilesError."""
    config = read_json(folder / "config.json")
    files = read_model_folder(folder)
    quantised = "quantization_config" in config
    return spec_from_config(
        model,
        config,
        files.sources if files.image_processor is not None else (),
        source=f"config.json in {folder}",
        file_bytes=loaded_bytes(folder, is_quantised=quantised),
    )


def own_folder(model: str) -> Path | None:
    """The id is a folder itself."""
    folder = Path(model).expanduser()
    return folder if (folder / "config.json").is_file() else None


def hub_cache(environment: Mapping[str, str] = os.environ) -> Finder:
    """The newest snapshot of the model in the cache that `huggingface_hub` keeps."""
    home = Path(environment.get("HF_HOME") or "~/.cache/huggingface").expanduser()
    cache = Path(environment.get("HF_HUB_CACHE") or home / "hub")

    def find(model: str) -> Path | None:
        snapshots = cache / f"models--{model.replace('/', '--')}" / "snapshots"
        found = [each for each in snapshots.glob("*") if (each / "config.json").is_file()]
        return max(found, key=lambda each: each.stat().st_mtime, default=None)

    return find
