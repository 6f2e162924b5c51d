"""What `check` has to tell of each model: its family, the numbers that its images' prices depend on, and the source of
each. As values; no printing here.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from gateway.domain.cost import EngineLimits
from gateway.domain.geometry import Size
from gateway.domain.vision.base import UnservableImageError, VisionFamily
from gateway.domain.vision.sources import Number
from gateway.models.identity import FamilySource
from gateway.models.places import Places
from gateway.models.served import ModelTable, ServedModel

EXACT, BOUNDS = "exact", "bounds"

_FULL_ATTENTION_FAMILIES = frozenset({"qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe"})
"""Every layer of their language models is of one kind, so their KV cache has one group. Qwen 3.5 mixes two kinds."""

_SAMPLES = (Size(64, 64), Size(224, 224), Size(1024, 1024), Size(1920, 1080), Size(600, 2400))
"""A family whose price more than the size decides, or of which another is possible, shows it on one of these."""


@dataclass(frozen=True, slots=True)
class ModelFound:
    """One model that clients may name. `kv_groups` None: its layers may be of several kinds, in an unknown layout.
    `is_kv_whole`: each of several groups is charged for all tokens, as what it holds of them is not known.

    `max_video_tokens` None: nothing bounds what a video costs. `price` of images is exact or bounds, `numbers` are what
    it depends on, each with its source, and `troubles` what was in the way of the model's own files.
    """

    name: str
    is_served: bool
    max_model_len: int | None
    family: str
    family_source: str
    is_text_exact: bool
    max_image_tokens: int
    max_video_tokens: int | None
    kv_groups: int | None
    kv_groups_source: str
    is_kv_whole: bool
    price: str
    numbers: tuple[Number, ...]
    troubles: tuple[str, ...]


def look_for_files(table: ModelTable, places: Places) -> dict[str, tuple[str, ...]]:
    """As the gateway does beside its work; what was in the way, by model. May take a while."""
    troubles = {}
    for wanted in table.wanted():
        look = places.look(*wanted)
        troubles[wanted.name] = look.troubles
        if look.found is not None:
            table.found(wanted, look.found)
    return troubles


def describe_model(
    model: ServedModel, limits: EngineLimits, troubles: Sequence[str], *, is_served: bool, max_frames: int
) -> ModelFound:
    """`max_frames` are the most that vLLM takes of a video."""
    kv_groups, kv_groups_source = _kv_groups(model, limits)
    return ModelFound(
        name=model.name,
        is_served=is_served,
        max_model_len=model.max_model_len,
        family=model.family.name,
        family_source=model.family_source.value,
        is_text_exact=model.exact_text is not None,
        max_image_tokens=model.family.max_image_tokens,
        max_video_tokens=None if model.video is None else model.video.most_prompt_tokens(max_frames),
        kv_groups=kv_groups,
        kv_groups_source=kv_groups_source,
        is_kv_whole=(kv_groups or 1) > 1 and not limits.kv_charges,
        price=EXACT if all(_is_exact(model.family, size) for size in _SAMPLES) else BOUNDS,
        numbers=(*model.numbers, *_numbers_of_videos(model)),
        troubles=tuple(troubles),
    )


def _numbers_of_videos(model: ServedModel) -> Iterator[Number]:
    for number in model.video.numbers if model.video else ():
        yield replace(number, key=f"of videos: {number.key}")


def unknown_of_images(model: ModelFound, *, is_doubted: bool = False) -> Iterator[str]:
    """Sentences about what is not known of the cost of its images. `is_doubted`: the server counts them otherwise."""
    if model.family_source == FamilySource.ASSUMED:
        yield (
            f"{model.name}: nothing says of which family it is; its images are priced by bounds: a place is kept for "
            "the most that each may take, and none is refused for it. "
            f"Set models: [{{name: {model.name}, family: ...}}], or its folder."
        )
    elif is_doubted and model.price == BOUNDS:
        yield (
            f"{model.name}: its server counts its images otherwise than {model.family} does; until one of the two is "
            "put right a place is kept for the most that each may take, and only the least is a reason to refuse."
        )
    elif model.price == BOUNDS:
        yield (
            f"{model.name}: more than its size decides what an image costs of {model.family}; a place is kept for the "
            "most that it can be, and only the least is a reason to refuse."
        )
    for trouble in model.troubles:
        yield f"{model.name}: its own files: {trouble}"


def _is_exact(family: VisionFamily, size: Size) -> bool:
    try:
        return family.tokens(size).is_exact
    except UnservableImageError:
        return True


def _kv_groups(model: ServedModel, limits: EngineLimits) -> tuple[int | None, str]:
    """How many groups of layers need KV blocks of their own, and what says so: the server has the last word."""
    groups, layout = limits.kv_groups, model.kv_layout
    if groups is not None:
        files = "folder" if model.said.folder else "files"
        return groups, files if layout is not None and len(layout.groups) == groups else "server"
    if not model.is_assumed and model.family.name in _FULL_ATTENTION_FAMILIES:
        return 1, "family"
    return None, "unknown"
