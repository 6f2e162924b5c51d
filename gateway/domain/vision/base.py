"""What every model family answers about one image."""

from dataclasses import dataclass
from typing import Protocol

from gateway.domain.geometry import Size
from gateway.domain.quoting import shortened

MOST_PIXELS = 178_956_970
"""vLLM decodes no larger image (0.32, `multimodal/media/image.py`)."""

_LONGEST_PROBLEM = 1000


class UnservableImageError(ValueError):
    """The model's processor refuses this size whatever the budget (aspect ratio, zero side); the text says why."""


class ProcessorConfigError(ValueError):
    """A processor configuration that the model's own processor would refuse, or that this house cannot price."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"image processor configuration: {shortened(key)} {shortened(problem, _LONGEST_PROBLEM)}")
        self.key = key


@dataclass(frozen=True, slots=True)
class ImageTokens:
    """What one image costs.

    `placeholder` prompt tokens inside the replacement, `markers` tokens that the chat template writes around it,
    `encoder` embeddings that the vision encoder makes (the unit of vLLM's encoder budget), `model_size` the size to
    which the processor brings the image. `is_capped` says that the processor's own maximum made it smaller (rounding
    to the grid alone does not count).

    The counts are exact. Where size alone does not decide they are BoundedTokens.
    """

    placeholder: int
    markers: int
    encoder: int
    model_size: Size
    is_capped: bool = False

    @property
    def prompt(self) -> int:
        return self.placeholder + self.markers

    @property
    def least_prompt(self) -> int:
        """Prompt tokens that are sure to come, one at least: what a refusal for good may rest on."""
        return self.prompt

    @property
    def least_encoder(self) -> int:
        """Embeddings that are sure to come."""
        return self.encoder

    @property
    def is_exact(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class BoundedTokens(ImageTokens):
    """What one image costs at most, where more than its size decides: the other images of the request, its text.

    `uncertain` of the prompt tokens and `uncertain_encoder` of the embeddings may not come.
    """

    uncertain: int = 0
    uncertain_encoder: int = 0

    @property
    def least_prompt(self) -> int:
        return max(1, self.placeholder + self.markers - self.uncertain)

    @property
    def least_encoder(self) -> int:
        return max(min(1, self.encoder), self.encoder - self.uncertain_encoder)

    @property
    def is_exact(self) -> bool:
        return not (self.uncertain or self.uncertain_encoder)


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
        """Most tokens that the chat template writes around an image."""
        ...

    def tokens(self, size: Size) -> ImageTokens:
        """Cost of an image of `size` (after orientation). Raises UnservableImageError."""
        ...

    def shrink(self, size: Size, max_tokens: int) -> Size | None:
        """Largest size on the model's own grid that costs at most `max_tokens` placeholder tokens.

        Returns `size` itself where it already fits (pixels stay untouched) and None where no size can.
        The model spends no more on the result than planned, and shrinking it again changes nothing.
        """
        ...


def refuse_empty(size: Size) -> None:
    """Raises UnservableImageError for a size without pixels."""
    if size.width < 1 or size.height < 1:
        raise UnservableImageError(f"the image is {size}: a side is empty")
