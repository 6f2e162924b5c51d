"""What a server's counts of a few pictures tell. What the real vLLM counted for them stands in tests/data."""

import json
from itertools import product
from pathlib import Path

import pytest

from gateway.domain.calibration import (
    MOST_COMPLETION_TOKENS,
    PICTURES,
    Answer,
    Calibration,
    CalibrationState,
    expands_images,
    fitting,
    judge,
    next_picture,
    predicted,
    published,
)
from gateway.domain.geometry import Size
from gateway.domain.learning import ImageTokenCap
from gateway.domain.vision.registry import family_for
from gateway.emulator.vision import FAMILIES as EMULATED

CAPTURES = Path(__file__).parents[1] / "data" / "vllm_captures"
QWEN2_5, QWEN3 = family_for("qwen2_5_vl", None), family_for("qwen3_vl", None)


def real(family):
    """What the real vLLM 0.32 counted."""
    capture = json.loads((CAPTURES / f"image_tokens_{family}.json").read_text())
    text_tokens = capture["text_only"]["prompt_tokens"]
    counts = {Size(each["w"], each["h"]): each.get("tokenize_count") for each in capture["single"]}
    return [Answer(size, counts[size] - text_tokens) for size in PICTURES]


def by(family, *, written=0):
    """What a server counts that prices by `family`, and whose template writes more around a picture."""
    costs = ((size, predicted(family, size)) for size in PICTURES)
    return [Answer(size, None if cost is None else cost.most + written) for size, cost in costs]


def emulated(family):
    """By the emulator's own reading of the rule."""
    return [Answer(size, EMULATED[family].visual_tokens(size.width, size.height) + 2) for size in PICTURES]


def families_of(candidates):
    return list(dict.fromkeys(name.partition(" ")[0] for name in candidates))


