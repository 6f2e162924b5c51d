"""What vLLM's profile sends through the vision tower, and what that takes at its peak.

One modality is profiled: the allowed one whose largest item makes most tokens. Source: vLLM 0.32
`multimodal/encoder_budget.py`, `model_executor/models/qwen2_vl.py`, `qwen3_vl.py`, `internvl.py`.
"""

import math
from collections.abc import Mapping

from gateway.domain.geometry import Size
from gateway.domain.memory.calibration import Calibration
from gateway.domain.memory.dtypes import model_bytes
from gateway.domain.memory.plan import GIB, EncoderProfile, Flags, ModelSpec, Span, Version, VisionSpec
from gateway.domain.quantities import ceil_div
from gateway.domain.vision.base import UnservableImageError, VisionFamily
from gateway.domain.vision.checkpoints import checkpoint_of_model_name
from gateway.domain.vision.qwen_vl import MAX_ASPECT_RATIO, QwenVL
from gateway.domain.vision.registry import resolve

IMAGE, VIDEO = "image", "video"

_UNLIMITED = 999
"""vLLM's own limit of items where none is given."""
_QWEN3_VIDEO_PIXELS = 25_165_824
"""`size.longest_edge` of Qwen3-VL's video processor: of two frames together. Recalled from its
video_preprocessor_config.json; vLLM's log of one image as the largest item agrees."""
_FRAMES_OF_TWO = 2
_TILE_TOKENS = 256

_LARGE = tuple(
    size
    for ratio in (1, 1.25, 1.5, 2, 3, 4, 6, 8, 12)
    for size in (Size(6000, int(6000 / ratio)), Size(int(6000 / ratio), 6000))
)
"""Images that fill every grid of tiles."""

_NOTHING = EncoderProfile(None, 0, 0, 0, 0)


def family_of(model: ModelSpec, flags: Flags) -> VisionFamily | None:
    """What prices the model's images under these flags; None: no family is known for it."""
    if model.family is None:
        return None
    return resolve(
        model.family,
        model.processor,
        options=flags.mm_processor_kwargs,
        checkpoint=checkpoint_of_model_name(model.name),
        has_processor=bool(model.processor),
    ).family


