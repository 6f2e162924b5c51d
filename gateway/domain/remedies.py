"""What a request is short of, and what would make it fit: smaller images, fewer of them, a shorter text or answer.

Arithmetic on a cost alone. Who is short of what is decided in never_fits.py and admission.py.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from gateway.domain.cost import EngineLimits, ImageCost, RequestCost, kv_blocks_needed
from gateway.domain.geometry import Size
from gateway.domain.quantities import Resource
from gateway.domain.vision.base import ImageTokens, VisionFamily

CONTEXT = "context_tokens"


class Shortage(NamedTuple):
    """So much is needed of `what` (`CONTEXT` or the label of a resource) and only so much `available` of `capacity`
    (None: unknown); `param` is the part of the request that needs it, None for the whole.
    """

    what: str
    needed: int
    available: int
    capacity: int | None = None
    param: str | None = None

    @property
    def deficit(self) -> int:
        return self.needed - self.available


class Remedies(NamedTuple):
    """Each is enough alone, except that `text_tokens` go beside all images where the request has any.

    `sizes`: for every image that is too large, by its path, a size at which all fit together; `oldest_images` to leave
    out, up to that at `last_param`; `text_tokens` to cut from the text; the most `max_tokens`, and the most answers
    (`n`), that would do. What would not help is empty or None.
    """

    sizes: tuple[tuple[str, Size], ...] = ()
    oldest_images: int = 0
    last_param: str | None = None
    text_tokens: int = 0
    max_tokens: int | None = None
    n: int | None = None


def save_prompt_tokens(cost: RequestCost, excess_tokens: int, family: VisionFamily | None) -> Remedies:
    """What takes `excess_tokens` (at least 1) out of the prompt."""
    images = cost.images
    if excess_tokens > cost.visual_tokens:
        last_param = images[-1].param if images else None
        return Remedies((), len(images), last_param, text_tokens=excess_tokens - cost.visual_tokens)
    units = [image.prompt_tokens for image in images]
    share = (cost.visual_tokens - excess_tokens) // len(images)
    return Remedies(_smaller(images, units, share, _as_prompt, family), *_oldest_worth(images, units, excess_tokens))


def within_encoder(cost: RequestCost, each_tokens: int, family: VisionFamily | None) -> Remedies:
    """What brings every image under `each_tokens` encoder tokens."""
    units = [image.encoder_tokens for image in cost.images]
    return Remedies(_smaller(cost.images, units, each_tokens, _as_encoder, family))


def within_free(
    cost: RequestCost, short: Resource, free: int, limits: EngineLimits, family: VisionFamily | None
) -> Remedies:
    """What brings the amount that the request takes of `short` down to `free`."""
    if short is Resource.KV_BLOCKS:
        return _within_kv_blocks(cost, free, limits, family)
    if short is Resource.SEQUENCES:
        return Remedies(n=free // cost.prompts or None) if cost.answers > cost.prompts else Remedies()
    return _within_image_units(cost, short, free, family)


def _within_image_units(cost: RequestCost, short: Resource, free: int, family: VisionFamily | None) -> Remedies:
    """Images that the engine knows are charged nothing, so leaving those out saves nothing; smaller ones are new."""
    images, charged = cost.images, cost.amounts[short]
    is_encoder = short is Resource.ENCODER_TOKENS
    units = [image.encoder_tokens if is_encoder else image.size.pixels for image in images]
    sizes = _smaller(images, units, free // len(images), _as_encoder if is_encoder else _as_pixels, family)
    left_out = _oldest_worth(images, units, charged - free) if charged == sum(units) else (0, None)
    return Remedies(sizes, *left_out)


def _within_kv_blocks(cost: RequestCost, free: int, limits: EngineLimits, family: VisionFamily | None) -> Remedies:
    prompt_tokens, output_tokens = cost.prompt_tokens.expected, cost.output_tokens
    needed = partial(kv_blocks_needed, limits=limits, prompts=cost.prompts, n=cost.answers // cost.prompts)
    max_tokens = _most(output_tokens, lambda tokens: needed(prompt_tokens, tokens) <= free) or None
    if cost.prompts > 1:
        return Remedies(max_tokens=max_tokens)
    tokens_left = _most(prompt_tokens - 1, lambda tokens: needed(tokens, output_tokens) <= free)
    if not tokens_left:
        return Remedies(max_tokens=max_tokens)
    return save_prompt_tokens(cost, prompt_tokens - tokens_left, family)._replace(max_tokens=max_tokens)


def _most(limit: int, fits: Callable[[int], bool]) -> int:
    """The largest number up to `limit` that fits, where fewer fit too; 0 where none does."""
    return bisect_left(range(1, limit + 1), 1, key=lambda number: not fits(number))


def _smaller(
    images: Sequence[ImageCost],
    units: Sequence[int],
    share: int,
    as_tokens: Callable[[int, ImageTokens], int],
    family: VisionFamily | None,
) -> tuple[tuple[str, Size], ...]:
    """Sizes at which every image is worth at most `share` units; none where one of them cannot be."""
    sizes: list[tuple[str, Size]] = []
    for image, unit in zip(images, units, strict=True):
        if unit > share:
            size = _shrunk(image.size, share, as_tokens, family) if family else None
            if size is None:
                return ()
            sizes.append((image.param, size))
    return tuple(sizes)


def _shrunk(size: Size, share: int, as_tokens: Callable[[int, ImageTokens], int], family: VisionFamily) -> Size | None:
    seen = family.tokens(size)
    tokens = as_tokens(share, seen)
    # An image off the model's grid has more pixels than its tokens are worth: the model's own size has not.
    return seen.model_size if seen.placeholder <= tokens else family.shrink(size, tokens) if tokens > 0 else None


def _as_prompt(share: int, image: ImageTokens) -> int:
    return share - image.markers


def _as_encoder(share: int, _image: ImageTokens) -> int:
    return share


def _as_pixels(share: int, image: ImageTokens) -> int:
    return share * image.placeholder // image.model_size.pixels


def _oldest_worth(images: Sequence[ImageCost], units: Sequence[int], excess: int) -> tuple[int, str | None]:
    """How many of the first images are worth `excess` units or more, and where the last of these stands."""
    dropped = 0
    while excess > 0:
        excess -= units[dropped]
        dropped += 1
    return dropped, images[dropped - 1].param
