"""What of a server's `--mm-processor-kwargs` changes the cost of an image, by family (vLLM 0.32, transformers 5.19).

A key stands here where vLLM hands it to what counts the image's tokens, and this house reads it. What is unknown vLLM
drops with a line in its log; here it is a mistake, for a wrong word would leave the prices wrong without one.
"""

from collections.abc import Iterator, Mapping

from gateway.domain.vision.base import ProcessorConfigError
from gateway.domain.vision.sources import Source

OPTIONS = "mm-processor-kwargs"
"""The name of the source."""

_AREAS = frozenset({"size", "min_pixels", "max_pixels"})
_TILES = frozenset({"min_dynamic_patch", "max_dynamic_patch", "dynamic_image_size", "use_thumbnail"})
_SPLIT = frozenset({"size", "max_image_size", "do_image_splitting"})

PRICED: Mapping[str, frozenset[str]] = {
    "qwen2_vl": _AREAS,
    "qwen2_5_vl": _AREAS,
    "qwen3_vl": _AREAS,
    "qwen3_vl_moe": _AREAS,
    "qwen3_5": _AREAS,
    "qwen3_5_moe": _AREAS,
    "dots_ocr": _AREAS,
    "mimo_vl": _AREAS,
    "ernie4_5_vl": _AREAS,
    "paddleocr_vl": _AREAS,
    "keye_vl": _AREAS - {"size"},  # its `size` has keys of its own
    "ovis2_5": _AREAS - {"size"},
    "glm4_1v": frozenset({"size"}),
    "glm4_6v": frozenset({"size"}),
    "lfm2_vl": frozenset(
        {
            "downsample_factor",
            "do_image_splitting",
            "min_tiles",
            "max_tiles",
            "min_image_tokens",
            "max_image_tokens",
            "encoder_patch_size",
            "tile_size",
            "max_pixels_tolerance",
        }
    ),
    "kimi_vl": frozenset({"in_token_limit"}),
    "pixtral_hf": frozenset({"size"}),
    "internvl": _TILES,
    "nvlm_d": _TILES,
    "h2ovl": _TILES | {"use_msac"},
    "internvl_hf": frozenset({"min_patches", "max_patches"}),
    "nemotron_nano_v2": frozenset({"max_num_tiles"}),
    "gemma3": frozenset(
        {
            "do_pan_and_scan",
            "pan_and_scan_min_crop_size",
            "pan_and_scan_max_num_crops",
            "pan_and_scan_min_ratio_to_activate",
        }
    ),
    "gemma4": frozenset({"max_soft_tokens"}),
    "llama4": frozenset({"max_patches", "resize_to_max_canvas"}),
    "idefics3": _SPLIT,
    "smolvlm": _SPLIT,
    "minicpmv": frozenset({"max_slice_nums"}),
    "minicpmv4_6": frozenset({"max_slice_nums", "downsample_mode"}),
    "phi3_5_vision": frozenset({"num_crops"}),
    "phi4_multimodal": frozenset({"dynamic_hd"}),
    "cohere2_vision": frozenset({"max_patches"}),
}
"""Of all other families vLLM reads what decides from the model's own files alone, or this house does not know it."""

_IMAGES = "images_kwargs"
_WITHOUT_EFFECT = frozenset(
    {
        # of other media, or of the text
        *("videos_kwargs", "audio_kwargs", "text_kwargs"),
        *("fps", "num_frames", "min_frames", "max_frames", "do_sample_frames", "sampling_rate"),
        *("padding", "padding_side", "truncation"),
        # of an image's pixels, once its size is settled
        *("do_convert_rgb", "resample", "do_rescale", "rescale_factor", "do_normalize", "image_mean", "image_std"),
        *("data_format", "input_data_format", "return_tensors", "disable_grouping", "device", "use_fast"),
    }
)


def option_sources(family: str, options: Mapping[str, object]) -> tuple[Source, ...]:
    """What `options` say of the family's images, the strongest first: vLLM lets `images_kwargs` go before what stands
    beside it. Raises ProcessorConfigError naming a key that changes nothing that is known.
    """
    flat = {key: value for key, value in options.items() if key != _IMAGES}
    scoped = options.get(_IMAGES) or {}
    if not isinstance(scoped, Mapping):
        raise ProcessorConfigError(_IMAGES, f"must be an object, not {scoped!r}")
    known = PRICED.get(family, frozenset())
    for key in (*scoped, *flat):
        if key not in known | _WITHOUT_EFFECT:
            raise ProcessorConfigError(key, _unknown(family, known))
    sources = (Source(OPTIONS, dict(_priced(each, known))) for each in (scoped, flat))
    return tuple(source for source in sources if source.values)


def _priced(options: Mapping[str, object], known: frozenset[str]) -> Iterator[tuple[str, object]]:
    return ((key, value) for key, value in options.items() if key in known)


def _unknown(family: str, known: frozenset[str]) -> str:
    words = ", ".join(sorted(known)) or "nothing"
    return f"is none of what mm_processor_kwargs can change of what an image of {family} costs, which is: {words}"
