"""Which family prices a model's images: one row per family here, one file per arithmetic beside it.

A row holds the name that settings and oracle files use, the `architectures` of `config.json`, and what reads a
configuration. What checkpoints ship, and how served names spell them, is in checkpoints.py.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from gateway.domain.geometry import Size
from gateway.domain.quoting import quoted
from gateway.domain.vision import (
    cohere,
    constant,
    deepseek,
    fuyu,
    gemma3,
    gemma4,
    h2ovl,
    idefics3,
    internvl,
    kimi,
    lfm2_vl,
    llama4,
    llava_next,
    minicpmv,
    minicpmv4_6,
    molmo,
    nemotron_nano_v2,
    nemotron_vl,
    nvlm_d,
    ovis2,
    ovis2_5,
    phi,
    pixtral,
    qwen_siblings,
    qwen_vl,
    step3_vl,
)
from gateway.domain.vision.base import ProcessorConfigError, UnservableImageError, VisionFamily
from gateway.domain.vision.checkpoints import CHECKPOINTS, Checkpoint, checkpoint_of_model_name
from gateway.domain.vision.options import option_sources
from gateway.domain.vision.sources import CLASS_DEFAULT, Number, Source, Sources
from gateway.domain.vision.video import VideoRule, video_rule

_PROBES = (Size(64, 64), Size(640, 480), Size(3000, 2000), Size(1, 60_000))
"""Images that families are tried with: small, usual, large, and a strip."""


class UnknownFamilyError(ValueError):
    """No row of that name; the text lists those there are."""

    def __init__(self, family: str) -> None:
        super().__init__(f"unknown model family {family!r}; known are {', '.join(FAMILIES)}")


@dataclass(frozen=True, slots=True)
class Row:
    """`build` reads a configuration; the families of one rule share it."""

    architectures: tuple[str, ...]
    build: Callable[[str, Sources], VisionFamily]


FAMILIES: Mapping[str, Row] = {
    "qwen2_vl": Row(("Qwen2VLForConditionalGeneration",), qwen_vl.from_sources),
    "qwen2_5_vl": Row(("Qwen2_5_VLForConditionalGeneration",), qwen_vl.from_sources),
    "qwen3_vl": Row(("Qwen3VLForConditionalGeneration",), qwen_vl.from_sources),
    "qwen3_vl_moe": Row(("Qwen3VLMoeForConditionalGeneration",), qwen_vl.from_sources),
    "qwen3_5": Row(("Qwen3_5ForConditionalGeneration",), qwen_vl.from_sources),
    "qwen3_5_moe": Row(("Qwen3_5MoeForConditionalGeneration",), qwen_vl.from_sources),
    "dots_ocr": Row(("DotsOCRForCausalLM",), qwen_vl.from_sources),
    "mimo_vl": Row(("MiMoV2OmniForCausalLM",), qwen_vl.from_sources),
    "ernie4_5_vl": Row(("Ernie4_5_VLMoeForConditionalGeneration",), qwen_siblings.ernie4_5_vl),
    "glm4_1v": Row(("Glm4vForConditionalGeneration", "Glm4vMoeForConditionalGeneration"), qwen_siblings.glm),
    "glm4_6v": Row(("Glm46VForConditionalGeneration", "GlmOcrForConditionalGeneration"), qwen_siblings.glm),
    "paddleocr_vl": Row(("PaddleOCRVLForConditionalGeneration",), qwen_siblings.paddleocr_vl),
    "keye_vl": Row(("KeyeForConditionalGeneration",), qwen_siblings.keye_vl),
    "ovis2_5": Row(("Ovis2_5", "Ovis2_6ForCausalLM", "Ovis2_6_MoeForCausalLM"), ovis2_5.from_sources),
    "lfm2_vl": Row(("Lfm2VlForConditionalGeneration",), lfm2_vl.from_sources),
    "kimi_vl": Row(("KimiVLForConditionalGeneration",), kimi.kimi_vl),
    "kimi_k2_5": Row(("KimiK25ForConditionalGeneration",), kimi.kimi_k2_5),
    "pixtral_hf": Row(
        ("Mistral3ForConditionalGeneration", "LightOnOCRForConditionalGeneration"), pixtral.by_transformers
    ),
    "pixtral_mistral_common": Row(("PixtralForConditionalGeneration",), pixtral.by_mistral),
    "internvl": Row(("InternVLChatModel", "QianfanOCRForConditionalGeneration"), internvl.from_sources),
    "internvl_hf": Row(
        ("InternVLForConditionalGeneration", "InternS1ForConditionalGeneration"), internvl.from_hf_sources
    ),
    "nvlm_d": Row(("NVLM_D",), nvlm_d.from_sources),
    "h2ovl": Row(("H2OVLChatModel",), h2ovl.from_sources),
    "nemotron_nano_vl_v1": Row(("Llama_Nemotron_Nano_VL",), nemotron_vl.from_sources),
    "nemotron_nano_v2": Row(("NemotronH_Nano_VL_V2",), nemotron_nano_v2.from_sources),
    "deepseek_vl2": Row(("DeepseekVLV2ForCausalLM",), deepseek.deepseek_vl2),
    "deepseek_ocr": Row(("DeepseekOCRForCausalLM",), deepseek.deepseek_ocr),
    "llava_1_5": Row(("LlavaForConditionalGeneration",), constant.llava),
    "llava_next": Row(("LlavaNextForConditionalGeneration",), llava_next.llava_next),
    "llava_onevision": Row(("LlavaOnevisionForConditionalGeneration",), llava_next.llava_onevision),
    "granite_vision": Row((), llava_next.llava_next),
    "granite4_vision": Row(("Granite4VisionForConditionalGeneration",), llava_next.granite4_vision),
    "gemma3": Row(("Gemma3ForConditionalGeneration",), gemma3.from_sources),
    "gemma3n": Row(("Gemma3nForConditionalGeneration",), constant.gemma3n),
    "gemma4": Row(("Gemma4ForConditionalGeneration",), gemma4.from_sources),
    "paligemma": Row(("PaliGemmaForConditionalGeneration",), constant.paligemma),
    "llama4": Row(("Llama4ForConditionalGeneration",), llama4.llama4),
    "mllama": Row(("MllamaForConditionalGeneration",), llama4.mllama),
    "idefics3": Row(("Idefics3ForConditionalGeneration",), idefics3.from_sources),
    "smolvlm": Row(("SmolVLMForConditionalGeneration",), idefics3.from_sources),
    "minicpmv": Row(("MiniCPMV", "MiniCPMO"), minicpmv.from_sources),
    "minicpmv4_6": Row(("MiniCPMV4_6ForConditionalGeneration",), minicpmv4_6.from_sources),
    "phi3_5_vision": Row(("Phi3VForCausalLM",), phi.phi3_5_vision),
    "phi4_multimodal": Row(("Phi4MMForCausalLM",), phi.phi4_multimodal),
    "molmo": Row(("MolmoForCausalLM",), molmo.from_sources),
    "ovis2": Row(("Ovis",), ovis2.from_sources),
    "step3_vl": Row(("Step3VLForConditionalGeneration",), step3_vl.from_sources),
    "cohere2_vision": Row(("Cohere2VisionForConditionalGeneration",), cohere.cohere2_vision),
    "aya_vision": Row(("AyaVisionForConditionalGeneration",), cohere.aya_vision),
    "fuyu": Row(("FuyuForCausalLM",), fuyu.from_sources),
    "janus": Row(("JanusForConditionalGeneration",), constant.janus),
    "glm4v": Row(("GLM4VForCausalLM",), constant.glm4v),
}


class Found(NamedTuple):
    """A family, where each number that its prices depend on came from, and what bounds the cost of its videos."""

    family: VisionFamily
    numbers: tuple[Number, ...]
    video: VideoRule | None = None


def family_for(family: str, processor_config: Mapping[str, object] | None) -> VisionFamily:
    """The arithmetic of `family` with a checkpoint's processor configuration, or the shipped one where there is none.

    `processor_config` is the content of preprocessor_config.json, or of processor_config.json with its nested
    `image_processor`. Raises UnknownFamilyError, or ProcessorConfigError naming the key.
    """
    if processor_config is None:
        return resolve(family).family
    return _build(family, processor_sources("configuration", processor_config)).family


def resolve(
    family: str,
    files: Sequence[Source] = (),
    *,
    options: Mapping[str, object] | None = None,
    checkpoint: Checkpoint | None = None,
    has_processor: bool = False,
) -> Found:
    """The family set up by what is known of a checkpoint: its `files`, the strongest first, and over them `options`,
    the server's `--mm-processor-kwargs`. Where no file is that of the processor (`has_processor`), nor has anything
    that the family reads, what `checkpoint` is published with, or else the first one of the family.

    Raises UnknownFamilyError, or ProcessorConfigError naming the key.
    """
    known = list(files)
    if not has_processor and all(number.source == CLASS_DEFAULT for number in _build(family, known).numbers):
        is_of_family = checkpoint is not None and checkpoint.family == family
        known.append(checkpoint.source if checkpoint and is_of_family else _first_of(family).source)
    found = _build(family, [*option_sources(family, options or {}), *known])
    return found._replace(video=video_rule(family, options or {}, known))


def processor_sources(name: str, config: Mapping[str, object]) -> list[Source]:
    """A processor's configuration, with the image processor that newer files nest ahead of what is beside it."""
    nested = config.get("image_processor", {})
    if not isinstance(nested, Mapping):
        raise ProcessorConfigError("image_processor", f"must be an object, not {nested!r}")
    return [Source(name, nested), Source(name, config)]


