"""How many images and requests a planned pool holds."""

from typing import NamedTuple

from gateway.domain.geometry import Size
from gateway.domain.memory.defaults import NotPlannableError
from gateway.domain.memory.encoder import family_of
from gateway.domain.memory.plan import Flags, ModelSpec, Plan
from gateway.domain.vision.base import UnservableImageError


class Held(NamedTuple):
    """Images of one size: tokens of one as the prompt counts them, how many the whole pool holds at its lower limit
    and as expected, and how many one request of full length has room for.
    """

    size: Size
    tokens: int
    pool_low: int
    pool_expected: int
    per_request: int


def image_tokens(model: ModelSpec, flags: Flags, size: Size) -> int:
    """With the markers around it. Raises NotPlannableError for a size or a model that cannot be priced."""
    family = family_of(model, flags)
    if family is None:
        raise NotPlannableError(f"no family is known that prices the images of {model.name}")
    try:
        return family.tokens(size).prompt
    except UnservableImageError as unservable:
        raise NotPlannableError(str(unservable)) from unservable


def images_held(plan: Plan, size: Size) -> Held:
    """Raises NotPlannableError."""
    tokens = image_tokens(plan.model, plan.flags, size)
    blocks = plan.kv_layout.blocks_of(tokens)
    low, expected = (count // blocks for count in (plan.kv_blocks.low, plan.kv_blocks.expected))
    return Held(size, tokens, low, expected, (plan.flags.max_model_len or 0) // tokens)
