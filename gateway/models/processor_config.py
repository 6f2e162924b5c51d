"""A checkpoint's folder as far as prices depend on it: architecture, image processor, and the size of its KV cache.

Reading files and making sense of what they hold are apart: `parse_model` takes what JSON gave. Nothing is loaded that
has weights or code in it.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gateway.domain.kv_layers import MOST_LAYERS, MOST_NUMBER, KvConfigError, read_layout, with_class_numbers
from gateway.domain.kv_layout import KvLayout
from gateway.domain.quoting import quoted, shortened
from gateway.domain.vision.registry import family_of_config
from gateway.domain.vision.sources import Source

CONFIG_FILE = "config.json"
PREPROCESSOR_FILE = "preprocessor_config.json"
PROCESSOR_FILE = "processor_config.json"
VIDEO_FILE = "video_preprocessor_config.json"
"""What newer models set up their videos with."""

_NUMBER_BYTES = 2
"""Of an embedding: vLLM serves 32-bit checkpoints in 16 bits, and others as they are."""

_LONGEST_PROBLEM = 400
"""In characters: whatever a library quotes of a file, it is one line of a log."""

_NESTED_TEXT = ("text_config", "llm_config", "language_config")


class ModelFilesError(ValueError):
    """A model folder that cannot be read; the text names the file and the key."""

    def __init__(self, file: str, problem: str) -> None:
        super().__init__(f"{file}: {shortened(problem, _LONGEST_PROBLEM)}")
        self.file = file


@dataclass(frozen=True, slots=True)
class TextConfig:
    """The language model, as far as its KV cache depends on it. `kv_layout` None: it has layers of an unknown kind."""

    hidden_size: int
    layers: int
    kv_heads: int
    head_size: int
    kv_layout: KvLayout | None = None

    @property
    def kv_bytes_per_token(self) -> int | None:
        """Keys and values of all layers while no window is full, unsharded, with a 16-bit cache."""
        return None if self.kv_layout is None else self.kv_layout.all_token_bytes

    @property
    def kv_groups(self) -> int | None:
        """Groups of layers that need KV blocks of their own."""
        return None if self.kv_layout is None else len(self.kv_layout.groups)


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """`image_processor` is None where the folder has none; the family then takes what its checkpoints ship. `text` is
    None where config.json leaves the language model's numbers to the defaults of its class.

    `family_name` is None where no family here serves the architecture, `sources` are the files as families read them,
    the strongest first. `deepstack_levels` counts the layers of the language model that the vision encoder feeds beside
    its input.
    """

    architectures: tuple[str, ...]
    text: TextConfig | None
    image_processor: Mapping[str, Any] | None
    deepstack_levels: int = 0
    family_name: str | None = None
    sources: tuple[Source, ...] = field(default=(), repr=False)

    @property
    def embedding_bytes(self) -> int | None:
        """One embedding of the vision encoder in vLLM's encoder cache: as wide as the language model, and once more
        for each layer that it feeds (vLLM `qwen3_vl.py`, `Qwen3_VisionTransformer.out_hidden_size`).
        """
        if self.text is None:
            return None
        return self.text.hidden_size * (1 + self.deepstack_levels) * _NUMBER_BYTES


def read_model_folder(path: Path) -> ModelFiles:
    """The model in a folder laid out as on the hub. Raises ModelFilesError."""
    return parse_model(
        read_json(path / CONFIG_FILE),
        _read_optional(path / PREPROCESSOR_FILE),
        _read_optional(path / PROCESSOR_FILE),
        _read_optional(path / VIDEO_FILE),
    )


def parse_model(
    config: Mapping[str, Any],
    preprocessor: Mapping[str, Any] | None,
    processor: Mapping[str, Any] | None,
    video_processor: Mapping[str, Any] | None = None,
) -> ModelFiles:
    """From the contents of config.json, preprocessor_config.json, processor_config.json and
    video_preprocessor_config.json (None: no such file).

    An `image_processor` nested in processor_config.json wins over preprocessor_config.json (transformers 5.19
    `get_image_processor_dict`). Raises ModelFilesError.
    """
    architectures = config.get("architectures")
    if not isinstance(architectures, list) or not architectures:
        raise ModelFilesError(CONFIG_FILE, f"architectures must list at least one name, not {quoted(architectures)}")
    nested = (processor or {}).get("image_processor", preprocessor)
    if nested is not None and not isinstance(nested, Mapping):
        raise ModelFilesError(PROCESSOR_FILE, f"image_processor must be an object, not {quoted(nested)}")
    return ModelFiles(
        tuple(architectures),
        _parse_text(config),
        nested,
        _deepstack_levels(config),
        family_of_config(config),
        tuple(_sources(config, nested, processor, video_processor)),
    )


def _sources(
    config: Mapping[str, Any],
    image_processor: Mapping[str, Any] | None,
    processor: Mapping[str, Any] | None,
    video_processor: Mapping[str, Any] | None,
) -> Iterator[Source]:
    """Newer files keep some numbers beside the nested image processor. What is of videos stands under the key under
    which newer files nest it.
    """
    if image_processor is not None:
        is_nested = processor is not None and "image_processor" in processor
        yield Source(PROCESSOR_FILE if is_nested else PREPROCESSOR_FILE, image_processor)
    if processor is not None:
        yield Source(PROCESSOR_FILE, processor)
    if video_processor is not None:
        yield Source(VIDEO_FILE, {"video_processor": video_processor})
    yield Source(CONFIG_FILE, config)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file. Raises ModelFilesError."""
    try:
        content = json.loads(path.read_bytes())
    except OSError as unreadable:
        raise ModelFilesError(path.name, f"cannot be read: {unreadable}") from unreadable
    except (ValueError, RecursionError) as broken:
        raise ModelFilesError(path.name, f"is not JSON: {broken}") from broken
    if not isinstance(content, dict):
        raise ModelFilesError(path.name, f"holds {type(content).__name__} where an object is needed")
    return content