def encoder_profile(model: ModelSpec, flags: Flags, version: Version) -> EncoderProfile:
    """What is profiled under complete `flags`."""
    if model.vision is None:
        return _NOTHING
    largest = {
        modality: tokens
        for modality, tokens in _item_tokens(model, model.vision, flags, version).items()
        if tokens and flags.limit_mm_per_prompt.get(modality, _UNLIMITED) > 0
    }
    if not largest:
        return _NOTHING
    tokens, modality = max((tokens, modality) for modality, tokens in largest.items())
    length, batched, sequences = _settled(flags)
    budget = max(batched, tokens)
    per_prompt = max(1, min(flags.limit_mm_per_prompt.get(modality, _UNLIMITED), length // tokens))
    items = max(1, min(budget // tokens, sequences * per_prompt))
    profiled = tokens
    if modality == IMAGE and flags.profiled_image is not None:
        profiled = _profiled_tokens(family_of(model, flags), tokens, flags.profiled_image)
    patches = items * profiled * model.vision.unit_patches
    return EncoderProfile(modality, items, tokens, patches, budget, largest)


def _profiled_tokens(family: VisionFamily | None, tokens: int, limits: tuple[int, int]) -> int:
    """Of the image that the tower runs on. Of Qwen's families budget and items stay those of the largest image
    (vLLM 0.32 `get_mm_max_tokens_per_item`), and only the image itself gets smaller (`get_dummy_mm_data`).
    """
    if not isinstance(family, QwenVL):
        return tokens
    rows = _rows(tokens)
    largest = Size(tokens // rows * family.unit, rows * family.unit)
    width, height = (
        min(limit or most, most) for limit, most in zip(limits, (largest.width, largest.height), strict=True)
    )
    return _embeddings(family, Size(width, height)) or tokens


def tower_peak(
    model: ModelSpec, flags: Flags, profile: EncoderProfile, calibration: Calibration, *, has_kernel: bool
) -> Span:
    """Activations of the tower for the profiled items. Without an attention kernel that keeps no scores, the matrix of
    one item's patches against each other decides.
    """
    vision = model.vision
    if vision is None or profile.modality is None:
        return Span.exact(0.0)
    number_bytes, ranks = model_bytes(flags), flags.tensor_parallel_size
    patches, mlp_ranks = profile.patches, ranks
    if flags.mm_encoder_tp_mode == "data":
        patches = ceil_div(profile.items, ranks) * profile.patches // profile.items
        mlp_ranks = 1
    one = patch_bytes(vision, number_bytes, mlp_ranks)
    if calibration.concatenates_queries and vision.kind.startswith("qwen"):
        one = max(one, _attention_bytes(vision, number_bytes, mlp_ranks))
    peak = patches * one / GIB
    if not has_kernel:
        item = profile.patches // profile.items
        peak += max(1, vision.heads // ranks) * item**2 * number_bytes / GIB
    return calibration.tower(peak)


def patch_bytes(vision: VisionSpec, number_bytes: int, ranks: int) -> float:
    """Peak activation of one patch: its pixels, five copies of its width, and the MLP's inner layer."""
    pixels = 3 * vision.temporal_patch * vision.patch**2
    inner = (3 if vision.is_gated else 1) * vision.intermediate / ranks
    return number_bytes * (pixels + 5 * vision.hidden + inner)


def _attention_bytes(vision: VisionSpec, number_bytes: int, ranks: int) -> float:
    """The same in attention where queries and keys are concatenated before they are rotated: hidden and normalised
    state; queries, keys and values fused, apart, concatenated and rotated; the last two in 32 bits as well.
    """
    heads = vision.hidden / ranks
    narrow = 3 * vision.temporal_patch * vision.patch**2 + 2 * vision.hidden + (3 + 3 + 2 + 2) * heads
    return number_bytes * narrow + 4 * (2 + 2) * heads


def embedding_bytes(model: ModelSpec, flags: Flags) -> int:
    """One embedding in the encoder cache: as wide as the language model, and once more for each layer fed beside."""
    levels = model.vision.deepstack_levels if model.vision else 0
    return model.text.hidden * (1 + levels) * model_bytes(flags)


def _item_tokens(model: ModelSpec, vision: VisionSpec, flags: Flags, version: Version) -> Mapping[str, int]:
    """Tokens of the largest item of each modality that the family takes."""
    family = family_of(model, flags)
    image = largest_image_tokens(vision, family)
    length, *_ = _settled(flags)
    if vision.kind in {"qwen2_vl", "qwen2_5_vl"}:
        # Frames go through the tower in pairs; 16 at most in the oldest versions of V1, 14 later.
        most_pairs = 8 if version < Version(0, 9) else 7
        return {IMAGE: image, VIDEO: image * max(1, min(most_pairs, length // image))}
    if vision.kind == "qwen3_vl" and isinstance(family, QwenVL):
        pixels = _video_pixels(flags)
        return {IMAGE: image, VIDEO: largest_grid(pixels // _FRAMES_OF_TWO, family.unit)}
    if vision.kind.startswith("intern_vit") and "internvl3" in model.name.lower():
        frames = max(1, (length - image) // _TILE_TOKENS)
        return {IMAGE: image, VIDEO: frames * _TILE_TOKENS}
    return {IMAGE: image}


def largest_image_tokens(vision: VisionSpec, family: VisionFamily | None) -> int:
    """Embeddings of the largest image, as vLLM finds it."""
    if isinstance(family, QwenVL):
        return largest_grid(family.max_pixels, family.unit)
    if family is not None:
        return max(_embeddings(family, size) for size in _LARGE)
    return vision.max_image_tokens or 0


def _embeddings(family: VisionFamily, size: Size) -> int:
    try:
        return family.tokens(size).encoder
    except UnservableImageError:
        return 0


def largest_grid(max_pixels: int, unit: int) -> int:
    """Most tokens within `max_pixels` whose rows and columns keep to the ratio that the processor takes.

    vLLM `Qwen2VLProcessingInfo.get_image_size_with_most_features`.
    """
    most = max(1, max_pixels // unit**2)
    return next(tokens for tokens in range(most, 0, -1) if _ratio(tokens) <= MAX_ASPECT_RATIO)


def _ratio(tokens: int) -> float:
    return tokens / _rows(tokens) ** 2


def _rows(tokens: int) -> int:
    """Of the grid that is closest to a square."""
    return next(rows for rows in range(math.isqrt(tokens), 0, -1) if tokens % rows == 0)


def _video_pixels(flags: Flags) -> int:
    """`max_pixels` of the processor's options holds for videos too."""
    given = flags.mm_processor_kwargs.get("max_pixels")
    size = flags.mm_processor_kwargs.get("size")
    if given is None and isinstance(size, Mapping):
        given = size.get("longest_edge")
    return given if isinstance(given, int) else _QWEN3_VIDEO_PIXELS


def _settled(flags: Flags) -> tuple[int, int, int]:
    """Context, batched tokens and sequences of complete flags."""
    assert flags.max_model_len and flags.max_num_batched_tokens and flags.max_num_seqs  # noqa: PT018  # one rule
    return flags.max_model_len, flags.max_num_batched_tokens, flags.max_num_seqs
