"""From what the operator says of a model to a served model; which source wins is identity.py's."""

import logging
from collections.abc import Mapping
from pathlib import Path

from gateway.domain.vision.base import ProcessorConfigError
from gateway.domain.vision.registry import UnknownFamilyError
from gateway.models.exact_text import ExactText, ExactTextUnavailableError
from gateway.models.identity import FamilySource, FoundFiles, Name, Said, identify
from gateway.models.processor_config import ModelFilesError, read_model_folder
from gateway.models.served import ServedModel

logger = logging.getLogger(__name__)


class ModelSettingsError(Exception):
    """A model's settings cannot be used; the text names the model and the cause."""


def configured_model(
    name: str,
    *,
    family: str | None,
    folder: str | None,
    processor: Mapping[str, object] | None,
    options: Mapping[str, object] | None = None,
) -> ServedModel:
    """`options` mirror the server's `--mm-processor-kwargs`.

    Raises ModelSettingsError for an unknown family, an unreadable folder, a faulty processor configuration, or options
    that vLLM would not know.
    """
    try:
        files = FoundFiles(read_model_folder(Path(folder)), FamilySource.FOLDER) if folder else None
        said = Said(family, processor, options, files)
        identity = identify(said, [Name(name)])
    except (UnknownFamilyError, ProcessorConfigError, ModelFilesError) as error:
        raise ModelSettingsError(f"model {name!r}: {error}") from error
    return ServedModel.of(name, identity, said, exact_text=_exact_text(name, folder))


def _exact_text(name: str, folder: str | None) -> ExactText | None:
    try:
        return ExactText.from_folder(Path(folder)) if folder else None
    except (ExactTextUnavailableError, ModelFilesError) as missing:
        logger.warning("model %r: its text is estimated, not counted: %s", name, missing)
        return None
