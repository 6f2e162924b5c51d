from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.errors import Code, GatewayError
from gateway.domain.geometry import Size
from gateway.domain.image import ImageFormat, ImageInfo, Why
from gateway.domain.request import ImageRef, Span
from gateway.domain.resize import Cap, Fit, Preset, ResizePolicy, plan_images, shrink_to_context
from gateway.domain.trim import ContextRoom
from gateway.domain.vision.base import ImageTokens
from gateway.domain.vision.measured import Measured
from gateway.domain.vision.one_of import OneOf
from gateway.domain.vision.qwen_vl import QwenVL

QWEN2 = QwenVL("qwen2_5_vl", unit=28, min_pixels=3136, max_pixels=12845056)
QWEN3 = QwenVL("qwen3_vl", unit=32, min_pixels=65536, max_pixels=16777216)


def image(width, height, why=frozenset()):
    size = Size(width, height)
    return ImageInfo(ImageFormat.JPEG, size, size, 1, 1, file_bytes=1000, is_lossy=True, why=why)


def ref(ordinal, detail=None):
    return ImageRef(
        ordinal,
        ("messages", 0, "content", ordinal),
        f"messages[0].content[{ordinal}].image_url.url",
        Span(0, 0),
        detail,
    )


def plan(*sizes, family=QWEN2, detail=None, asked=None, **policy):
    refs = [ref(ordinal, detail) for ordinal in range(len(sizes))]
    infos = [image(*size) for size in sizes]
    return plan_images(infos, refs, ResizePolicy(**policy).for_request(asked), family)


def targets(*sizes, **how):
    return [(str(p.target), p.resize_reason) for p in plan(*sizes, **how)]


def test_an_image_under_every_cap_is_left_alone_off_the_grid_or_not():
    [off_grid] = plan((1005, 1005))
    assert (off_grid.target, off_grid.is_resized, off_grid.resize_reason) == (Size(1005, 1005), False, None)
    assert (off_grid.tokens, off_grid.tokens_before, off_grid.info) == (1296, 1296, image(1005, 1005))
    assert targets((56, 56)) == [("56x56", None)]


def test_the_models_own_maximum_is_applied_here_so_the_model_sees_nothing_smaller():
    [big] = plan((8000, 6000))
    assert (str(big.target), big.resize_reason, big.tokens) == ("4116x3080", Cap.MODEL_MAXIMUM, 16170)
    assert big.tokens == big.tokens_before
    assert big.info.why == {Why.RESIZE}
    assert targets((4000, 3000)) == [("4000x3000", None)]  # off the grid, under the maximum


def test_a_models_size_that_it_would_change_again_is_not_sent():
    strip = QwenVL("strip", unit=28, min_pixels=784, max_pixels=4 * 784)
    assert strip.tokens(Size(17943, 90)).model_size == Size(784, 28)  # 28 tokens: above its own maximum of 4
    assert targets((17943, 90), family=strip) == [("17943x90", None)]


@pytest.mark.parametrize(
    ("size", "target"),
    [((332, 27), "336x28"), ((1, 1), "56x56"), ((199, 1), "812x28"), ((1900, 10), "784x28"), ((27, 332), "28x336")],
)
def test_a_side_below_the_models_unit_is_brought_to_the_models_own_size(size, target):
    [small] = plan(size)
    assert (str(small.target), small.resize_reason, small.info.why) == (target, None, {Why.TOO_SMALL})
    assert small.tokens == small.tokens_before


@pytest.mark.parametrize("size", [(29, 5615), (300, 60_000), (40, 7_990)])
def test_where_rounding_makes_the_models_size_too_long_for_the_model_the_image_is_left_alone(size):
    """It takes the picture as it is; only one of its own size it would refuse."""
    assert targets(size, min_side=50) == [(str(Size(*size)), None)]
    assert targets(size) == [(str(Size(*size)), None)]


def test_a_cap_refuses_for_good_only_what_is_sure_to_cost_more():
    doubted = OneOf("qwen2_5_vl", (QWEN2, Measured("unknown", 1600, 1_166_400)), ())
    [plain] = plan((640, 480), family=doubted, max_tokens_per_image=1000)
    assert (plain.tokens, plain.is_resized) == (1600, False)


def test_a_small_side_and_a_cap_act_together():
    [strip] = plan((3000, 20), max_tokens_per_image=50)
    assert strip.resize_reason is Cap.MAX_TOKENS_PER_IMAGE
    assert (str(strip.target), strip.tokens) == ("1400x28", 50)
    assert strip.info.why == {Why.TOO_SMALL, Why.RESIZE}


