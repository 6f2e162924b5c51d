"""What is refused for good, and what the sentence says."""

import pytest

from gateway.domain.cost import EngineLimits, estimate
from gateway.domain.errors import Code, GatewayError
from gateway.domain.geometry import Size
from gateway.domain.kv_layout import KvCharge
from gateway.domain.never_fits import find_misfit
from gateway.domain.outcome import Reason
from gateway.domain.quantities import Bounds
from gateway.domain.request import VisionRequest
from tests.support.costs import FAMILY, cost_of


def refusal(cost, limits, family=None) -> GatewayError:
    misfit = find_misfit(cost, limits, family)
    assert misfit is not None
    return misfit.error


def assert_fits(cost, limits, family=None):
    assert find_misfit(cost, limits, family) is None


class TestNeverFits:
    def test_a_prompt_that_leaves_room_for_one_token_fits(self):
        limits = EngineLimits(max_model_len=100, kv_blocks=7)
        assert_fits(cost_of(text=Bounds.exact(99), output_tokens=512), limits)

    def test_context_without_images(self):
        error = refusal(cost_of(text=Bounds.exact(100)), EngineLimits(max_model_len=100))
        assert (error.code, error.reason, error.status) == (
            Code.CONTEXT_LENGTH_EXCEEDED,
            Reason.NEVER_FITS_CONTEXT,
            400,
        )
        assert error.param == "messages"
        assert error.message == (
            "This model's maximum context length is 100 tokens. Your request needs at least 101 tokens, room for an "
            "answer included. Shorten the text by at least 1 tokens."
        )

    def test_a_prompt_without_answer_may_fill_the_context(self):
        assert_fits(cost_of(text=Bounds.exact(100), output_tokens=0), EngineLimits(max_model_len=100))

    def test_context_with_images_says_which_to_leave_out_and_what_size_would_fit(self):
        cost = cost_of(Size(500, 500), Size(500, 500), Size(900, 900), text=Bounds.exact(10))
        error = refusal(cost, EngineLimits(max_model_len=100), FAMILY)
        assert error.message == (
            "This model's maximum context length is 100 tokens. Your request needs at least 148 tokens (137 of them "
            "for 3 image(s)), room for an answer included. Leave out at least the 2 oldest of its 3 image(s) (up to "
            "messages[1].content[0].image_url.url), or send none larger than 500x500 pixels."
        )

    def test_following_the_advice_on_sizes_helps(self):
        cost = cost_of(Size(500, 500), Size(500, 500), Size(500, 500), text=Bounds.exact(10))
        assert_fits(cost, EngineLimits(max_model_len=100), FAMILY)

    def test_no_size_is_named_where_none_would_do_or_no_family_is_known(self):
        cost = cost_of(*[Size(300, 300)] * 20)
        assert "larger" not in refusal(cost, EngineLimits(max_model_len=70)).message
        assert "larger than 100x100" in refusal(cost, EngineLimits(max_model_len=70), FAMILY).message
        assert "Leave out at least the 19 oldest of its 20" in refusal(cost, EngineLimits(max_model_len=22)).message
        assert "larger" not in refusal(cost, EngineLimits(max_model_len=22), FAMILY).message

    def test_text_that_is_too_long_without_any_image(self):
        error = refusal(cost_of(Size(100, 100), text=Bounds.exact(150)), EngineLimits(max_model_len=100))
        assert "Shorten the text by at least 51 tokens and leave out all images" in error.message

    def test_only_the_lower_bound_decides(self):
        cost = cost_of(text=Bounds(99, 5_000, 90_000))
        assert_fits(cost, EngineLimits(max_model_len=100, kv_blocks=7))

    def test_one_image_over_the_encoder_budget(self):
        limits = EngineLimits(encoder_budget_tokens=50)
        error = refusal(cost_of(Size(100, 100), Size(800, 800)), limits, FAMILY)
        assert (error.code, error.reason) == (Code.REQUEST_EXCEEDS_BUDGET, Reason.NEVER_FITS_ENCODER)
        assert error.param == "messages[1].content[0].image_url.url"
        assert error.message == (
            "The image of 800x800 pixels costs 64 encoder tokens, and the engine can encode at most 50 at once. "
            "Send a smaller image, at most 700x700 pixels."
        )
        assert refusal(cost_of(Size(800, 800)), limits).message.endswith("Send a smaller image.")

    def test_an_image_that_may_cost_less_is_let_through(self):
        cost = cost_of(Size(800, 800))
        [image] = cost.images
        assert_fits(
            cost._replace(images=(image._replace(least_encoder_tokens=50),)), EngineLimits(encoder_budget_tokens=50)
        )

    def test_many_images_within_the_encoder_budget_each(self):
        assert_fits(cost_of(*[Size(700, 700)] * 30), EngineLimits(encoder_budget_tokens=50))

    def test_more_than_the_pool(self):
        limits = EngineLimits(max_model_len=1_000, kv_blocks=10)
        assert_fits(cost_of(text=Bounds.exact(159)), limits)
        error = refusal(cost_of(text=Bounds.exact(160)), limits)
        assert (error.code, error.reason) == (Code.REQUEST_EXCEEDS_BUDGET, Reason.NEVER_FITS_KV)
        assert error.message.startswith(
            "The request needs at least 11 KV blocks and the engine has 10 in all, which hold 160 tokens."
        )

    def test_groups_of_unknown_layout_are_no_reason_to_refuse(self):
        limits = EngineLimits(kv_blocks=10, kv_groups=7)
        assert cost_of(text=Bounds.exact(159), limits=limits).amounts.kv_blocks > 10
        assert_fits(cost_of(text=Bounds.exact(159), limits=limits), limits)

    def test_groups_that_are_known_are_all_counted(self):
        charges = (KvCharge(1, 16), KvCharge(6, 16, most_blocks=10, later_blocks=6))
        limits = EngineLimits(kv_blocks=100, kv_groups=7, kv_charges=charges)
        assert_fits(cost_of(text=Bounds.exact(639), limits=limits), limits)
        error = refusal(cost_of(text=Bounds.exact(640), limits=limits), limits)
        assert error.message.startswith(
            "The request needs at least 101 KV blocks and the engine has 100 in all, which hold 640 tokens."
        )

    def test_several_prompts_are_judged_by_their_mean(self):
        request = VisionRequest("m", prompts=4, prompt_token_ids=404)
        cost = estimate(request, (), (), text=Bounds.exact(0), output_tokens=8, limits=EngineLimits())
        assert_fits(cost, EngineLimits(max_model_len=102))
        error = refusal(cost, EngineLimits(max_model_len=101))
        assert "at least 102 tokens in the longest of its 4 prompts" in error.message

    def test_unknown_limits_refuse_nothing(self):
        assert_fits(cost_of(*[Size(9_000, 9_000)] * 50, text=Bounds.exact(10**9)), EngineLimits())

    def test_what_needs_no_engine_is_never_too_large_for_it(self):
        limits = EngineLimits(max_model_len=100, kv_blocks=1)
        assert_fits(cost_of(text=Bounds.exact(10**6), needs_engine=False), limits)

    def test_of_several_engines_the_smallest_decides(self):
        limits = EngineLimits(kv_blocks=30, kv_blocks_of_one=10)
        assert_fits(cost_of(text=Bounds.exact(159)), limits)
        error = refusal(cost_of(text=Bounds.exact(160)), limits)
        assert error.reason is Reason.NEVER_FITS_KV
        assert "the engine has 10 in all, which hold 160 tokens" in error.message
        assert limits.admission_kv_blocks == 29

    @pytest.mark.parametrize("truncate", [1_000, -1])
    def test_a_text_that_is_cut_is_not_refused(self, truncate):
        limits = EngineLimits(max_model_len=2_048, kv_blocks=1_000)
        text = Bounds(50_000, 100_000, 200_000)
        cost = cost_of(text=text, limits=limits, truncate_prompt_tokens=truncate)
        assert_fits(cost, limits)
        refusal(cost_of(text=text, limits=limits), limits)


