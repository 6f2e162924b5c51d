"""Where a model's own files may lie, and what lies there: the folder that the server loads, where this process can read
it; a Hugging Face cache on a shared volume; the hub. Only the small JSON files are looked at, never weights.

The layout of the cache is read here and not by huggingface_hub, which the default install has not; a test compares.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from gateway.domain.quoting import quoted
from gateway.models.identity import FamilySource, FoundFiles
from gateway.models.processor_config import (
    CONFIG_FILE,
    PREPROCESSOR_FILE,
    PROCESSOR_FILE,
    VIDEO_FILE,
    ModelFiles,
    ModelFilesError,
    read_model_folder,
)
from gateway.models.repository import Repository, repository_of

FILES = (CONFIG_FILE, PREPROCESSOR_FILE, PROCESSOR_FILE, VIDEO_FILE)
MOST_FILE_BYTES = 8 << 20
"""The largest published ones have a tenth of it: a larger one is none that was meant."""

_REVISION = re.compile(r"\w[\w.-]*")


class HubError(Exception):
    """The hub did not give a model's files; the text says why, and what to do. `is_final`: asking again is no use."""

    def __init__(self, problem: str, *, is_final: bool = True) -> None:
        super().__init__(problem)
        self.is_final = is_final


Download = Callable[[Repository], Path]
"""Brings a repository's small files into a folder. Raises HubError."""


class Look(NamedTuple):
    """What was found, if anything; sentences about what was in the way, and whether to look again later."""

    found: FoundFiles | None = None
    troubles: tuple[str, ...] = ()
    is_worth_another: bool = False


@dataclass(frozen=True, slots=True)
class Places:
    """`cache_folder` None: there is no cache. `download` None: the hub is not asked."""

    cache_folder: Path | None = None
    download: Download | None = None

    def look(self, name: str, root: str | None) -> Look:
        """For the model that is served by `name`, loaded from `root`. May wait for discs and the hub; never raises."""
        troubles: list[str] = []
        for place, folder in self._folders(name, root):
            try:
                return Look(FoundFiles(_read(folder), place), tuple(troubles))
            except Exception as error:  # noqa: BLE001 - nobody here wrote these files
                troubles.append(f"{folder}: {_told(error)}")
        repository = _repository(name, root)
        if self.download is None or repository is None:
            return Look(None, tuple(troubles))
        try:
            return Look(FoundFiles(_read(self.download(repository)), FamilySource.HUB), tuple(troubles))
        except Exception as error:  # noqa: BLE001 - as above
            is_worth_another = isinstance(error, HubError) and not error.is_final
            return Look(None, (*troubles, f"hub: {repository.id}: {_told(error)}"), is_worth_another)

    def _folders(self, name: str, root: str | None) -> Iterator[tuple[FamilySource, Path]]:
        """Of this machine, those that have the file that every model has."""
        if root is not None and Path(root).is_absolute() and _has_config(Path(root)):
            yield FamilySource.SERVER_FOLDER, Path(root)
        repository = _repository(name, root)
        if self.cache_folder is not None and repository is not None:
            folder = snapshot_folder(self.cache_folder, repository)
            if folder is not None:
                yield FamilySource.CACHE, folder


def cache_folder_of(setting: str | None, environment: Mapping[str, str]) -> Path | None:
    """The setting, else as huggingface_hub finds it; None where there is no such folder."""
    home = environment.get("HF_HOME") or f"{environment.get('XDG_CACHE_HOME') or '~/.cache'}/huggingface"
    try:
        folder = Path(setting or environment.get("HF_HUB_CACHE") or f"{home}/hub").expanduser()
        return folder if folder.is_dir() else None
    except (OSError, RuntimeError):  # not to be read; or a user without a home, whom expanduser refuses
        return None


def snapshot_folder(cache_folder: Path, repository: Repository) -> Path | None:
    """The files of a repository as a cache has them: of its revision, else of `main`, else the only ones there are."""
    base = cache_folder / f"models--{repository.id.replace('/', '--')}"
    try:
        revision = repository.revision or _main_of(base)
    except OSError:
        return None
    if revision is None or _REVISION.fullmatch(revision) is None:
        return None
    folder = base / "snapshots" / revision
    return folder if _has_config(folder) else None


def _main_of(base: Path) -> str | None:
    """Raises OSError where there is no such repository."""
    reference = base / "refs" / "main"
    if reference.is_file():
        return reference.read_text(encoding="utf-8", errors="replace").strip()
    revisions = [each.name for each in (base / "snapshots").iterdir()]
    return revisions[0] if len(revisions) == 1 else None


def _repository(name: str, root: str | None) -> Repository | None:
    """What the server was given to load, where that is a repository; else the served name may be one."""
    return (repository_of(root) if root else None) or repository_of(name)


def _has_config(folder: Path) -> bool:
    try:
        return (folder / CONFIG_FILE).is_file()
    except OSError:
        return False


def _told(error: Exception) -> str:
    """Sentences of this house as they are; of what nobody foresaw, its kind too."""
    is_sentence = isinstance(error, ModelFilesError | HubError | OSError)
    return str(error) if is_sentence else f"cannot be made sense of: {quoted(error)}"


def _read(folder: Path) -> ModelFiles:
    """Raises ModelFilesError, OSError."""
    for name in FILES:
        path = folder / name
        if path.is_file() and path.stat().st_size > MOST_FILE_BYTES:
            raise ModelFilesError(name, f"has {path.stat().st_size} bytes, and no more than {MOST_FILE_BYTES} are read")
    return read_model_folder(folder)