def test_other_reasons_stay_beside_the_new_one():
    [both] = plan_images([image(8000, 6000, frozenset({Why.ALPHA}))], [ref(0)], ResizePolicy(), QWEN2)
    assert both.info.why == {Why.ALPHA, Why.RESIZE}


def test_a_cap_per_image():
    [capped] = plan((1920, 1080), max_tokens_per_image=1000)
    assert (str(capped.target), capped.tokens, capped.tokens_before) == ("1176x644", 966, 2691)
    assert capped.resize_reason is Cap.MAX_TOKENS_PER_IMAGE
    assert targets((1920, 1080), max_tokens_per_image=2691) == [("1920x1080", None)]


@pytest.mark.parametrize(
    ("images", "share"), [(1, 4000), (2, 2000), (3, 1000), (4, 1000), (5, 500), (8, 500), (9, 250)]
)
def test_the_request_cap_is_shared_by_the_next_power_of_two(images, share):
    plans = plan(*[(1920, 1080)] * images, max_tokens_per_request=4000)
    alone = QWEN2.shrink(Size(1920, 1080), share)
    assert {(p.ordinal, p.target) for p in plans} == {(ordinal, alone) for ordinal in range(images)}
    assert sum(p.tokens for p in plans) <= 4000


@pytest.mark.parametrize(
    ("preset", "target", "tokens"),
    [(Preset.THUMBNAIL, "672x364", 312), (Preset.OCR, "1680x952", 2040), (Preset.DETAIL, "2128x1176", 3192)],
)
def test_presets_are_maximum_areas(preset, target, tokens):
    [resized] = plan((3840, 2160), preset=preset)
    assert (str(resized.target), resized.tokens, resized.resize_reason) == (target, tokens, Cap.PRESET)
    assert resized.target.pixels <= preset.area_pixels
    side = {Preset.THUMBNAIL: 512, Preset.OCR: 1280, Preset.DETAIL: 1600}[preset]
    assert targets((side, side), preset=preset) == [(f"{side}x{side}", None)]


def pressed(*sizes, preset=Preset.OCR, asked=None, ordinals=(0,), detail=None, **policy):
    """As `targets`, with `ordinals` brought under a preset by pressure."""
    infos, refs = [image(*size) for size in sizes], [ref(ordinal, detail) for ordinal in range(len(sizes))]
    how = ResizePolicy(**policy).for_request(asked)
    plans = plan_images(infos, refs, how, QWEN2, dict.fromkeys(ordinals, preset))
    return [(str(p.target), p.resize_reason) for p in plans]


def test_pressure_brings_the_images_that_it_names_under_its_preset():
    assert pressed((3840, 2160), (3840, 2160), ordinals=[1]) == [("3840x2160", None), ("1680x952", Cap.PRESSURE)]
    assert pressed((1280, 1280)) == [("1280x1280", None)]


def test_pressure_never_makes_larger_what_a_stricter_rule_makes_small():
    small = [("672x364", Cap.PRESET)]
    assert pressed((3840, 2160), preset=Preset.OCR, asked="thumbnail") == small
    assert pressed((3840, 2160), preset=Preset.OCR, detail="low", honour_detail=True) == small
    assert pressed((3840, 2160), preset=Preset.THUMBNAIL, asked="ocr") == [("672x364", Cap.PRESSURE)]
    assert pressed((3840, 2160), max_tokens_per_image=100)[0][1] is Cap.MAX_TOKENS_PER_IMAGE


def test_pressure_leaves_images_of_a_request_alone_that_wants_them_as_they_are():
    assert pressed((3840, 2160), asked="off") == [("3840x2160", None)]


def test_a_preset_that_the_model_cannot_meet_leaves_the_image_alone():
    greedy = QwenVL("greedy", unit=28, min_pixels=1003520, max_pixels=12845056)
    assert targets((1000, 800), family=greedy, preset=Preset.THUMBNAIL) == [("1000x800", None)]


def test_a_request_may_ask_for_less_but_not_for_more():
    assert targets((3840, 2160), asked="thumbnail") == [("672x364", Cap.PRESET)]
    assert targets((3840, 2160), preset=Preset.OCR, asked="thumbnail") == [("672x364", Cap.PRESET)]
    assert targets((3840, 2160), preset=Preset.OCR, asked="detail") == [("1680x952", Cap.PRESET)]
    assert targets((3840, 2160), preset=Preset.OCR, asked=None) == [("1680x952", Cap.PRESET)]