class TestAnswers:
    """Of one request they grow side by side, so the pool has to hold at least a block of each."""

    def test_as_many_as_the_pool_has_blocks_for(self):
        limits = EngineLimits(kv_blocks=100)
        assert_fits(cost_of(text=Bounds.exact(47), n=98), limits)
        error = refusal(cost_of(text=Bounds.exact(47), n=99), limits)
        assert (error.code, error.reason, error.param) == (Code.REQUEST_EXCEEDS_BUDGET, Reason.NEVER_FITS_KV, "n")
        assert error.message == (
            "The request asks for 99 answers, which need at least 101 KV blocks, and the engine has 100 in all. "
            "Ask for fewer at once."
        )

    def test_without_prefix_caching_each_holds_the_whole_prompt(self):
        limits = EngineLimits(kv_blocks=100, prefix_caching=False)
        assert_fits(cost_of(text=Bounds.exact(47), n=33), limits)
        assert "at least 102 KV blocks" in refusal(cost_of(text=Bounds.exact(47), n=34), limits).message

    def test_prompts_that_may_begin_alike(self):
        limits = EngineLimits(kv_blocks=102)
        assert_fits(cost_of(text=Bounds.exact(3_200), prompts=100), limits)
        error = refusal(cost_of(text=Bounds.exact(3_200), prompts=100, n=2), limits)
        assert "200 answers to 100 prompts, which need at least 202 KV blocks" in error.message
        assert refusal(cost_of(text=Bounds.exact(101), prompts=103), limits).param == "messages"
        plain = cost_of(text=Bounds.exact(101), prompts=103)._replace(prompt_param=None)
        assert refusal(plain, limits).param == "prompt"

    def test_of_several_engines_all_take_part(self):
        assert_fits(cost_of(n=90), EngineLimits(kv_blocks=100, kv_blocks_of_one=50))

    def test_more_than_the_operator_lets_be_generated_at_once(self):
        assert_fits(cost_of(n=32), EngineLimits(sequences=32))
        error = refusal(cost_of(n=33), EngineLimits(sequences=32))
        assert (error.code, error.reason) == (Code.REQUEST_EXCEEDS_BUDGET, Reason.NEVER_FITS_SEQUENCES)
        assert error.message == (
            "The request asks for 33 answers, and at most 32 are generated at the same time (budget.sequences). "
            "Ask for fewer at once."
        )

    def test_prompts_without_answers_are_worked_off_in_turn(self):
        cost = cost_of(text=Bounds.exact(50_000), prompts=2_000, output_tokens=0)
        assert_fits(cost, EngineLimits(kv_blocks=100, sequences=32))