class TestAKnownFamily:
    @pytest.mark.parametrize("family", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl"])
    def test_agrees_with_what_the_real_server_counted(self, family):
        result = judge(family_for(family, None), real(family), "tokenize")
        assert (result.state, result.way, result.family) == (CalibrationState.AGREES, "tokenize", None)
        assert (len(result.compared), result.disagreeing, result.written) == (len(PICTURES), (), 0)
        assert result.sentence(family) == f"{family} agrees with the server on all of 8 pictures"

    def test_that_is_another_than_the_servers_is_told_with_each_size(self):
        result = judge(QWEN3, real("qwen2_5_vl"))
        assert result.state is CalibrationState.DISAGREES
        assert len(result.disagreeing) == len(PICTURES)
        assert families_of(result.candidates) == ["qwen2_vl", "qwen2_5_vl", "dots_ocr", "mimo_vl"]
        text = result.sentence("qwen3_vl")
        assert text.startswith(
            "qwen3_vl DISAGREES with the server on 8 of 8 pictures (64x64: predicted 66, measured 6;"
        )
        assert "1080x1080: predicted 1158, measured 1523); the server's counts fit qwen2_vl (Qwen2-VL, QVQ)," in text

    def test_that_is_wrong_bounds_its_prices_by_those_that_fit(self):
        bounds = judge(QWEN3, real("qwen2_5_vl")).family
        assert bounds.name == "qwen3_vl"
        cost = bounds.tokens(Size(64, 64))
        assert (cost.prompt, cost.least_prompt) == (66, 6)

    def test_tells_a_maximum_that_is_not_the_servers(self):
        config = {"patch_size": 14, "merge_size": 2, "min_pixels": 3136, "max_pixels": 1003520}
        result = judge(family_for("qwen2_5_vl", config), emulated("qwen2_5_vl"))
        assert [str(each) for each in result.disagreeing] == ["1080x1080: predicted 1227, measured 1523"]

    def test_beside_a_server_with_a_smaller_maximum_of_pixels_is_right_but_for_that(self):
        answers = [Answer(size, min(tokens, 1026)) for size, tokens in emulated("qwen2_5_vl")]
        result = judge(QWEN2_5, answers)
        assert (result.state, result.most_tokens, result.family) == (CalibrationState.DISAGREES, 1091, None)
        assert result.sentence("qwen2_5_vl") == (
            "qwen2_5_vl DISAGREES with the server on 1 of 8 pictures (1080x1080: predicted 1523, measured 1026); "
            "as if the server had a smaller maximum of pixels, about 1091 tokens"
        )

    @pytest.mark.parametrize("tokens", [None, 300, 2000])
    def test_beside_one_whose_largest_picture_is_odd_otherwise_is_wrong(self, tokens):
        answers = [*emulated("qwen2_5_vl")[:-1], Answer(PICTURES[-1], tokens)]
        assert (judge(QWEN2_5, answers).most_tokens, judge(QWEN2_5, answers).family.name) == (None, "qwen2_5_vl")

    def test_tells_a_minimum_that_is_not_the_servers(self):
        config = {"patch_size": 14, "merge_size": 2, "min_pixels": 200_704, "max_pixels": 12_845_056}
        result = judge(family_for("qwen2_5_vl", config), emulated("qwen2_5_vl"))
        assert {str(each.size) for each in result.disagreeing} == {
            "64x64",
            "98x42",
            "128x96",
            "300x200",
            "150x300",
            "500x333",
        }

    def test_beside_a_server_that_fits_no_family_costs_as_many_times_more_as_any_picture(self):
        answers = [Answer(size, 2 * tokens) for size, tokens in by(QWEN2_5)]
        result = judge(QWEN2_5, answers)
        assert result.candidates == ()
        assert result.sentence("qwen2_5_vl").endswith("; no family fits the server's counts")
        large, strip = result.family.tokens(Size(1080, 1080)), result.family.tokens(Size(4000, 20))
        assert (large.prompt, large.least_prompt) == (2 * 1523 + 2 * 55 + 1, 1), "a row and a column more than measured"
        assert strip.prompt == max(2 * QWEN2_5.tokens(Size(4000, 20)).prompt, large.prompt)
        assert result.family.tokens(Size(3000, 2000)).prompt >= 2 * QWEN2_5.tokens(Size(3000, 2000)).prompt

    def test_beside_one_that_counts_less_it_costs_no_less(self):
        answers = [Answer(size, tokens // 2) for size, tokens in by(QWEN2_5)]
        assert judge(QWEN2_5, answers).family.tokens(Size(1080, 1080)).prompt == 1523

    def test_beside_one_that_refuses_all_of_them_too(self):
        result = judge(QWEN2_5, [Answer(size, None) for size in PICTURES])
        assert result.family.tokens(Size(64, 64)).least_prompt == 1
        assert "64x64: predicted 6, measured refused" in result.sentence("qwen2_5_vl")

    @pytest.mark.parametrize("written", [-2, 1, 8])
    def test_agrees_where_the_template_writes_as_many_more_around_each(self, written):
        result = judge(QWEN2_5, by(QWEN2_5, written=written))
        assert (result.state, result.written, result.disagreeing) == (CalibrationState.AGREES, written, ())
        assert result.sentence("qwen2_5_vl").endswith(f"{written:+d} tokens that the template writes around each")

    @pytest.mark.parametrize("written", [-3, 9])
    def test_does_not_where_no_template_would(self, written):
        assert judge(QWEN2_5, by(QWEN2_5, written=written)).state is CalibrationState.DISAGREES

    def test_of_one_count_for_all_pictures_is_not_excused_by_a_template(self):
        llava = family_for("llava_1_5", None)
        assert judge(llava, by(llava)).state is CalibrationState.AGREES
        assert judge(llava, by(llava, written=1)).state is CalibrationState.DISAGREES

    def test_whose_prices_are_bounds_agrees_within_them(self):
        ernie = family_for("ernie4_5_vl", None)
        assert judge(ernie, by(ernie)).state is CalibrationState.AGREES
        assert "64x64: predicted 6 to 18, measured 19" in judge(ernie, by(ernie, written=1)).sentence("ernie4_5_vl")

    def test_agrees_that_a_picture_is_refused(self):
        assert judge(Picky(), [Answer(PICTURES[0], 6), Answer(PICTURES[1], None)]).state is CalibrationState.AGREES
        assert judge(Picky(), [Answer(PICTURES[0], 6), Answer(PICTURES[1], 9)]).state is CalibrationState.DISAGREES


class TestTheMostIsNeverBelowTheTruth:
    """Nor the least above it, whatever the server is that was measured."""

    SIDES = (28, 100, 448, 677, 1120, 1516, 3000), (64, 240, 677, 896, 1400, 2395)
    SIZES = tuple(Size(*sides) for sides in product(*SIDES))

    def assert_bounds(self, result, named, truth, written=0):
        cap, family = ImageTokenCap(result.most_tokens, is_bound=True), result.family or named
        for size in (*PICTURES, *self.SIZES):
            cost, tokens = predicted(family, size), predicted(truth, size).most + written
            assert tokens <= cap.within(cost.most), size
            assert cap.least_within(cost.least) <= tokens, size

    @pytest.mark.parametrize("named", ["qwen2_5_vl", "internvl", "qwen3_vl", None])
    @pytest.mark.parametrize("limits", [(200_704, 12_845_056), (200_704, 602_112), (3136, 1_003_520), (3136, 602_112)])
    def test_of_a_server_with_other_limits_of_pixels(self, named, limits):
        truth = family_for("qwen2_5_vl", dict(zip(("min_pixels", "max_pixels"), limits, strict=True)))
        family = named and family_for(named, None)
        self.assert_bounds(judge(family, by(truth)), family, truth)

    @pytest.mark.parametrize("written", [-2, 4, 8])
    @pytest.mark.parametrize("named", ["qwen2_5_vl", "qwen3_vl", None])
    def test_of_one_whose_template_writes_more_or_less_around_each(self, named, written):
        family = named and family_for(named, None)
        self.assert_bounds(judge(family, by(QWEN2_5, written=written)), family, QWEN2_5, written)

    def test_a_larger_picture_that_costs_more_is_no_sign_of_a_maximum(self):
        raised = family_for("qwen2_5_vl", {"min_pixels": 200_704, "max_pixels": 12_845_056})
        assert judge(family_for("internvl", None), by(raised)).most_tokens is None

    def test_a_minimum_makes_large_pictures_no_dearer(self):
        raised = family_for("qwen2_5_vl", {"min_pixels": 200_704, "max_pixels": 12_845_056})
        cost = judge(QWEN2_5, by(raised)).family.tokens(Size(1080, 1080))
        assert cost.prompt == 1523 + 2 * 39 + 1


class Picky:
    """A family that takes nothing but squares."""

    name, min_side, max_image_tokens, markers = "picky", 1, 4, 2

    def tokens(self, size):
        return QWEN2_5.tokens(size if size.width == size.height else Size(40_000, 1))

    def shrink(self, _size, _max_tokens):
        return None


class TestAnUnknownFamily:
    @pytest.mark.parametrize(("family", "found"), [("qwen2_5_vl", "qwen2_vl"), ("qwen3_vl", "qwen3_vl")])
    def test_is_found_by_what_the_real_server_counted(self, family, found):
        result = judge(None, real(family))
        assert (result.state, result.family.name, len(result.compared)) == (CalibrationState.FOUND, found, 8)
        assert result.disagreeing == ()
        assert {number.key for number in result.numbers} >= {"patch_size", "merge_size"}
        assert result.sentence("").startswith("its family was found by 8 pictures: they cost as with")

    def test_whose_greatest_area_no_picture_reached_has_bounds_beyond(self):
        found = judge(None, real("qwen2_5_vl")).family
        assert found.tokens(Size(1920, 1080)).is_exact
        assert not found.tokens(Size(3550, 3550)).is_exact  # dots.ocr ends at 11 megapixels

    @pytest.mark.parametrize("hypothesis", published(), ids=str)
    def test_of_every_published_checkpoint_is_among_those_that_fit(self, hypothesis):
        answers = by(hypothesis.family)
        result = judge(None, answers)
        if not expands_images(answers):
            assert hypothesis.family.name == "mllama"
            return
        assert result.state in {CalibrationState.FOUND, CalibrationState.SEVERAL}
        for size in (Size(333, 640), Size(1500, 1000), Size(2000, 1500)):
            truth, bounds = hypothesis.family.tokens(size), result.family.tokens(size)
            assert bounds.prompt >= truth.prompt - _slack(hypothesis)
            assert bounds.least_prompt <= truth.prompt

    def test_that_was_never_published_gets_the_nearest_by_name(self):
        answers = by(QWEN3)
        answers[0] = Answer(answers[0].size, 7)
        result = judge(None, answers)
        assert (result.state, result.family.name) == (CalibrationState.UNKNOWN, "unknown")
        most = 1158 + 2 * 34 + 1
        assert result.family.tokens(Size(64, 64)).prompt == result.family.tokens(Size(1080, 1080)).prompt == most
        assert result.family.tokens(Size(2160, 1080)).prompt == 2 * most
        assert families_of(result.candidates) == ["qwen3_vl", "qwen3_vl_moe", "qwen3_5"]
        assert "; nearest: qwen3_vl (Qwen3-VL)" in result.sentence("")

    def test_that_is_like_none_gets_no_name(self):
        result = judge(None, [Answer(size, 5000 + place) for place, size in enumerate(PICTURES)])
        assert (result.state, result.candidates) == (CalibrationState.UNKNOWN, ())
        assert result.sentence("") == "no family fits what 8 pictures cost"

    def test_that_is_like_none_and_counts_the_same_for_all_has_that_as_its_bound(self):
        result = judge(None, [Answer(size, 700) for size in PICTURES])
        assert {result.family.tokens(size).prompt for size in (Size(1, 1), Size(9000, 9000))} == {700}

    def test_of_which_too_little_was_asked_is_one_of_several(self):
        answers = real("qwen2_5_vl")[1:3]
        result = judge(None, answers)
        assert result.state is CalibrationState.SEVERAL
        assert families_of(result.candidates) == ["qwen2_vl", "qwen2_5_vl", "dots_ocr", "mimo_vl", "glm4_1v", "glm4_6v"]
        assert result.family.name == "qwen2_vl or qwen2_5_vl or dots_ocr or mimo_vl or glm4_1v or glm4_6v"
        assert (result.family.tokens(Size(64, 64)).prompt, result.family.tokens(Size(64, 64)).least_prompt) == (11, 6)
        assert result.sentence("").startswith("its family is one of qwen2_vl (Qwen2-VL, QVQ), qwen2_5_vl")

    def test_is_found_though_the_template_writes_more_around_each(self):
        result = judge(None, by(family_for("kimi_vl", None), written=1))
        assert (result.state, result.family.name, result.written) == (CalibrationState.FOUND, "kimi_vl", 1)


def _slack(hypothesis):
    """Where bounds merely contain what another family gives exactly, that one is taken: MiniCPM-like markers."""
    cost = hypothesis.family.tokens(Size(1500, 1000))
    return cost.prompt - cost.least_prompt


def test_pictures_are_cheap():
    assert sum(size.pixels for size in PICTURES) < 2_000_000
    assert sum(answer.tokens for answer in by(QWEN2_5)[:-1]) < MOST_COMPLETION_TOKENS
    assert len(set(PICTURES)) == len(PICTURES)


def test_a_count_of_placeholders_is_none_of_pictures():
    assert not expands_images([Answer(size, 3) for size in PICTURES])
    assert not expands_images([Answer(PICTURES[0], None)])
    assert expands_images([Answer(PICTURES[0], 6), Answer(PICTURES[3], 79)])
    assert expands_images([Answer(size, 576) for size in PICTURES])


class TestWhatIsAskedNext:
    def asked(self, family, truth, left_tokens):
        """The pictures of one calibration, and what they cost."""
        answers, left = [], left_tokens
        while (size := next_picture(family, answers, left)) is not None:
            answers.append(Answer(size, predicted(truth, size).most))
            left = None if left is None else left - answers[-1].tokens
        return [answer.size for answer in answers], sum(answer.tokens for answer in answers)

    @pytest.mark.parametrize("family", [None, QWEN2_5, QWEN3])
    def test_all_of_them_where_they_cost_the_engine_nothing(self, family):
        assert self.asked(family, QWEN2_5, None)[0] == list(PICTURES)

    def test_all_but_the_largest_where_tokens_count(self):
        assert self.asked(QWEN2_5, QWEN2_5, MOST_COMPLETION_TOKENS) == (list(PICTURES[:-1]), 780)
        assert self.asked(None, QWEN2_5, MOST_COMPLETION_TOKENS) == (list(PICTURES[:-1]), 780)

    def test_one_alone_where_each_is_dear(self):
        dear = family_for("glm4v", None)
        assert self.asked(None, dear, MOST_COMPLETION_TOKENS) == ([PICTURES[0]], 1602)

    @pytest.mark.parametrize("hypothesis", published(), ids=str)
    def test_the_budget_holds_but_for_the_first(self, hypothesis):
        sizes, tokens = self.asked(None, hypothesis.family, MOST_COMPLETION_TOKENS)
        assert sizes[0] == PICTURES[0]
        assert tokens <= MOST_COMPLETION_TOKENS or sizes == [PICTURES[0]]

    @pytest.mark.parametrize("family", [None, QWEN2_5])
    def test_where_nothing_fits_as_many_as_cost_no_more_than_those_before_let_expect(self, family):
        first = Answer(PICTURES[0], 5)
        assert next_picture(family, [first], 11) == PICTURES[1]
        assert next_picture(family, [first], 10) is None
        assert next_picture(family, [first, Answer(PICTURES[1], 5)], 5) == PICTURES[2]

    def test_a_known_family_that_no_checkpoint_has_is_followed(self):
        own = family_for("qwen2_5_vl", {"patch_size": 20, "merge_size": 2, "min_pixels": 3200, "max_pixels": 12845056})
        first = Answer(PICTURES[0], predicted(own, PICTURES[0]).most)
        assert fitting([first, Answer(PICTURES[4], predicted(own, PICTURES[4]).most)]) == ()
        assert self.asked(own, own, MOST_COMPLETION_TOKENS)[0] == list(PICTURES[:-1])


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (Calibration(CalibrationState.WAITING), "not calibrated yet"),
        (Calibration(CalibrationState.WAITING, trouble="it is at work"), "it is at work"),
        (
            Calibration(CalibrationState.UNANSWERED, trouble="/tokenize answered 404"),
            "not calibrated: /tokenize answered 404",
        ),
    ],
)
def test_without_counts_it_says_why(result, text):
    assert result.sentence("qwen2_5_vl") == text