def test_opting_out_goes_at_full_cost():
    assert targets((3840, 2160), preset=Preset.OCR, asked="off") == [("3840x2160", None)]
    assert targets((8000, 6000), encoder_budget=2048, asked="off") == [("8000x6000", None)]
    assert targets((1, 1), asked="off") == [("56x56", None)]  # what the model does anyway


def test_opting_out_of_a_limit_is_refused():
    with pytest.raises(GatewayError, match=r"costs 2691 tokens, max_tokens_per_image allows 1000.*'off'") as refused:
        plan((1920, 1080), max_tokens_per_image=1000, asked="off")
    assert refused.value.code is Code.IMAGE_TOO_LARGE


def test_another_word_in_the_header_is_refused_with_those_that_work():
    with pytest.raises(GatewayError, match="can be off, thumbnail, ocr, detail, and nothing else") as refused:
        ResizePolicy().for_request("huge")
    assert (refused.value.code, refused.value.param) == (Code.INVALID_REQUEST, "x-gateway-resize")


@pytest.mark.parametrize(
    ("honour_detail", "detail", "expected"),
    [
        (True, "low", ("672x364", Cap.PRESET)),
        (True, "high", ("3840x2160", None)),
        (True, None, ("3840x2160", None)),
        (False, "low", ("3840x2160", None)),
    ],
)
def test_detail_is_ignored_unless_honoured(honour_detail, detail, expected):
    assert targets((3840, 2160), honour_detail=honour_detail, detail=detail) == [expected]


def test_an_image_above_the_encoder_budget_is_brought_under_it():
    [shrunk] = plan((4000, 3000), encoder_budget=2048)
    assert (str(shrunk.target), shrunk.tokens, shrunk.resize_reason) == ("1456x1092", 2028, Cap.ENCODER_BUDGET)
    assert targets((1200, 900), encoder_budget=2048) == [("1200x900", None)]


def test_where_policy_refuses_to_fit_the_image_is_left_for_the_refusal():
    assert targets((4000, 3000), encoder_budget=2048, fit=Fit.REFUSE) == [("4000x3000", None)]


def test_the_lowest_cap_acts():
    caps = {"preset": Preset.OCR, "encoder_budget": 1500, "max_tokens_per_image": 1600, "max_tokens_per_request": 1700}
    assert targets((4000, 3000), **caps) == [("1232x924", Cap.ENCODER_BUDGET)]


def test_a_limit_below_what_the_model_spends_is_refused():
    with pytest.raises(GatewayError, match="costs 2040 tokens, max_tokens_per_image allows 64") as refused:
        plan((1920, 1080), family=QWEN3, max_tokens_per_image=64)
    assert (refused.value.code, refused.value.param) == (Code.IMAGE_TOO_LARGE, "messages[0].content[0].image_url.url")


def test_too_many_images_for_the_request_limit_are_refused():
    with pytest.raises(GatewayError, match=r"its share of max_tokens_per_request \(1000\) is 62") as refused:
        plan(*[(1920, 1080)] * 9, family=QWEN3, max_tokens_per_request=1000)
    assert refused.value.code is Code.TOO_MANY_IMAGES


def test_a_limit_is_never_met_by_more_pixels():
    assert QWEN3.tokens(Size(32, 33)).placeholder == 72
    assert QWEN3.shrink(Size(32, 33), 66) == Size(256, 256)
    with pytest.raises(GatewayError, match="costs 72 tokens"):
        plan((32, 33), family=QWEN3, max_tokens_per_image=66)


@pytest.mark.parametrize("size", [(6400, 30), (30, 6400)])
def test_a_shape_that_the_processor_refuses_is_refused_with_its_path(size):
    with pytest.raises(GatewayError, match=r"ratio is 213\.3333, the model takes at most 200") as refused:
        plan((100, 100), size)
    assert refused.value.code is Code.INVALID_IMAGE_DIMENSIONS
    assert refused.value.param == "messages[0].content[1].image_url.url"


def in_context(plans, limit, *, text=50, family=QWEN2, **policy):
    room = ContextRoom(limit, text_tokens=text)
    return [(str(p.target), p.resize_reason) for p in shrink_to_context(plans, room, ResizePolicy(**policy), family)]


def test_an_image_that_alone_exceeds_the_context_is_brought_under_it():
    plans = plan((4000, 3000))
    assert in_context(plans, 4096) == [("1456x1092", Cap.CONTEXT)]  # 2,048: half the context


def test_the_target_stays_while_the_text_grows_until_it_no_longer_fits():
    plans = plan((4000, 3000))
    sizes = [in_context(plans, 4096, text=text)[0][0] for text in (0, 300, 600, 900, 1100, 1500, 1900)]
    assert sizes == ["1456x1092"] * 4 + ["1008x756"] * 3


