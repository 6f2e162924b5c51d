"""What is budgeted, and amounts of it.

The resources that a request holds at the engine. Bytes in this process (bodies, decoded pixels) and seats are
budgeted too, each by a budget of its own (ledger/byte_budget.py): they are taken and given back at other moments.
"""

from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple


def ceil_div(dividend: int, divisor: int) -> int:
    """The quotient, rounded up."""
    return -(-dividend // divisor)


class Resource(IntEnum):
    """Index into every `Amounts`; the name in lower case is the metric label."""

    KV_BLOCKS = 0
    SEQUENCES = 1
    ENCODER_TOKENS = 2
    PREPROCESS_PIXELS = 3
    PREFILL_TOKENS = 4
    IMAGE_PREFILL_TOKENS = 5

    @property
    def label(self) -> str:
        return self.name.lower()


TO_FIRST_TOKEN = (Resource.PREFILL_TOKENS, Resource.IMAGE_PREFILL_TOKENS)
"""What is on its way to the first token; the second of what has images that are still decoded. Texts pass that, so they
do not wait for it."""


def begun_before(*, is_image: bool) -> tuple[Resource, ...]:
    """What of it comes before such a request."""
    return TO_FIRST_TOKEN if is_image else TO_FIRST_TOKEN[:1]


class Amounts(NamedTuple):
    """One number per `Resource`, in its order: blocks, sequences, embeddings, pixels, and prompt tokens (pace.py): of
    what can begin, and of what has images to be decoded first.
    """

    kv_blocks: int = 0
    sequences: int = 0
    encoder_tokens: int = 0
    preprocess_pixels: int = 0
    prefill_tokens: int = 0
    image_prefill_tokens: int = 0

    def with_prefill(self, tokens: int) -> "Amounts":
        """With so many prompt tokens, of texts or of images as its pixels say."""
        blocks, sequences, encoder_tokens, pixels, *_ = self
        return Amounts(blocks, sequences, encoder_tokens, pixels, *((0, tokens) if pixels else (tokens, 0)))

    def plus(self, other: "Amounts", sign: int = 1) -> "Amounts":
        """Resource by resource, with `sign` -1 less instead of more."""
        return Amounts(*[mine + sign * more for mine, more in zip(self, other, strict=True)])


class Capacity(NamedTuple):
    """Of each `Resource`, in its order; None: not enforced."""

    kv_blocks: int | None = None
    sequences: int | None = None
    encoder_tokens: int | None = None
    preprocess_pixels: int | None = None
    prefill_tokens: int | None = None
    image_prefill_tokens: int | None = None


Held = Callable[[Resource], int]
"""How much of it is held at the engine."""


class Bounds(NamedTuple):
    """A quantity that is known only within limits; all three are equal where it is exact.

    Never-fits is decided on `lower`, reservations on `expected`.
    """

    lower: int
    expected: int
    upper: int

    @classmethod
    def exact(cls, value: int) -> "Bounds":
        return cls(value, value, value)

    def __neg__(self) -> "Bounds":
        """So that bounds can be taken off a number: the lower bound of a remainder is made by the upper of the part."""
        return Bounds(-self.upper, -self.expected, -self.lower)

    def __add__(self, other: object) -> "Bounds":
        """Sum bound by bound (not tuple concatenation); an int is exact."""
        if isinstance(other, int):
            return Bounds(self.lower + other, self.expected + other, self.upper + other)
        if isinstance(other, Bounds):
            return Bounds(self.lower + other.lower, self.expected + other.expected, self.upper + other.upper)
        return NotImplemented
