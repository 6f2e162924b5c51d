"""Families whose images all cost the same: LLaVA 1.5, PaliGemma, Janus, Gemma 3n and the old GLM-4V.

Each brings every image to one square. Nothing is to be saved by sending less, so a budget is met or it is not.
Sources: LLaVA 1.5 (arXiv:2310.03744), vLLM 0.32 `llava.py`; PaliGemma (arXiv:2407.07726), `paligemma.py`;
Janus (arXiv:2410.13848), transformers `processing_janus.py`; vLLM `gemma3n_mm.py` and `glm4v.py`.
"""

from dataclasses import dataclass

from gateway.domain.geometry import Size
from gateway.domain.vision.base import BoundedTokens, ImageTokens, ProcessorConfigError, refuse_empty
from gateway.domain.vision.fitting import Fitted
from gateway.domain.vision.sources import Sources


@dataclass(frozen=True, slots=True)
class Constant(Fitted):
    """`soft` embeddings, and `structure` tokens around them inside the replacement, of which `merging` may melt into
    their neighbours. `side` is that of the square in pixels.
    """

    name: str
    side: int
    soft: int
    structure: int = 0
    merging: int = 0

    @property
    def max_image_tokens(self) -> int:
        return self.soft + self.structure

    def tokens(self, size: Size) -> ImageTokens:
        refuse_empty(size)
        return BoundedTokens(
            self.soft + self.structure, 0, self.soft, Size(self.side, self.side), uncertain=self.merging
        )


def llava(name: str, read: Sources) -> Constant:
    """The shorter side is scaled to the square's before the centre is cut out: a long strip becomes a huge picture in
    the server's memory, whatever it costs in tokens.
    """
    side, _, base = clip_grid(read)
    return Constant(name, side, base)


def clip_grid(read: Sources) -> tuple[int, int, int]:
    """Side of a tile, patches along it, and the tokens of one whole tile: all patches, and with the strategy `full` the
    class token too where the encoder has one (CLIP has, SigLIP, whose tiles are 384 pixels wide, has not).
    """
    side = read.side("vision_config.image_size", "image_size", default=336)
    grid = side // read.side("vision_config.patch_size", "patch_size", default=14)
    kind = read.value("vision_config.model_type", default="siglip_vision_model" if side == 384 else "clip_vision_model")
    strategy = read.value("vision_feature_select_strategy", default="default")
    if strategy not in {"default", "full"}:
        raise ProcessorConfigError("vision_feature_select_strategy", f"must be default or full, not {strategy!r}")
    has_class_token = "clip" in str(kind) and "siglip" not in str(kind)
    return side, grid, grid * grid + has_class_token - (strategy == "default")


def paligemma(name: str, read: Sources) -> Constant:
    """One `<bos>` more, which vLLM adds after the soft tokens."""
    side = read.side("vision_config.image_size", "size", "image_size", default=224)
    patch = read.side("vision_config.patch_size", "patch_size", default=14)
    return Constant(name, side, (side // patch) ** 2, structure=1)


def janus(name: str, read: Sources) -> Constant:
    """Begin and end of the image stand around 24 x 24 embeddings."""
    side = read.side("size", "vision_config.image_size", default=384)
    return Constant(name, side, read.whole("num_image_tokens", default=576), structure=2)


def gemma3n(name: str, read: Sources) -> Constant:
    """Begin, end and a blank line before and after; right after a newline one of those melts into it."""
    side = read.side("size", default=768)
    return Constant(name, side, read.whole("vision_soft_tokens_per_image", default=256), structure=4, merging=1)


def glm4v(name: str, read: Sources) -> Constant:
    """GLM-4V-9B. Begin and end are embeddings for vLLM; it takes one image a request."""
    side = read.side("vision_config.image_size", "image_size", default=1120)
    patches = side // read.side("vision_config.patch_size", "patch_size", default=14)
    return Constant(name, side, (patches // 2) ** 2 + 2)