def test_images_that_could_be_served_alone_keep_their_size():
    plans = plan((4000, 3000), (560, 560))
    assert in_context(plans, 4096) == [("1456x1092", Cap.CONTEXT), ("560x560", None)]
    two = plan((1920, 1080), (1920, 1080))
    assert in_context(two, 4096) == [("1920x1080", None)] * 2


def test_an_image_made_smaller_before_is_made_smaller_still_and_says_why():
    [before] = plan((4000, 3000), max_tokens_per_image=3500)
    assert in_context([before], 4096) == [("1456x1092", Cap.CONTEXT)]


def test_a_context_that_no_size_fits_is_left_for_the_refusal():
    plans = plan((4000, 3000))
    assert in_context(plans, 1075) == [("4000x3000", None)]
    assert in_context(plans, 1000) == [("4000x3000", None)]
    assert in_context([], 1000) == []


@pytest.mark.parametrize("policy", [{"fit": Fit.REFUSE}, {"is_opted_out": True}])
def test_policy_can_forbid_fitting_the_context(policy):
    assert in_context(plan((4000, 3000)), 4096, **policy) == [("4000x3000", None)]


class RowBreaks:
    """A family whose encoder makes fewer embeddings than the prompt has tokens: one break per row of the picture."""

    name, min_side, max_image_tokens = "row_breaks", 1, 10**9

    def tokens(self, size):
        encoder = size.width * size.height
        return ImageTokens(encoder + size.height, 0, encoder, size)

    def shrink(self, size, max_tokens):
        return size if self.tokens(size).placeholder <= max_tokens else Size(1, max_tokens // 2)


def test_the_encoder_budget_counts_embeddings_not_prompt_tokens():
    assert targets((10, 10), family=RowBreaks(), encoder_budget=100) == [("10x10", None)]
    assert targets((10, 10), family=RowBreaks(), encoder_budget=99) == [("1x49", Cap.ENCODER_BUDGET)]


sides = st.integers(1, 9_000)
sizes = st.tuples(sides, sides).filter(lambda size: Size(*size).aspect_ratio <= 200)
families = st.sampled_from([QWEN2, QWEN3])
policies = st.builds(
    ResizePolicy,
    max_tokens_per_image=st.none() | st.integers(200, 4000),
    max_tokens_per_request=st.none() | st.integers(4000, 30_000),
    preset=st.none() | st.sampled_from(Preset),
    encoder_budget=st.none() | st.integers(300, 9_000),
)


def planned(size, count, policy, family):
    """The plan of the first of `count` equal images, or None where it is refused."""
    try:
        return plan_images([image(*size)] * count, [ref(i) for i in range(count)], policy, family)[0]
    except GatewayError:
        return None


@given(sizes, st.integers(1, 9), policies, families)
def test_a_plan_keeps_every_cap_and_never_adds_pixels(size, count, policy, family):
    made = planned(size, count, policy, family)
    if made is None:
        return  # declared impossible
    assert made.tokens <= (policy.max_tokens_per_image or made.tokens)
    assert made.tokens * count <= (policy.max_tokens_per_request or made.tokens * count)
    assert made.tokens <= (policy.encoder_budget or made.tokens)
    assert made.tokens == family.tokens(made.target).placeholder
    assert made.tokens <= made.tokens_before
    if min(size) >= family.min_side:
        assert made.target.pixels <= Size(*size).pixels
    if made.is_resized:
        assert family.tokens(made.target).model_size == made.target
    assert (made.resize_reason is not None) == (Why.RESIZE in made.info.why)


@given(sizes, st.integers(1, 9), policies, families)
def test_planning_the_target_again_keeps_it(size, count, policy, family):
    made = planned(size, count, policy, family)
    if made is not None:
        again = planned((made.target.width, made.target.height), count, policy, family)
        assert (again.target, again.resize_reason) == (made.target, None)


@given(sizes, st.lists(sizes, max_size=6), policies, families)
def test_the_neighbours_of_an_image_change_nothing(size, others, policy, family):
    alike = planned(size, len(others) + 1, policy, family)
    infos = [image(*other) for other in [*others, size]]
    try:
        mixed = plan_images(infos, [ref(i) for i in range(len(infos))], policy, family)[-1]
    except GatewayError:
        return  # one of them is refused
    assert replace(mixed, ordinal=0) == alike


@given(sizes, policies, families)
def test_the_same_image_has_the_same_target_from_one_power_of_two_to_the_next(size, policy, family):
    first, *later = (planned(size, count, policy, family) for count in range(5, 9))
    assert later == [first] * 3
