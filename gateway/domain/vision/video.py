"""How many tokens one video can cost, for families that define it: Qwen2-VL, Qwen2.5-VL, Qwen3-VL and Qwen3.5.

Nothing of a video is looked at: what a file says of its own frames binds nobody who decodes it. The bound is made of
what the model server was set up with: how many frames it takes of one video, and how many pixels its processor leaves
of each (Qwen2-VL, Qwen2.5-VL) or of all together (Qwen3-VL, Qwen3.5). Every two frames become one patch in time.
Qwen3-VL writes the second before each patch, as text.

Source: transformers 5.19 `models/{qwen2_vl,qwen3_vl}/video_processing_*.py`, vLLM 0.32 `multimodal/video.py` (loaders)
and `qwen2_vl.py`, `qwen3_vl.py` (`get_video_repl`). Frames left out by `--video-pruning-rate` make a video cheaper.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from gateway.domain.vision.base import ProcessorConfigError
from gateway.domain.vision.qwen_vl import MAX_ASPECT_RATIO
from gateway.domain.vision.sources import Number, Source, Sources

LOADED_FRAMES = 768
"""What vLLM's loaders of these families take of one video at most, however long it is."""

_PUBLISHED = "published checkpoints"
_MARKERS = 3
"""Start and end of vision, and a line break, where the template or vLLM writes them around a video."""

_TIMESTAMP_TOKENS = len("<9999999.9 seconds>") + 2
"""Before and around each patch in time of Qwen3-VL: a token a byte at most for the text, and start and end."""


