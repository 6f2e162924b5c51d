"""What is profiled: the modality and items that vLLM's log line names, and the tower's peak from logs."""

from dataclasses import replace

import pytest

from gateway.domain.memory.calibration import Calibration
from gateway.domain.memory.encoder import (
    embedding_bytes,
    encoder_profile,
    family_of,
    largest_grid,
    largest_image_tokens,
    tower_peak,
)
from gateway.domain.memory.plan import Flags, Version
from gateway.domain.vision.base import ImageTokens, UnservableImageError
from tests.support.memory import GEMMA_4B, LLAMA_8B, QWEN3_8B, QWEN_3B, QWEN_7B, spec

V8, V9, V11, V23 = Version(0, 8, 3), Version(0, 9), Version(0, 11), Version(0, 23)


def flags(length=8192, tokens=2048, sequences=256, **more):
    return Flags(max_model_len=length, max_num_batched_tokens=tokens, max_num_seqs=sequences, **more)


def profiled(name, version=V23, **more):
    found = encoder_profile(spec(name), flags(**more), version)
    return found.budget_tokens, found.items, found.modality


def peak(name, version=V23, *, has_kernel=True, **more):
    chosen = flags(**more)
    found = encoder_profile(spec(name), chosen, version)
    return tower_peak(spec(name), chosen, found, Calibration(version), has_kernel=has_kernel).expected


@pytest.mark.parametrize(
    ("name", "how", "logged"),
    [
        (QWEN_3B, {"limit_mm_per_prompt": {"video": 0}}, (16_384, 1, "image")),
        (QWEN_7B, {"length": 128_000}, (114_688, 1, "video")),
        (QWEN_7B, {"length": 32_768}, (32_768, 1, "video")),
        ("Qwen2.5-VL-72B-Instruct", {"version": V8, "mm_processor_kwargs": {"max_pixels": 1280, "min_pixels": 256}},
         (2048, 256, "video")),
        (QWEN3_8B, {"length": 131_072}, (16_384, 1, "image")),
        (QWEN3_8B, {"tokens": 32_768}, (32_768, 2, "image")),
        (GEMMA_4B, {"tokens": 8192}, (8192, 32, "image")),
        ("InternVL3-1B", {"length": 65_536}, (62_208, 1, "video")),
        (LLAMA_8B, {}, (0, 0, None)),
        (QWEN_7B, {"limit_mm_per_prompt": {"image": 0, "video": 0}}, (0, 0, None)),
        (GEMMA_4B, {"tokens": 8192, "sequences": 1, "limit_mm_per_prompt": {"image": 2}}, (8192, 2, "image")),
    ],
)  # fmt: skip
def test_the_modality_items_and_budget_that_vllm_logs(name, how, logged):
    assert profiled(name, **how) == logged


def test_a_video_of_qwen3_stays_below_its_largest_image():
    found = encoder_profile(spec(QWEN3_8B), flags(131_072), V23)
    assert found.max_tokens == {"image": 16_384, "video": 12_288}


@pytest.mark.parametrize(
    "options", [{"max_pixels": 1_048_576}, {"size": {"longest_edge": 1_048_576, "shortest_edge": 4096}}]
)
def test_a_pixel_limit_holds_for_qwen3s_videos_too(options):
    found = encoder_profile(spec(QWEN3_8B), flags(mm_processor_kwargs=options), V23)
    assert found.max_tokens == {"image": 1024, "video": 512}


@pytest.mark.parametrize(
    ("name", "version", "how", "derived_gib", "tolerance"),
    [
        (QWEN_7B, V9, {}, 2.29, 0.02),  # derived from the log of a start on L4
        (QWEN_7B, V23, {"length": 128_000}, 15.26, 0.02),  # A100-80, one video
        (QWEN3_8B, V23, {"tokens": 16_384}, 1.51, 0.02),  # printed on B200
        ("Qwen3-VL-2B-Instruct", V23, {}, 1.40, 0.02),
        (QWEN_3B, V11, {}, 3.31, 0.03),  # queries and keys were concatenated in that version alone
    ],
)
def test_the_towers_peak_in_logs(name, version, how, derived_gib, tolerance):
    assert peak(name, version, **how) == pytest.approx(derived_gib, rel=tolerance)


