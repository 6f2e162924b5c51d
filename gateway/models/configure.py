"""From what the operator says of a model to a served model. The only place that decides which source wins.

Family: the setting, else the folder's architecture, else the name. Processor configuration: the setting, else the
folder's, else the one that the checkpoint of that name is published with, or else the first of its family.
"""

import logging
from collections.abc import Mapping
from pathlib import Path

from gateway.domain.vision.base import ProcessorConfigError
from gateway.domain.vision.checkpoints import checkpoint_of_model_name
from gateway.domain.vision.registry import UnknownFamilyError, processor_sources, resolve
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
        checkpoint = checkpoint_of_model_name(name)
        named = {
            FamilySource.SETTING: family,
            FamilySource.FOLDER: files.family_name if files else None,
            FamilySource.NAME: checkpoint.family if checkpoint else None,
            FamilySource.ASSUMED: ASSUMED_FAMILY,
        }
        source, known = next((source, known) for source, known in named.items() if known)
        sources = list(files.sources) if files else []
        if processor is not None:
            config_json = [each for each in sources if each.name == "config.json"]
            sources = [*processor_sources("setting", processor), *config_json]
        has_processor = processor is not None or (files is not None and files.image_processor is not None)
        found = resolve(known, sources, checkpoint=checkpoint, has_processor=has_processor)
    except (UnknownFamilyError, ProcessorConfigError, ModelFilesError) as error:
        raise ModelSettingsError(f"model {name!r}: {error}") from error
    text = files.text if files else None
    return ServedModel(
        name,
        found.family,
        source,
        numbers=found.numbers,
        exact_text=_exact_text(name, folder),
        kv_layout=text.kv_layout if text else None,
        kv_bytes_per_token=text.kv_bytes_per_token if text else None,
        embedding_bytes=files.embedding_bytes if files else None,
    )


def _exact_text(name: str, folder: str | None) -> ExactText | None:
    try:
        return ExactText.from_folder(Path(folder)) if folder else None
    except ExactTextUnavailableError as missing:
        logger.warning("model %r: its text is estimated, not counted: %s", name, missing)
        return None