def _read_optional(path: Path) -> dict[str, Any] | None:
    return read_json(path) if path.is_file() else None


def _parse_text(config: Mapping[str, Any]) -> TextConfig | None:
    """Newer files nest the language model in `text_config`, some models' own in another, older ones have it at the top.

    None where a number is left out that no other one stands for.
    """
    key = next((key for key in _NESTED_TEXT if key in config), None)
    text = config[key] if key else config
    if not isinstance(text, Mapping):
        raise ModelFilesError(CONFIG_FILE, f"{key} must be an object, not {quoted(text)}")
    text = with_class_numbers(text)
    if not text.keys() >= {"num_attention_heads", "hidden_size", "num_hidden_layers"}:
        return None
    heads = _whole(text, "num_attention_heads")
    hidden_size = _whole(text, "hidden_size")
    return TextConfig(
        hidden_size=hidden_size,
        layers=_whole(text, "num_hidden_layers", most=MOST_LAYERS),
        kv_heads=_whole(text, "num_key_value_heads", default=heads),
        head_size=_whole(text, "head_dim", default=hidden_size // heads),
        kv_layout=_parse_layout(text),
    )


def _parse_layout(text: Mapping[str, Any]) -> KvLayout | None:
    try:
        return read_layout(text)
    except KvConfigError as faulty:
        raise ModelFilesError(CONFIG_FILE, str(faulty)) from faulty


def _deepstack_levels(config: Mapping[str, Any]) -> int:
    vision = config.get("vision_config")
    levels = vision.get("deepstack_visual_indexes") if isinstance(vision, Mapping) else None
    if levels is not None and not isinstance(levels, list):
        raise ModelFilesError(CONFIG_FILE, f"deepstack_visual_indexes must be a list, not {quoted(levels)}")
    return len(levels or ())


def _whole(text: Mapping[str, Any], key: str, default: int | None = None, most: int = MOST_NUMBER) -> int:
    value = text.get(key)
    if value is None:
        value = default
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ModelFilesError(CONFIG_FILE, f"{key} must be a whole number above 0, not {quoted(value)}")
    if value > most:
        raise ModelFilesError(CONFIG_FILE, f"{key} must be at most {most}, not {quoted(value)}")
    return value
