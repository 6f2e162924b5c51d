"""Published checkpoints: how served names spell them, their family, and the numbers that their own files ship.

The first one of a family stands for it where no more is known. `evidence` says how each set of numbers is known:
seen in a public copy of the checkpoint's files, the default of the processor's class, or assumed.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import product
from typing import NamedTuple

from gateway.domain.vision.sources import Source

VERIFIED = "verified"
IN_PART = "verified in part"
CLASS = "class default"
ASSUMED = "not seen"


class Checkpoint(NamedTuple):
    """`served_name` is a pattern searched in the lower-case model id."""

    title: str
    family: str
    served_name: str
    evidence: str
    config: Mapping[str, object]

    @property
    def source(self) -> Source:
        return Source(f"published {self.title} ({self.evidence})", self.config)


def _pinpoints(*shapes: tuple[int, int], tile: int = 384) -> list[list[int]]:
    """Heights and widths of canvases of so many rows and columns."""
    return [[rows * tile, columns * tile] for rows, columns in shapes]


def _up_to(tiles: int) -> Iterator[tuple[int, int]]:
    """Rows and columns of at most so many tiles, row by row."""
    return (
        (rows, columns)
        for rows, columns in product(range(1, tiles + 1), range(1, tiles + 1))
        if rows * columns <= tiles
    )


_QWEN2 = {"patch_size": 14, "merge_size": 2, "min_pixels": 3136, "max_pixels": 12845056}
_QWEN3 = {"patch_size": 16, "merge_size": 2, "size": {"shortest_edge": 65536, "longest_edge": 16777216}}
_GLM = {"patch_size": 14, "merge_size": 2, "size": {"shortest_edge": 12544, "longest_edge": 9633792}}
_INTERNVL = {
    "force_image_size": 448,
    "downsample_ratio": 0.5,
    "min_dynamic_patch": 1,
    "max_dynamic_patch": 12,
    "dynamic_image_size": True,
    "use_thumbnail": True,
}
_SMALL_INTERNVL = _INTERNVL | {"max_dynamic_patch": 6}
_MISTRAL_SMALL = {"patch_size": 14, "size": {"longest_edge": 1540}, "spatial_merge_size": 2}
_SMOLVLM = {"size": {"longest_edge": 2048}, "max_image_size": {"longest_edge": 512}, "image_seq_len": 64}
_MINICPMV = {"max_slice_nums": 9, "scale_resolution": 448, "image_feature_size": 64, "use_image_id": True}
_LFM2 = {"min_image_tokens": 64, "max_image_tokens": 256, "min_tiles": 2, "max_tiles": 10, "tile_size": 512}
_GRANITE = _pinpoints(*(shape for shape in _up_to(10) if shape != (1, 1)))
_SIGLIP = {"image_size": 384, "patch_size": 14, "vision_feature_select_strategy": "full"}

CHECKPOINTS: tuple[Checkpoint, ...] = (
    Checkpoint("Qwen2-VL, QVQ", "qwen2_vl", r"qwen[-_]?2[-_]?vl|qvq-72b", VERIFIED, _QWEN2),
    Checkpoint("Qwen2.5-VL", "qwen2_5_vl", r"qwen[-_]?2[._-]5[-_]?vl", VERIFIED, _QWEN2),
    Checkpoint("Qwen3-VL", "qwen3_vl", r"qwen[-_]?3[-_]?vl(?!-\d+b-a\d+b)", VERIFIED, _QWEN3),
    Checkpoint("Qwen3-VL (MoE)", "qwen3_vl_moe", r"qwen[-_]?3[-_]?vl-\d+b-a\d+b", VERIFIED, _QWEN3),
    Checkpoint("Qwen3.5", "qwen3_5", r"qwen[-_]?3[._]5(?!-\d+b-a\d+b)", VERIFIED, _QWEN3),
    Checkpoint("Qwen3.5 (MoE)", "qwen3_5_moe", r"qwen[-_]?3[._]5-\d+b-a\d+b", VERIFIED, _QWEN3),
    Checkpoint("dots.ocr", "dots_ocr", r"dots[._-]ocr", VERIFIED, _QWEN2 | {"max_pixels": 11289600}),
    Checkpoint("MiMo-VL-7B", "mimo_vl", r"mimo-vl", ASSUMED, _QWEN2),
    Checkpoint("MiMo-V2.5", "mimo_vl", r"mimo-v2\.5", VERIFIED, _QWEN2 | {"patch_size": 16}),
    Checkpoint("ERNIE-4.5-VL", "ernie4_5_vl", r"ernie-4\.5-vl", CLASS, {"min_pixels": 3136, "max_pixels": 4842768}),
    Checkpoint("GLM-4.1V, GLM-4.5V", "glm4_1v", r"glm-?4\.[15]v", VERIFIED, _GLM),
    Checkpoint("GLM-OCR", "glm4_6v", r"glm-ocr", VERIFIED, _GLM),
    Checkpoint("GLM-4.6V", "glm4_6v", r"glm-?4\.6v", ASSUMED, _GLM),
    Checkpoint(
        "PaddleOCR-VL",
        "paddleocr_vl",
        r"paddleocr-vl(?!-1\.5)",
        VERIFIED,
        {"min_pixels": 147384, "max_pixels": 2822400},
    ),
    Checkpoint(
        "PaddleOCR-VL-1.5",
        "paddleocr_vl",
        r"paddleocr-vl-1\.5",
        VERIFIED,
        {"min_pixels": 112896, "max_pixels": 1003520},
    ),
    Checkpoint("Keye-VL", "keye_vl", r"keye-vl(?!-?1[._]5)", VERIFIED, {"min_pixels": 102400, "max_pixels": 1003520}),
    Checkpoint("Ovis2.5", "ovis2_5", r"ovis-?2\.5", CLASS, {"min_pixels": 448**2, "max_pixels": 1792**2}),
    Checkpoint("LFM2-VL-450M", "lfm2_vl", r"lfm2-vl-450m", VERIFIED, _LFM2 | {"max_pixels_tolerance": 2.0}),
    Checkpoint("LFM2-VL-1.6B", "lfm2_vl", r"lfm2-vl-1\.6b", VERIFIED, _LFM2 | {"max_pixels_tolerance": 1.5}),
    Checkpoint("Kimi-VL", "kimi_vl", r"kimi-vl(?!.*2506)", VERIFIED, {"patch_size": 14, "in_token_limit": 4096}),
    Checkpoint("Kimi-VL 2506", "kimi_vl", r"kimi-vl.*2506", VERIFIED, {"patch_size": 14, "in_token_limit": 16384}),
    Checkpoint("Kimi-K2.5", "kimi_k2_5", r"kimi-k2\.5", CLASS, {"patch_size": 14, "max_patches": 16384}),
    Checkpoint(
        "Pixtral-12B (Hugging Face)",
        "pixtral_hf",
        r"pixtral-12b(?!-(base-)?2409$)",
        VERIFIED,
        {"patch_size": 16, "size": {"longest_edge": 1024}},
    ),
    Checkpoint("Mistral Small 3.1, 3.2", "pixtral_hf", r"mistral-small-3\.[12]", VERIFIED, _MISTRAL_SMALL),
    Checkpoint(
        "Pixtral-12B-2409",
        "pixtral_mistral_common",
        r"pixtral-12b-(base-)?2409$",
        VERIFIED,
        {"image_patch_size": 16, "max_image_size": 1024},
    ),
    Checkpoint(
        "InternVL2, 2.5, 3, 3.5",
        "internvl",
        r"internvl-?(2|3)(?!.*-hf)",
        IN_PART,
        _INTERNVL,
    ),
    Checkpoint(
        "InternVL (-hf), Intern-S1",
        "internvl_hf",
        r"internvl.*-hf|intern-?s1(?!-pro)",
        VERIFIED,
        {"size": 448, "min_patches": 1, "max_patches": 12, "image_seq_length": 256},
    ),
    Checkpoint("NVLM-D", "nvlm_d", r"nvlm-d", ASSUMED, _SMALL_INTERNVL),
    Checkpoint("H2OVL Mississippi", "h2ovl", r"h2ovl", IN_PART, _SMALL_INTERNVL | {"use_msac": True}),
    Checkpoint(
        "Llama Nemotron Nano VL",
        "nemotron_nano_vl_v1",
        r"nemotron-nano-vl",
        ASSUMED,
        _INTERNVL | {"force_image_size": 512, "patch_size": 16},
    ),
    Checkpoint(
        "Nemotron Nano V2 VL",
        "nemotron_nano_v2",
        r"nemotron-nano-.*v2-vl",
        ASSUMED,
        {"force_image_size": 512, "patch_size": 16, "use_thumbnail": True, "max_num_tiles": 12},
    ),
    Checkpoint(
        "DeepSeek-VL2",
        "deepseek_vl2",
        r"deepseek-vl2",
        VERIFIED,
        {"patch_size": 14, "downsample_ratio": 2, "image_size": 384},
    ),
    Checkpoint("DeepSeek-OCR", "deepseek_ocr", r"deepseek-ocr(?!-?2)", CLASS, {"base_size": 1024, "image_size": 640}),
    Checkpoint(
        "LLaVA-1.5",
        "llava_1_5",
        r"llava-(v)?1\.5",
        CLASS,
        {"image_size": 336, "patch_size": 14, "vision_feature_select_strategy": "default"},
    ),
    Checkpoint(
        "LLaVA-NeXT (Vicuna, Mistral)",
        "llava_next",
        r"llava-v1\.6-(vicuna|mistral)",
        VERIFIED,
        {
            "image_size": 336,
            "patch_size": 14,
            "image_grid_pinpoints": _pinpoints((1, 2), (2, 1), (2, 2), (3, 1), (1, 3), tile=336),
        },
    ),
    Checkpoint(
        "LLaVA-OneVision",
        "llava_onevision",
        r"llava-onevision(?!-1\.5|-2)",
        VERIFIED,
        _SIGLIP | {"image_grid_pinpoints": _pinpoints(*product(range(1, 7), range(1, 7)))},
    ),
    Checkpoint(
        "Granite Vision 3",
        "granite_vision",
        r"granite-vision-3",
        VERIFIED,
        _SIGLIP | {"image_grid_pinpoints": _GRANITE},
    ),
    Checkpoint(
        "Granite 4 Vision",
        "granite4_vision",
        r"granite-4.*vision",
        IN_PART,
        {
            "image_size": 384,
            "patch_size": 16,
            "downsample_rate": "4/8",
            "image_grid_pinpoints": _pinpoints((1, 1)) + _GRANITE,
        },
    ),
    Checkpoint("Gemma 3", "gemma3", r"gemma-3-(4|12|27)b", VERIFIED, {"size": 896, "image_seq_length": 256}),
    Checkpoint("Gemma 3n", "gemma3n", r"gemma-3n", CLASS, {"vision_soft_tokens_per_image": 256}),
    Checkpoint("Gemma 4", "gemma4", r"gemma-4", CLASS, {"patch_size": 16, "max_soft_tokens": 280}),
    *(
        Checkpoint(
            f"PaliGemma {side}", "paligemma", rf"paligemma.*-{side}\b", CLASS, {"image_size": side, "patch_size": 14}
        )
        for side in (224, 448, 896)
    ),
    Checkpoint("Llama 4", "llama4", r"llama-?4", VERIFIED, {"size": 336, "max_patches": 16}),
    Checkpoint(
        "Llama 3.2 Vision", "mllama", r"llama-?3\.2-(11|90)b-vision", VERIFIED, {"size": 560, "max_image_tiles": 4}
    ),
    Checkpoint(
        "Idefics3",
        "idefics3",
        r"idefics-?3",
        VERIFIED,
        {"size": {"longest_edge": 1456}, "max_image_size": {"longest_edge": 364}, "image_seq_len": 169},
    ),
    Checkpoint("SmolVLM 256M, 500M", "smolvlm", r"smolvlm2?-(256m|500m)", VERIFIED, _SMOLVLM),
    Checkpoint(
        "SmolVLM 2.2B",
        "smolvlm",
        r"smolvlm-(instruct|base)|smolvlm2?-2\.2b",
        VERIFIED,
        {"size": {"longest_edge": 1536}, "max_image_size": {"longest_edge": 384}, "image_seq_len": 81},
    ),
    Checkpoint(
        "MiniCPM-V 2.6 to 4.5, MiniCPM-o 2.6",
        "minicpmv",
        r"minicpm-v-(2[._]6|4(?![._][67]))|minicpm-o-2[._]6",
        VERIFIED,
        _MINICPMV,
    ),
    Checkpoint(
        "MiniCPM-Llama3-V-2.5",
        "minicpmv",
        r"minicpm-llama3-v-2[._]5",
        VERIFIED,
        _MINICPMV | {"image_feature_size": 96, "use_image_id": False},
    ),
    Checkpoint(
        "MiniCPM-V 4.6",
        "minicpmv4_6",
        r"minicpm-v-4[._]6",
        VERIFIED,
        {"max_slice_nums": 9, "scale_resolution": 448, "patch_size": 14, "downsample_mode": "16x"},
    ),
    Checkpoint("Phi-3.5-vision", "phi3_5_vision", r"phi-3\.5-vision", VERIFIED, {"num_crops": 4}),
    Checkpoint("Phi-3-vision", "phi3_5_vision", r"phi-3-vision", ASSUMED, {"num_crops": 16}),
    Checkpoint("Phi-4-multimodal", "phi4_multimodal", r"phi-4-multimodal", VERIFIED, {"dynamic_hd": 36}),
    Checkpoint(
        "Molmo-7B",
        "molmo",
        r"molmo-?7b",
        VERIFIED,
        {"max_crops": 12, "overlap_margins": [4, 4], "base_image_input_size": [336, 336], "image_patch_size": 14},
    ),
    Checkpoint("Ovis2", "ovis2", r"ovis-?2-", ASSUMED, {"image_size": 448, "patch_size": 14, "hidden_stride": 2}),
    Checkpoint("Step3-VL", "step3_vl", r"step-?3(-vl|-fp8)?$", CLASS, {"enable_patch": True}),
    Checkpoint(
        "Command A Vision",
        "cohere2_vision",
        r"command-a-vision",
        CLASS,
        {"size": 512, "patch_size": 16, "max_patches": 12},
    ),
    Checkpoint("Aya Vision", "aya_vision", r"aya-vision", IN_PART, {"img_size": 364, "max_patches": 12}),
    Checkpoint("Fuyu-8B", "fuyu", r"fuyu-8b", CLASS, {"size": {"height": 1080, "width": 1920}, "patch_size": 30}),
    Checkpoint("Janus", "janus", r"janus-(pro-)?\d", CLASS, {"num_image_tokens": 576}),
    Checkpoint("GLM-4V-9B", "glm4v", r"glm-4v-9b", ASSUMED, {"image_size": 1120, "patch_size": 14}),
)

_OTHER_MODELS = re.compile(r"embed|rerank|omni|audio|coder")
"""Siblings whose names contain a checkpoint's name but whose limits or input differ."""


def checkpoint_of_model_name(name: str) -> Checkpoint | None:
    """The one that a served model id such as `Qwen/Qwen2.5-VL-7B-Instruct` is of; None when it is unsure."""
    lowered = name.lower()
    if _OTHER_MODELS.search(lowered):
        return None
    found = [checkpoint for checkpoint in CHECKPOINTS if re.search(checkpoint.served_name, lowered)]
    return found[0] if len(found) == 1 else None