def family_of_architecture(architecture: str) -> str | None:
    """Name of the family that serves an entry of `architectures` in config.json."""
    return next((name for name, row in FAMILIES.items() if architecture in row.architectures), None)


def family_of_config(config: Mapping[str, object]) -> str | None:
    """Name of the family that serves a model with this config.json."""
    vision = config.get("vision_config")
    if isinstance(vision, Mapping) and vision.get("model_type") == "pixtral":
        return "pixtral_hf"  # as LLaVA by its architecture
    listed = config.get("architectures")
    names = [family_of_architecture(str(each)) for each in listed] if isinstance(listed, Sequence) else []
    return next((name for name in names if name is not None), None)


def family_of_model_name(name: str) -> str | None:
    """A careful guess from a served model id such as `Qwen/Qwen2.5-VL-7B-Instruct`; None when it is unsure."""
    checkpoint = checkpoint_of_model_name(name)
    return None if checkpoint is None else checkpoint.family


def _first_of(family: str) -> Checkpoint:
    return next(checkpoint for checkpoint in CHECKPOINTS if checkpoint.family == family)


def _build(family: str, sources: Sequence[Source]) -> Found:
    row = FAMILIES.get(family)
    if row is None:
        raise UnknownFamilyError(family)
    read = Sources(*sources)
    try:
        built = row.build(family, read)
        _prove(built)
    except ProcessorConfigError:
        raise
    except Exception as error:
        told = [number for number in read.numbers if number.source != CLASS_DEFAULT]
        raise ProcessorConfigError(
            ", ".join(number.key for number in told),
            f"cannot be reckoned with together ({type(error).__name__}): "
            + ", ".join(quoted(number.value) for number in told),
        ) from error
    return Found(built, read.numbers)


def _prove(family: VisionFamily) -> None:
    """Raises whatever a request would meet: what each number may be by itself says little of all of them together."""
    for size in _PROBES:
        with suppress(UnservableImageError):
            family.tokens(size)
    _ = family.max_image_tokens