def test_the_same_tower_costs_a_small_model_no_more_than_a_large_one():
    assert peak(QWEN_3B) == peak(QWEN_7B)


def test_the_pixel_limit_scales_the_peak():
    small = peak(QWEN_7B, mm_processor_kwargs={"max_pixels": 1_003_520}, limit_mm_per_prompt={"video": 0})
    assert small == pytest.approx(0.27, abs=0.01)


def test_without_a_kernel_the_matrix_of_scores_decides():
    # 16 heads x 65,536 squared x 2 bytes = 128 GiB: no card holds it.
    assert peak(QWEN3_8B, has_kernel=False) == pytest.approx(128 + peak(QWEN3_8B))
    assert peak(QWEN3_8B, has_kernel=False, tensor_parallel_size=2) == pytest.approx(
        64 + peak(QWEN3_8B, tensor_parallel_size=2)
    )


def test_ranks_share_a_batch_where_each_has_the_whole_tower():
    whole = peak(GEMMA_4B, tokens=8192) - 0.1
    shared = peak(GEMMA_4B, tokens=8192, tensor_parallel_size=4, mm_encoder_tp_mode="data") - 0.1
    assert shared == pytest.approx(whole / 4)


def test_where_nothing_is_profiled_nothing_is_needed():
    assert peak(LLAMA_8B) == peak(QWEN_7B, limit_mm_per_prompt={"image": 0, "video": 0}) == 0


@pytest.mark.parametrize(("name", "size"), [(QWEN_3B, 4096), (QWEN_7B, 7168), (QWEN3_8B, 4 * 8192), (LLAMA_8B, 8192)])
def test_an_embedding_is_as_wide_as_the_language_model_and_its_deepstack(name, size):
    assert embedding_bytes(spec(name), Flags()) == size


@pytest.mark.parametrize(("pixels", "tokens"), [(12_845_056, 16_384), (1280, 1), (784 * 211, 210), (100, 1)])
def test_the_largest_grid_keeps_to_the_ratio(pixels, tokens):
    assert largest_grid(pixels, 28) == tokens  # 211 is a prime: one row of 211 is too long


def test_a_model_without_a_known_family_takes_what_its_spec_says():
    unknown = replace(spec(GEMMA_4B), family=None)
    assert family_of(unknown, flags()) is None
    assert encoder_profile(unknown, flags(), V23).max_tokens == {"image": 256}
    untold = replace(unknown, vision=replace(unknown.vision, max_image_tokens=None))
    assert encoder_profile(untold, flags(), V23).modality is None


class Squares:
    """A family that takes nothing else."""

    def tokens(self, size):
        if size.width != size.height:
            raise UnservableImageError("no square")
        return ImageTokens(9, 0, 7, size)


def test_shapes_that_a_family_refuses_are_no_largest_image():
    assert largest_image_tokens(spec(GEMMA_4B).vision, Squares()) == 7


def test_qwen3_without_its_family_has_images_alone():
    unknown = replace(spec(QWEN3_8B), family=None)
    assert encoder_profile(unknown, flags(), V23).max_tokens == {"image": 16_384}


@pytest.mark.parametrize(
    ("name", "limit", "patches"),
    [
        (QWEN_3B, (560, 560), 1600),
        (QWEN_3B, (560, 0), 40 * 256),
        (QWEN_3B, (9999, 9999), 65_536),
        (QWEN_3B, (1, 3584), 65_536),
        (GEMMA_4B, (512, 512), 4096),
    ],
)
def test_a_limited_image_makes_the_profile_smaller_and_leaves_the_budget(name, limit, patches):
    only_images = {"image": 1, "video": 0}
    chosen = flags(limit_mm_per_prompt=only_images, sequences=1, profiled_image=limit)
    found = encoder_profile(spec(name), chosen, V23)
    assert found.patches == patches
    assert found.budget_tokens == encoder_profile(spec(name), replace(chosen, profiled_image=None), V23).budget_tokens
