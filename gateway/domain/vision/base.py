"""What every model family answers about one image."""

from dataclasses import dataclass
from typing import Protocol

from gateway.domain.geometry import Size


class UnservableImageError(ValueError):
    """The model's processor refuses this size whatever the budget (aspect ratio, zero side); the text says why."""


class ProcessorConfigError(ValueError):
    """A processor configuration that the model's own processor would refuse, or that this house cannot price."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"image processor configuration: {key} {problem}")
        self.key = key


@dataclass(frozen=True, slots=True)
class ImageTokens:
    """What one image costs.

    `placeholder` prompt tokens inside the replacement, `markers` tokens that the chat template writes around it,
    `encoder` embeddings that the vision encoder makes (the unit of vLLM's encoder budget), `model_size` the size to
    which the processor brings the image. `is_capped` says that the processor's own maximum made it smaller (rounding
    to the grid alone does not count).
    """

    placeholder: int
    markers: int
    encoder: int
    model_size: Size
    is_capped: bool = False

    @property
    def prompt(self) -> int:
        return self.placeholder + self.markers


class VisionFamily(Protocol):
    """Arithmetic of one family with one processor configuration. Pure: sizes in, tokens out."""

    @property
    def name(self) -> str:
        """The family as settings and oracles name it, e.g. `qwen2_5_vl`."""
        ...

    @property
    def min_side(self) -> int:
        """Sides below this are brought to the model's own target before they are sent, in pixels."""
        ...

    @property
    def max_image_tokens(self) -> int:
        """Most placeholder tokens that any image can cost."""
        ...

    @property
    def markers(self) -> int:
        """Tokens that the chat template writes around each image."""
        ...

    def tokens(self, size: Size) -> ImageTokens:
        """Cost of an image of `size` (after orientation). Raises UnservableImageError."""
        ...

    def shrink(self, size: Size, max_tokens: int) -> Size | None:
        """Largest size on the model's own grid that costs at most `max_tokens` placeholder tokens.

        Returns `size` itself where it already fits (pixels stay untouched) and None where no size can.
        The result is a fixed point of the processor: the model does not resize it again.
        """
        ...
