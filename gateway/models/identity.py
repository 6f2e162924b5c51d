"""Which family a served model is of, and the numbers of its prices. The only place that decides which source wins.

Family: the setting, else the architecture that its files name, else what the server was given to load, else the served
name. Numbers, key by key: the mirrored `--mm-processor-kwargs`, the setting `processor`, its files, and where none says
a thing the checkpoint that is published by that name, or the first of the family; at last the processor class.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from gateway.domain.kv_layout import KvLayout
from gateway.domain.vision.base import ProcessorConfigError, VisionFamily
from gateway.domain.vision.checkpoints import Checkpoint, checkpoint_of_model_name
from gateway.domain.vision.registry import UnknownFamilyError, processor_sources, resolve
from gateway.domain.vision.sources import Number, Source
from gateway.domain.vision.unknown import unknown_family
from gateway.domain.vision.video import VideoRule
from gateway.models.processor_config import CONFIG_FILE, VIDEO_FILE, ModelFiles


class FamilySource(StrEnum):
    """How a model's family was found, the surest first. CALIBRATION: nothing told it, but what its server made of a few
    pictures. ASSUMED: no family is known, so prices are bounds.
    """

    SETTING = "setting"
    FOLDER = "folder"
    SERVER_FOLDER = "server_folder"
    CACHE = "cache"
    HUB = "hub"
    ROOT = "root"
    NAME = "name"
    CALIBRATION = "calibration"
    ASSUMED = "assumed"


_PLACES = {
    FamilySource.SERVER_FOLDER: "server's folder: ",
    FamilySource.CACHE: "Hugging Face cache: ",
    FamilySource.HUB: "hub: ",
}
"""Before the name of a file that was found; those of the operator's own folder stand alone."""


_KEPT_FILES = frozenset({CONFIG_FILE, VIDEO_FILE})
"""Which the setting `processor` does not take the place of."""


class FoundFiles(NamedTuple):
    """A model's own files, and the place where they were."""

    files: ModelFiles
    place: FamilySource


@dataclass(frozen=True, slots=True)
class Said:
    """What the operator says of a model. `options` mirror the server's `--mm-processor-kwargs`, `folder` is what is in
    the model's folder.
    """

    family: str | None = None
    processor: Mapping[str, object] | None = None
    options: Mapping[str, object] | None = None
    folder: FoundFiles | None = None


class Name(NamedTuple):
    """A name that may be that of a published checkpoint: the served one, or what the server was given to load."""

    text: str
    source: FamilySource = FamilySource.NAME


class Published(NamedTuple):
    """The checkpoint that is published by a model's names, None where that is unsure, and which of them said so."""

    checkpoint: Checkpoint | None
    source: FamilySource


@dataclass(frozen=True, slots=True)
class Identity:
    """What a model is. `video` bounds what its videos cost, None where its family defines nothing. `kv_layout` and what
    follows are None as far as no file tells.

    `kv_layout` is of the groups of layers that need KV blocks of their own, `kv_bytes_per_token` counts all layers of
    one rank, and `embedding_bytes` one embedding of the vision encoder.
    """

    family: VisionFamily
    family_source: FamilySource
    numbers: tuple[Number, ...] = field(default=(), repr=False)
    video: VideoRule | None = field(default=None, repr=False)
    kv_layout: KvLayout | None = None
    kv_bytes_per_token: int | None = None
    embedding_bytes: int | None = None


def identify(said: Said, names: Sequence[Name], found: FoundFiles | None = None) -> Identity:
    """From what the operator says, from `names`, the surest first, and from files that were found where he gave none.

    Raises UnknownFamilyError, or ProcessorConfigError naming the key.
    """
    return _identify(said, published(names), found)


def _identify(said: Said, name: Published, found: FoundFiles | None) -> Identity:
    found = said.folder or found
    files = found.files if found else None
    checkpoint = name.checkpoint
    family, source = next(_families(said, found, name), (None, FamilySource.ASSUMED))
    if family is None:
        return _with_memory(Identity(unknown_family(), source), files)
    sources = _file_sources(said, found, family)
    has_processor = said.processor is not None or (files is not None and files.image_processor is not None)
    resolved = resolve(
        family, sources, options=said.options, checkpoint=checkpoint, has_processor=has_processor and bool(sources)
    )
    return _with_memory(Identity(resolved.family, source, resolved.numbers, resolved.video), files)


def identify_anyway(said: Said, name: Published, found: FoundFiles | None) -> tuple[Identity, str | None]:
    """The same for a server that is running: what cannot be used is left out, and told."""
    trouble = None
    for attempt, files in ((said, found), (said, None), (Said(), None)):
        try:
            return _identify(attempt, name, files), trouble
        except (UnknownFamilyError, ProcessorConfigError) as error:
            trouble = trouble or str(error)
    raise AssertionError("names alone always tell something")


def published(names: Sequence[Name]) -> Published:
    """By the surest name that is known, and what said so: of several that say the same, the one that everybody sees."""
    told = [(checkpoint_of_model_name(name.text), name.source) for name in names]
    surest = next((checkpoint for checkpoint, _ in told if checkpoint is not None), None)
    said_by = (source for checkpoint, source in reversed(told) if checkpoint is surest)
    return Published(surest, next(said_by, FamilySource.NAME))


def _families(said: Said, found: FoundFiles | None, name: Published) -> Iterator[tuple[str, FamilySource]]:
    if said.family is not None:
        yield said.family, FamilySource.SETTING
    if found is not None and found.files.family_name is not None:
        yield found.files.family_name, found.place
    if name.checkpoint is not None:
        yield name.checkpoint.family, name.source


def _file_sources(said: Said, found: FoundFiles | None, family: str) -> list[Source]:
    sources: list[Source] = []
    if found is not None and _are_of(found, family):
        place = _PLACES.get(found.place, "")
        processor_is_set = said.processor is not None
        kept = (each for each in found.files.sources if not processor_is_set or each.name in _KEPT_FILES)
        sources = [Source(f"{place}{each.name}", each.values) for each in kept]
    own = [] if said.processor is None else processor_sources("setting", said.processor)
    return [*own, *sources]


def _are_of(found: FoundFiles, family: str) -> bool:
    """Files that nobody pointed to and that are of another family than the operator says tell nothing of this one."""
    return found.place is FamilySource.FOLDER or found.files.family_name in {None, family}


def _with_memory(identity: Identity, files: ModelFiles | None) -> Identity:
    if files is None:
        return identity
    text = files.text
    return replace(
        identity,
        kv_layout=text.kv_layout if text else None,
        kv_bytes_per_token=text.kv_bytes_per_token if text else None,
        embedding_bytes=files.embedding_bytes,
    )
