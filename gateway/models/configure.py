"""From what the operator says of a model to a served model. The only place that decides which source wins.

Family: the setting, else the folder's architecture, else the name. Processor configuration: the setting, else the
folder's, else the one that the family's checkpoints ship.
"""

import logging
from collections.abc import Mapping
from pathlib import Path

from gateway.domain.vision.base import ProcessorConfigError
from gateway.domain.vision.registry import (
    UnknownFamilyError,
    family_for,
    family_of_model_name,
)
from gateway.models.exact_text import ExactText, ExactTextUnavailableError
from gateway.models.processor_config import ModelFilesError, read_model_folder
from gateway.models.served import ASSUMED_FAMILY, FamilySource, ServedModel

logger = logging.getLogger(__name__)


class ModelSettingsError(Exception):
    """A model's settings cannot be used; the text names the model and the cause."""


def configured_model(
    name: str, *, family: str | None, folder: str | None, processor: Mapping[str, object] | None
) -> ServedModel:
    """Raises ModelSettingsError for an unknown family, an unreadable folder or a faulty processor configuration."""
    try:
        files = read_model_folder(Path(folder)) if folder else None
        named = {
            FamilySource.SETTING: family,
            FamilySource.FOLDER: files.family_name if files else None,
            FamilySource.NAME: family_of_model_name(name),
            FamilySource.ASSUMED: ASSUMED_FAMILY,
        }
        source, known = next((source, known) for source, known in named.items() if known)
        config = processor if processor is not None else (files.image_processor if files else None)
        vision = family_for(known, config)
    except (UnknownFamilyError, ProcessorConfigError, ModelFilesError) as error:
        raise ModelSettingsError(f"model {name!r}: {error}") from error
    return ServedModel(
        name,
        vision,
        source,
        exact_text=_exact_text(name, folder),
        kv_groups=files.text.kv_groups if files else None,
        kv_bytes_per_token=files.text.kv_bytes_per_token if files else None,
        embedding_bytes=files.embedding_bytes if files else None,
    )


def _exact_text(name: str, folder: str | None) -> ExactText | None:
    try:
        return ExactText.from_folder(Path(folder)) if folder else None
    except ExactTextUnavailableError as missing:
        logger.warning("model %r: its text is estimated, not counted: %s", name, missing)
        return None
