import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.cost import EngineLimits, estimate, kv_blocks_needed, spare_served
from gateway.domain.geometry import Size
from gateway.domain.growth import OutputGrowth
from gateway.domain.image import ImagePlan
from gateway.domain.kv_layout import KvCharge
from gateway.domain.memory_view import encoder_memory, host_memory, kv_memory
from gateway.domain.quantities import Amounts, Bounds
from gateway.domain.request import VisionRequest
from gateway.domain.text_tokens import text_bounds
from gateway.domain.vision.base import BoundedTokens, ImageTokens
from tests.support.costs import FAMILY, cost_of, request_with


class TestText:
    def test_bounds_are_bytes_over_the_longest_token_and_bytes(self):
        assert text_bounds(1_280, 0, 4.0) == Bounds(10, 320, 1_280)

    def test_what_may_not_be_rendered_is_no_lower_bound(self):
        assert text_bounds(1_280, 0, 4.0, uncertain_bytes=1_000) == Bounds(2, 320, 1_280)
        assert text_bounds(1_280, 0, 4.0, uncertain_bytes=1_280).lower == 0

    def test_the_template_adds_to_what_is_expected_and_to_the_most(self):
        assert text_bounds(0, 2, 4.0) == Bounds(0, 8 + 2 * 5, 512 + 2 * 16)

    @given(
        text_bytes=st.integers(0, 10**8),
        messages=st.integers(0, 1_000),
        ratio=st.floats(0.0, 1e6, allow_nan=False),
    )
    def test_bounds_are_in_order_whatever_the_ratio(self, text_bytes, messages, ratio):
        lower, expected, upper = text_bounds(text_bytes, messages, ratio)
        assert 0 <= lower <= expected <= upper


WINDOWS = EngineLimits(kv_groups=7, kv_charges=(KvCharge(1, 16), KvCharge(6, 16, most_blocks=40, later_blocks=6)))
"""One group of full attention, and six that hold 40 blocks while a prompt is computed and 6 from then on."""


