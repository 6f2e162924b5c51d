"""Where a model's spec comes from: a folder, the cache of the Hugging Face hub, the hub itself or the built-in table,
surest first.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path

from gateway.domain.memory.config_spec import spec_from_config
from gateway.domain.memory.defaults import NotPlannableError
from gateway.domain.memory.plan import ModelSpec
from gateway.models.known_specs import known_spec, known_specs
from gateway.models.places import Download, HubError, cache_folder_of, snapshot_folder
from gateway.models.processor_config import read_json, read_model_folder
from gateway.models.repository import repository_of
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
            f"{model} is neither a folder with a config.json, nor in the cache of the hub, nor built in; --hub fetches "
            f"the files of one that is on the hub. "
            f"{_built_in(model)}"
        )
    return replace(spec, name=model)


def _built_in(model: str) -> str:
    """Those of a similar name."""
    plain = {name.lower(): name for name in known_specs()}
    close = get_close_matches(model.rpartition("/")[2].lower(), plain, n=3)
    if not close:
        return f"{len(plain)} are built in, none of a similar name"
    return f"Built in are {', '.join(plain[name] for name in close)}"


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
    try:
        folder = Path(model).expanduser()
        return folder if (folder / "config.json").is_file() else None
    except (OSError, RuntimeError):  # no name that a folder may have; or a user without a home
        return None


def hub_cache(environment: Mapping[str, str] = os.environ) -> Finder:
    """The model in the cache that `huggingface_hub` keeps, as it was last fetched."""
    cache = cache_folder_of(None, environment)

    def find(model: str) -> Path | None:
        repository = repository_of(model)
        return None if cache is None or repository is None else snapshot_folder(cache, repository)

    return find


def hub_itself(download: Download) -> Finder:
    """The small files of the model, fetched; it may raise HubError."""

    def find(model: str) -> Path | None:
        repository = repository_of(model)
        try:
            return None if repository is None else download(repository)
        except HubError as error:
            raise HubError(f"the hub: {model} {error}") from error

    return find
