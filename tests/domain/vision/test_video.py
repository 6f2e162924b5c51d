"""No video costs more than the bound: against the emulator's own reading of the processors, and by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.vision.base import ProcessorConfigError
from gateway.domain.vision.registry import FAMILIES as ALL_FAMILIES
from gateway.domain.vision.registry import resolve
from gateway.domain.vision.sources import Source
from gateway.domain.vision.video import FAMILIES, LOADED_FRAMES, VideoRule, video_rule
from gateway.emulator.vision import AspectRatioError, Family, TooShortError, VideoArea

QWEN2_VL = resolve("qwen2_5_vl").video
QWEN3_VL = resolve("qwen3_vl").video
SIDES = st.one_of(st.integers(1, 400), st.integers(1, 10_000))
AREAS = st.tuples(st.integers(1, 3_000_000), st.integers(1, 3_000_000)).map(sorted)


def real_tokens(family, frames, width, height):
    """None for what the processor refuses."""
    try:
        patches, units = family.video_grid(frames, width, height)
    except (AspectRatioError, TooShortError):
        return None
    return patches * units


@given(st.integers(1, 60), SIDES, SIDES, AREAS, st.sampled_from([28, 32]))
def test_frames_of_their_own_size_stay_within(frames, width, height, areas, unit):
    rule = VideoRule(unit, 2, *areas)
    tokens = real_tokens(Family("P", "r", unit, *areas), frames, width, height)
    assert tokens is None or 0 < tokens <= rule.most_encoder_tokens(frames)


@given(st.integers(1, 60), st.integers(0, 10), SIDES, SIDES, AREAS)
def test_frames_that_share_an_area_stay_within(frames, more, width, height, areas):
    """Also where more frames would have been taken."""
    rule = VideoRule(32, 2, *areas, shares_pixels=True)
    tokens = real_tokens(Family("P", "r", 32, 1, 1, VideoArea(*areas)), frames, width, height)
    assert tokens is None or 0 < tokens <= rule.most_encoder_tokens(frames + more)


@given(st.integers(1, 768), SIDES, SIDES)
def test_the_shipped_ones_stay_within(frames, width, height):
    for rule, family in (
        (QWEN2_VL, Family("P", "r", 28, 3136, 12845056)),
        (QWEN3_VL, Family("P", "r", 32, 1, 1, VideoArea(4096, 25165824))),
    ):
        tokens = real_tokens(family, frames, width, height)
        assert tokens is None or tokens <= rule.most_encoder_tokens(LOADED_FRAMES)


def test_the_bound_is_reached():
    """Not far above the truth: the largest frames, and the longest ones that share."""
    assert (
        QWEN2_VL.most_encoder_tokens(5) == 3 * 16384 == real_tokens(Family("P", "r", 28, 3136, 12845056), 5, 3584, 3584)
    )
    shared = Family("P", "r", 32, 1, 1, VideoArea(4096, 25165824))
    most = max(real_tokens(shared, frames, 6400 * 4, 32 * 4) for frames in range(2, 769))
    assert most <= QWEN3_VL.most_encoder_tokens(768) <= 1.02 * most


def test_an_odd_number_of_frames_that_just_fits_costs_a_patch_more():
    """Five of them are counted as four, fit, and are then filled up to six."""
    most = 4 * 1024 * 1024
    assert real_tokens(Family("P", "r", 32, 1, 1, VideoArea(1, most)), 5, 1024, 1024) == 3 * 1024
    assert VideoRule(32, 2, 1, most, shares_pixels=True).most_encoder_tokens(5) == 3 * 1024


def test_what_is_written_around_frames():
    assert QWEN2_VL.most_prompt_tokens(5) == QWEN2_VL.most_encoder_tokens(5) + 3
    assert QWEN3_VL.most_prompt_tokens(5) == QWEN3_VL.most_encoder_tokens(5) + 3 * len("<9999999.9 seconds>[]") + 3


def test_one_frame_costs_as_much_as_a_patch():
    assert QWEN2_VL.most_prompt_tokens(1) == QWEN2_VL.most_prompt_tokens(2) < QWEN2_VL.most_prompt_tokens(3)
    assert QWEN3_VL.most_prompt_tokens(1) == QWEN3_VL.most_prompt_tokens(2)


def test_families_that_define_nothing_have_no_bound():
    assert {name for name in ALL_FAMILIES if resolve(name).video is not None} == set(FAMILIES)
    assert resolve("internvl").video is None


def areas(rule):
    return [(number.value, number.source) for number in rule.numbers]


class TestWhichFileSays:
    FILE = Source("preprocessor_config.json", {"size": {"shortest_edge": 100, "longest_edge": 200}})
    VIDEO_FILE = Source("video_preprocessor_config.json", {"video_processor": {"size": {"longest_edge": 300}}})
    SETTING = Source("setting", {"size": {"shortest_edge": 5000, "longest_edge": 300}})

    def test_the_file_for_videos_before_that_for_images(self):
        rule = video_rule("qwen3_vl", {}, [self.FILE, self.VIDEO_FILE])
        assert areas(rule) == [(100, self.FILE.name), (300, self.VIDEO_FILE.name)]

    def test_the_file_for_images_where_there_is_no_other(self):
        assert areas(video_rule("qwen3_vl", {}, [self.FILE])) == [(100, self.FILE.name), (200, self.FILE.name)]

    def test_of_files_qwen3_reads_the_size_alone(self):
        """Its processor is one for videos, to which `min_pixels` and `max_pixels` of the one for images say nothing."""
        both = Source("preprocessor_config.json", {"max_pixels": 7, "size": {"longest_edge": 300}})
        assert areas(video_rule("qwen3_vl", {}, [both]))[1] == (300, both.name)
        pixels = Source("preprocessor_config.json", {"max_pixels": 7})
        assert areas(video_rule("qwen3_vl", {}, [pixels]))[1] == (25165824, "published checkpoints")
        assert areas(video_rule("qwen2_vl", {}, [both]))[1] == (7, both.name)

    @pytest.mark.parametrize(
        ("options", "files"),
        [
            ({"videos_kwargs": {"do_resize": False}}, []),
            ({}, [Source("video_preprocessor_config.json", {"video_processor": {"do_resize": False}})]),
        ],
    )
    def test_frames_of_any_size_are_refused(self, options, files):
        for family in ("qwen2_vl", "qwen3_vl"):
            with pytest.raises(
                ProcessorConfigError,
                match=r"video\w+\.do_resize is false: frames would",
            ):
                video_rule(family, options, files)
        assert video_rule("qwen3_vl", {"videos_kwargs": {"do_resize": True}}, []) is not None

    def test_the_servers_word_before_all(self):
        options = {"videos_kwargs": {"max_pixels": 7}, "max_pixels": 8, "size": {"shortest_edge": 6}}
        rule = video_rule("qwen3_vl", options, [self.FILE, self.VIDEO_FILE])
        assert areas(rule) == [(6, "mm-processor-kwargs"), (7, "mm-processor-kwargs")]

    def test_what_a_setting_says_of_images_makes_no_video_smaller_than_published(self):
        assert areas(video_rule("qwen3_vl", {}, [self.SETTING])) == [
            (5000, "published checkpoints"),
            (25165824, "published checkpoints"),
        ]

    def test_sizes_of_patches(self):
        file = Source("preprocessor_config.json", {"patch_size": 8, "merge_size": 4, "temporal_patch_size": 3})
        rule = video_rule("qwen2_vl", {}, [file])
        assert (rule.unit, rule.patch_frames) == (32, 3)

    def test_what_makes_no_sense_is_told(self):
        with pytest.raises(ProcessorConfigError, match=r"video_processor\.max_pixels must be"):
            video_rule("qwen2_vl", {}, [Source("processor_config.json", {"video_processor": {"max_pixels": "many"}})])