class TestKvBlocks:
    def test_a_single_answer_goes_on_in_the_last_block_of_its_prompt(self):
        assert kv_blocks_needed(33, 15, EngineLimits()) == 3
        assert kv_blocks_needed(33, 16, EngineLimits()) == 4

    def test_answers_share_the_prompt(self):
        assert kv_blocks_needed(33, 17, EngineLimits(), n=3) == 3 + 3 * 3

    def test_without_prefix_caching_each_answer_holds_the_whole(self):
        assert kv_blocks_needed(33, 17, EngineLimits(prefix_caching=False), n=3) == 3 * (3 + 3)

    def test_every_group_is_charged_in_full(self):
        assert kv_blocks_needed(33, 17, EngineLimits(kv_groups=7)) == 7 * 4
        assert kv_blocks_needed(33, 17, EngineLimits(kv_groups=7), n=2) == 7 * (3 + 2 * 3)

    def test_a_window_holds_no_more_than_it_can(self):
        assert kv_blocks_needed(33, 17, WINDOWS) == 4 + 6 * 4
        assert kv_blocks_needed(1_600, 17, WINDOWS) == 102 + 6 * 40
        assert kv_blocks_needed(1_600, 17, WINDOWS, is_later=True) == 102 + 6 * 6

    def test_each_answer_has_windows_of_its_own(self):
        assert kv_blocks_needed(1_600, 17, WINDOWS, n=3) == 109 + 6 * 109
        assert kv_blocks_needed(1_600, 17, WINDOWS, n=3, is_later=True) == 109 + 6 * 3 * 6

    def test_no_answer_no_block_for_it(self):
        assert kv_blocks_needed(32, 0, EngineLimits()) == 2

    @given(
        lengths=st.lists(st.integers(1, 500), min_size=1, max_size=20),
        output=st.integers(0, 300),
        block=st.sampled_from([1, 16, 128]),
    )
    def test_several_prompts_are_never_charged_too_little(self, lengths, output, block):
        charged = kv_blocks_needed(sum(lengths), output, EngineLimits(kv_block_tokens=block), prompts=len(lengths))
        assert charged >= sum(-(-(length + output) // block) for length in lengths)
        assert len(lengths) > 1 or charged == -(-(lengths[0] + output) // block)


class TestWindows:
    def test_what_lies_before_the_windows_is_held_only_while_the_prompt_is_computed(self):
        cost = cost_of(text=Bounds.exact(1_600), output_tokens=17, limits=WINDOWS)
        assert cost.amounts.kv_blocks == 102 + 6 * 40
        assert cost.prefill_kv_blocks == 6 * (40 - 6)

    def test_a_prompt_within_the_window_holds_all_of_it(self):
        assert cost_of(text=Bounds.exact(16), output_tokens=16, limits=WINDOWS).prefill_kv_blocks == 0
        assert cost_of(text=Bounds.exact(1_600), output_tokens=17).prefill_kv_blocks == 0

    def test_what_needs_no_engine_holds_nothing_before_windows(self):
        assert cost_of(text=Bounds.exact(1_600), limits=WINDOWS, needs_engine=False).prefill_kv_blocks == 0

    def test_a_full_window_does_not_grow_with_the_answer(self):
        assert cost_of(text=Bounds.exact(1_600), limits=WINDOWS).growth.groups == 1
        assert cost_of(text=Bounds.exact(16), output_tokens=16, limits=WINDOWS).growth.groups == 7

    @pytest.mark.parametrize(
        ("prompt_tokens", "growing", "unfolding"),
        [(16, 7, 7), (64, 7, 7), (80, 1, 7), (81, 1, 1), (1_600, 1, 1)],
    )
    def test_what_is_kept_for_an_answer_is_taken_bit_by_bit_but_in_full_windows(
        self, prompt_tokens, growing, unfolding
    ):
        growth = cost_of(text=Bounds.exact(prompt_tokens), output_tokens=16, limits=WINDOWS).growth
        assert (growth.groups, growth.unfolding_groups) == (growing, unfolding)

    def test_a_group_with_longer_blocks_is_taken_to_hold_them_from_the_start(self):
        longer = WINDOWS._replace(kv_charges=(KvCharge(1, 16), KvCharge(2, 32)))
        growth = cost_of(text=Bounds.exact(100), limits=longer).growth
        assert (growth.groups, growth.unfolding_groups) == (3, 1)

    def test_the_pool_holds_tokens_beside_the_windows(self):
        assert WINDOWS._replace(kv_blocks=6 * 40 + 100).kv_pool_tokens == 1_600
        assert WINDOWS._replace(kv_blocks=70).kv_pool_tokens == 160


class TestEstimate:
    def test_text_images_and_their_markers(self):
        cost = cost_of(Size(400, 300), Size(100, 100), text=Bounds(1, 7, 50))
        assert cost.visual_tokens == (12 + 2) + (1 + 2)
        assert cost.prompt_tokens == Bounds(18, 24, 67)
        assert cost.amounts == Amounts(
            kv_blocks=3, sequences=1, encoder_tokens=13, preprocess_pixels=400 * 300 + 100 * 100
        )
        assert cost.largest_image_encoder_tokens == 12
        assert cost.body_bytes == 1_000
        assert cost.prompt_param == "messages"

    def test_what_size_alone_does_not_decide_is_reserved_and_no_lower_bound(self):
        request, plans, _ = request_with(Size(400, 300), Size(100, 100))
        tokens = [
            BoundedTokens(1_800, 0, 1_800, Size(400, 300), uncertain=1_400, uncertain_encoder=1_400),
            ImageTokens(421, 0, 421, Size(100, 100)),
        ]
        cost = estimate(request, plans, tokens, text=Bounds(1, 7, 50), output_tokens=16, limits=EngineLimits())
        assert (cost.visual_tokens, cost.uncertain_visual_tokens) == (1_800 + 421, 1_400)
        assert cost.prompt_tokens == Bounds(1 + 400 + 421, 7 + 2_221, 50 + 2_221)
        assert cost.amounts.encoder_tokens == 2_221
        assert cost.largest_image_encoder_tokens == 421

    def test_pixels_are_those_that_will_be_sent(self):
        request, plans, _ = request_with(Size(4_000, 3_000))
        target = Size(400, 300)
        shrunk = ImagePlan(0, plans[0].info, target, 12, 1_200, "policy")
        tokens = [FAMILY.tokens(target)]
        cost = estimate(request, [shrunk], tokens, text=Bounds.exact(0), output_tokens=1, limits=EngineLimits())
        assert cost.amounts.preprocess_pixels == 120_000
        assert cost.images[0].size == target

    def test_images_lately_served_cost_their_place_in_the_prompt_only(self):
        fresh = cost_of(Size(400, 300), Size(100, 100))
        again = spare_served(fresh, [True, False])
        assert again.prompt_tokens == fresh.prompt_tokens
        assert again.amounts.encoder_tokens == 1
        assert again.amounts.preprocess_pixels == 10_000
        assert again.largest_image_encoder_tokens == 12

    def test_each_prompt_times_n_is_a_sequence(self):
        request = VisionRequest("m", prompts=3, n=2, prompt_token_ids=30)
        cost = estimate(request, (), (), text=Bounds.exact(0), output_tokens=16, limits=EngineLimits())
        assert cost.amounts.sequences == cost.answers == 6
        assert cost.amounts.kv_blocks == (30 + 3 * 15) // 16 + 6 * 2
        assert cost.prompt_tokens == Bounds.exact(30)
        assert cost.growth.reserved_tokens == 6 * 16
        assert cost.prompt_param is None

    def test_padded_prompts_are_as_long_as_the_context(self):
        request = VisionRequest("m", prompts=2, pads_prompts=True, wants_output=False)
        limits = EngineLimits(max_model_len=100)
        cost = estimate(request, (), (), text=Bounds(2, 4, 9), output_tokens=0, limits=limits)
        assert cost.prompt_tokens == Bounds.exact(200)
        unknown = estimate(request, (), (), text=Bounds(2, 4, 9), output_tokens=0, limits=EngineLimits())
        assert unknown.prompt_tokens == Bounds(2, 4, 9)

    def test_pictures_that_are_only_counted_keep_the_thread_that_reads_them(self):
        cost = cost_of(Size(300, 200), output_tokens=0, needs_engine=False)
        assert cost.amounts == Amounts(preprocess_pixels=60_000)

    def test_what_needs_no_engine_holds_nothing_of_it(self):
        cost = cost_of(text=Bounds.exact(10**6), output_tokens=0, needs_engine=False)
        assert cost.amounts == Amounts()
        assert cost.prompt_tokens == Bounds.exact(10**6)


class TestTruncation:
    """`truncate_prompt_tokens`: vLLM cuts the prompt itself, so its length is no reason to refuse it."""

    TEXT = Bounds(3_000, 90_000, 400_000)

    @pytest.mark.parametrize(
        ("fields", "tokens"),
        [
            ({"truncate_prompt_tokens": 1_000}, Bounds.exact(1_000)),
            ({"truncate_prompt_tokens": 100_000}, Bounds(3_000, 90_000, 100_000)),
            ({"truncate_prompt_tokens": 0}, Bounds.exact(0)),
            ({"truncate_prompt_tokens": -1}, Bounds.exact(2_047)),
            ({"truncate_prompt_tokens": -1, "wants_output": False}, Bounds.exact(2_048)),
            ({"truncate_prompt_tokens": 1_000, "prompts": 4}, Bounds(3_000, 4_000, 4_000)),
            ({}, TEXT),
        ],
    )
    def test_bounds_are_those_of_what_is_left(self, fields, tokens):
        cost = cost_of(text=self.TEXT, limits=EngineLimits(max_model_len=2_048), **fields)
        assert cost.prompt_tokens == tokens
        assert cost.amounts.kv_blocks >= tokens.expected // 16

    def test_to_an_unknown_context_nothing_is_known_to_be_cut(self):
        assert cost_of(text=self.TEXT, truncate_prompt_tokens=-1).prompt_tokens == self.TEXT

    def test_images_are_never_cut(self):
        cost = cost_of(Size(500, 500), text=self.TEXT, truncate_prompt_tokens=10)
        assert cost.prompt_tokens == Bounds.exact(25 + 2)


class TestGrowth:
    def test_within_the_reservation_nothing_grows(self):
        assert OutputGrowth(reserved_tokens=512).blocks(512) == 0

    @pytest.mark.parametrize(("generated", "blocks"), [(513, 4), (576, 4), (577, 8)])
    def test_beyond_it_in_steps_of_64_tokens(self, generated, blocks):
        assert OutputGrowth(reserved_tokens=512).blocks(generated) == blocks

    def test_large_blocks_and_groups(self):
        assert OutputGrowth(0, block_tokens=128, groups=3).blocks(65) == 3
        assert OutputGrowth(0, block_tokens=128, groups=3).blocks(129) == 6


class TestPool:
    def test_a_twentieth_stays_free_for_growth(self):
        assert EngineLimits(kv_blocks=1_000).admission_kv_blocks == 950

    def test_unknown_stays_unknown(self):
        assert EngineLimits().admission_kv_blocks is None
        assert EngineLimits().kv_pool_tokens is None


class TestMemory:
    LIMITS = EngineLimits(kv_blocks=100, encoder_budget_tokens=24)

    def test_kv(self):
        cost = cost_of(text=Bounds.exact(160), limits=self.LIMITS)
        memory = kv_memory(cost, self.LIMITS, kv_bytes_per_token=57_344)
        assert memory.bytes == 11 * 16 * 57_344
        assert memory.mebibytes == pytest.approx(9.625)
        assert memory.share == 0.11

    def test_encoder_counts_images_lately_served_too(self):
        cost = spare_served(cost_of(Size(400, 300), limits=self.LIMITS), [True])
        assert encoder_memory(cost, self.LIMITS, embedding_bytes=7_168) == (12 * 7_168, 0.5)

    def test_shares_of_the_unknown_are_unknown(self):
        cost = cost_of(Size(400, 300))
        assert kv_memory(cost, EngineLimits(), 57_344).share is None
        assert encoder_memory(cost, EngineLimits(), 7_168).share is None

    def test_host(self):
        assert host_memory(cost_of(), decode_bytes=3_000, limit_bytes=8_000) == (4_000, 0.5)