@dataclass(frozen=True, slots=True)
class VideoRule:
    """One model's video processor.

    `unit` is the side in pixels of the square that becomes one token, `patch_frames` how many frames become one.
    `min_pixels` and `max_pixels` are the areas between which a frame is brought, or, where it `shares_pixels`, all
    frames of a video together. `patch_text_tokens` are written for each patch in time. `numbers` says what was read
    where.
    """

    unit: int
    patch_frames: int
    min_pixels: int
    max_pixels: int
    shares_pixels: bool = False
    patch_text_tokens: int = 0
    numbers: tuple[Number, ...] = field(default=(), compare=False)

    def most_encoder_tokens(self, frames: int) -> int:
        """Embeddings that a video of up to so many frames can have."""
        return _most_tokens(self, max(frames, self.patch_frames))

    def most_prompt_tokens(self, frames: int) -> int:
        """The same with all that is written around them."""
        patches = _ceil_div(max(frames, self.patch_frames), self.patch_frames)
        return self.most_encoder_tokens(frames) + patches * self.patch_text_tokens + _MARKERS

    def units(self, frames: int) -> int:
        """Tokens of one patch in time, where the video has so many frames."""
        if not self.shares_pixels:
            return _most_units(self.unit, self.min_pixels, self.max_pixels)
        # Whether it fits is asked of the frames rounded to whole patches, half-even, before they are filled up.
        counted = min(frames, round(frames / self.patch_frames) * self.patch_frames)
        return _most_units(self.unit, _ceil_div(self.min_pixels, frames), self.max_pixels // counted)


@lru_cache(maxsize=4096)
def _most_tokens(rule: VideoRule, most_frames: int) -> int:
    """Fewer frames may cost more where they share their pixels: an odd one fills a patch of its own."""
    fewest = rule.patch_frames if rule.shares_pixels else most_frames
    return max(_ceil_div(frames, rule.patch_frames) * rule.units(frames) for frames in range(fewest, most_frames + 1))


def _most_units(unit: int, min_pixels: int, max_pixels: int) -> int:
    """Squares of one frame that is brought between two areas, whatever its shape.

    Small areas do not bind long frames: no side falls below a unit, and enlarging rounds both sides up.
    """
    area = max_pixels // unit**2
    one_row = math.isqrt(MAX_ASPECT_RATIO * max_pixels) // unit + 1
    long_side = math.isqrt(MAX_ASPECT_RATIO * min_pixels) // unit + 1
    short_side = math.isqrt(min_pixels // MAX_ASPECT_RATIO) // unit + 1
    return max(area, one_row, min_pixels // unit**2 + long_side + short_side + 1)


@dataclass(frozen=True, slots=True)
class _Shape:
    """What the families of one rule share; the areas are those that checkpoints are published with."""

    patch_size: int
    min_pixels: int
    max_pixels: int
    shares_pixels: bool = False
    patch_text_tokens: int = 0


_QWEN2 = _Shape(14, 3136, 12845056)
# The areas are those of the published checkpoints' video_preprocessor_config.json, of which no copy was at hand.
_QWEN3 = _Shape(16, 4096, 25165824, shares_pixels=True, patch_text_tokens=_TIMESTAMP_TOKENS)

_SHAPES: Mapping[str, _Shape] = {
    "qwen2_vl": _QWEN2,
    "qwen2_5_vl": _QWEN2,
    "qwen3_vl": _QWEN3,
    "qwen3_vl_moe": _QWEN3,
    "qwen3_5": _QWEN3,
    "qwen3_5_moe": _QWEN3,
}

FAMILIES = tuple(_SHAPES)
"""Those that define what a video costs."""


def video_rule(family: str, options: Mapping[str, object], files: Sequence[Source]) -> VideoRule | None:
    """The rule of `family` as a model is set up, None where it has none. `options` are the server's
    `--mm-processor-kwargs`, `files` the model's own configuration, the strongest first.

    Raises ProcessorConfigError naming the key.
    """
    shape = _SHAPES.get(family)
    if shape is None:
        return None
    read = Sources(Source("mm-processor-kwargs", options), *files)
    unit = read.side("patch_size", default=shape.patch_size) * read.whole("merge_size", default=2)
    own = [file for file in files if _is_file(file)]
    _refuse_any_size(options, own)
    areas = (Sources(Source("mm-processor-kwargs", options)), Sources(*own), Sources(*files))
    least, least_from = _area(areas, shape, "min_pixels", "shortest_edge", shape.min_pixels)
    most, most_from = _area(areas, shape, "max_pixels", "longest_edge", shape.max_pixels)
    return VideoRule(
        unit,
        read.whole("video_processor.temporal_patch_size", "temporal_patch_size", default=2),
        least,
        most,
        shape.shares_pixels,
        shape.patch_text_tokens,
        (Number("min_pixels", least, least_from), Number("max_pixels", most, most_from)),
    )


def _refuse_any_size(options: Mapping[str, object], own: Sequence[Source]) -> None:
    read = Sources(Source("mm-processor-kwargs", options), *own)
    if not read.flag("videos_kwargs.do_resize", "video_processor.do_resize", default=True):
        raise ProcessorConfigError(
            read.numbers[0].key, "is false: frames would reach the model at any size, which is not supported"
        )


def _area(
    read: tuple[Sources, Sources, Sources], shape: _Shape, key: str, edge: str, published: int
) -> tuple[int, str]:
    """An area, and who says so: the server, else the model's own files, those for videos before those for images, which
    stand for them where there are none. Where no file is known, the more of what is said of images and of what
    checkpoints are published with.
    """
    said, own, known = read
    spellings = (key, f"size.{edge}")
    # The processor of those that share reads `size` alone; of the server's own words vLLM makes a `size`.
    in_files = (f"size.{edge}",) if shape.shares_pixels else spellings
    of_server = (*(f"videos_kwargs.{each}" for each in spellings), *spellings)
    of_videos = tuple(f"video_processor.{each}" for each in in_files)
    for sources, names in ((said, of_server), (own, of_videos), (own, in_files)):
        value = sources.whole_or_none(*names)
        if value is not None:
            return value, next(number.source for number in sources.numbers if number.key in names)
    return max(published, known.whole_or_none(*spellings) or 0), _PUBLISHED


def _is_file(source: Source) -> bool:
    """And not a setting, nor a table of what checkpoints are published with."""
    return ".json" in source.name


def _ceil_div(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)
