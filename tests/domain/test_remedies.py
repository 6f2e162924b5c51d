"""What would make a request fit: whoever follows the advice gets in."""

import re

from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.cost import EngineLimits, RequestCost, estimate
from gateway.domain.geometry import Size
from gateway.domain.kv_layout import KvCharge
from gateway.domain.never_fits import find_misfit
from gateway.domain.quantities import Bounds, Resource, ceil_div
from gateway.domain.remedies import Remedies, Shortage, save_prompt_tokens, within_encoder, within_free
from gateway.domain.vision.registry import family_for
from tests.support.costs import UNKNOWN, cost_of, request_with

QWEN = family_for("qwen2_5_vl", None)
sizes = st.builds(Size, st.integers(20, 3_000), st.integers(20, 3_000)).filter(lambda size: size.aspect_ratio < 100)
pictures = st.lists(sizes, min_size=1, max_size=6)


def priced(images, *, text=100, output_tokens=64, limits=UNKNOWN, n=1, prompts=1) -> RequestCost:
    request, plans, _ = request_with(*images, n=n, prompts=prompts)
    tokens = [QWEN.tokens(size) for size in images]
    return estimate(request, plans, tokens, text=Bounds.exact(text), output_tokens=output_tokens, limits=limits)


def resized(images, remedies: Remedies) -> list[Size]:
    new = {int(re.findall(r"\d+", param)[0]): size for param, size in remedies.sizes}
    return [new.get(index, size) for index, size in enumerate(images)]


class TestPromptTokens:
    @given(pictures, st.integers(1, 2_000))
    def test_following_it_saves_enough(self, images, excess):
        cost = priced(images)
        remedies = save_prompt_tokens(cost, excess, QWEN)
        goal = cost.prompt_tokens.expected - excess
        if remedies.text_tokens:
            assert remedies.oldest_images == len(images)
            assert 100 - remedies.text_tokens == goal
            return
        assert priced(images[remedies.oldest_images :]).prompt_tokens.expected <= goal
        assert priced(images[remedies.oldest_images - 1 :]).prompt_tokens.expected > goal
        if remedies.sizes:
            assert priced(resized(images, remedies)).prompt_tokens.expected <= goal

    def test_it_names_a_size_for_each_image_that_is_too_large_and_the_last_to_leave_out(self):
        cost = priced([Size(560, 420), Size(1120, 840), Size(56, 56)])
        assert save_prompt_tokens(cost, 800, QWEN) == Remedies(
            sizes=(
                ("messages[0].content[0].image_url.url", Size(476, 364)),
                ("messages[1].content[0].image_url.url", Size(476, 364)),
            ),
            oldest_images=2,
            last_param="messages[1].content[0].image_url.url",
        )

    def test_text_alone_can_only_be_shortened(self):
        assert save_prompt_tokens(priced([]), 30, QWEN) == Remedies(text_tokens=30)

    def test_without_a_family_no_size_is_known(self):
        assert not save_prompt_tokens(priced([Size(560, 420)]), 30, None).sizes


def test_images_are_brought_under_the_encoder_budget_each():
    cost = priced([Size(560, 420), Size(56, 56)])
    assert within_encoder(cost, 100, QWEN).sizes == (("messages[0].content[0].image_url.url", Size(308, 224)),)


class TestFreeAmounts:
    @given(pictures, st.integers(1, 900), st.integers(1, 3), st.booleans(), st.booleans(), st.integers(0, 600))
    def test_kv_blocks(self, images, output_tokens, n, prefix_caching, has_windows, free):
        charges = (KvCharge(1, 16), KvCharge(5, 16, 40, 10)) if has_windows else ()
        limits = EngineLimits(prefix_caching=prefix_caching, kv_charges=charges)

        def blocks(images, output_tokens=output_tokens, text=100):
            cost = priced(images, text=text, output_tokens=output_tokens, limits=limits, n=n)
            return cost.amounts.kv_blocks

        cost = priced(images, output_tokens=output_tokens, limits=limits, n=n)
        if cost.amounts.kv_blocks <= free:
            return
        remedies = within_free(cost, Resource.KV_BLOCKS, free, limits, QWEN)
        if remedies.max_tokens is not None:
            assert blocks(images, remedies.max_tokens) <= free < blocks(images, remedies.max_tokens + 16)
        if remedies.text_tokens:
            assert blocks([], text=100 - remedies.text_tokens) <= free
        elif remedies.oldest_images:
            assert blocks(images[remedies.oldest_images :]) <= free
        if remedies.sizes:
            assert blocks(resized(images, remedies)) <= free

    def test_kv_blocks_of_several_prompts(self):
        cost = cost_of(text=Bounds.exact(320), output_tokens=160, prompts=4)
        remedies = within_free(cost, Resource.KV_BLOCKS, 43, UNKNOWN, None)
        assert remedies == Remedies(max_tokens=80)
        assert cost_of(text=Bounds.exact(320), output_tokens=80, prompts=4).amounts.kv_blocks == 43
        assert cost_of(text=Bounds.exact(320), output_tokens=81, prompts=4).amounts.kv_blocks == 44
        assert within_free(cost, Resource.KV_BLOCKS, 10, UNKNOWN, None) == Remedies()

    def test_no_answer_helps_where_even_the_prompt_is_too_long(self):
        cost = cost_of(text=Bounds.exact(320), output_tokens=160)
        assert within_free(cost, Resource.KV_BLOCKS, 1, UNKNOWN, None).max_tokens is None
        silent = cost_of(text=Bounds.exact(320), output_tokens=0)
        assert within_free(silent, Resource.KV_BLOCKS, 10, UNKNOWN, None) == Remedies(text_tokens=160)

    @given(pictures, st.integers(0, 20_000))
    def test_encoder_tokens(self, images, free):
        cost = priced(images)
        if cost.amounts.encoder_tokens > free:
            remedies = within_free(cost, Resource.ENCODER_TOKENS, free, UNKNOWN, QWEN)
            assert priced(images[remedies.oldest_images :]).amounts.encoder_tokens <= free
            assert not remedies.sizes or priced(resized(images, remedies)).amounts.encoder_tokens <= free

    @given(pictures, st.integers(0, 20_000_000))
    def test_pixels(self, images, free):
        cost = priced(images)
        if cost.amounts.preprocess_pixels > free:
            remedies = within_free(cost, Resource.PREPROCESS_PIXELS, free, UNKNOWN, QWEN)
            assert priced(images[remedies.oldest_images :]).amounts.preprocess_pixels <= free
            assert not remedies.sizes or priced(resized(images, remedies)).amounts.preprocess_pixels <= free

    def test_leaving_out_what_the_engine_knows_saves_nothing(self):
        cost = priced([Size(560, 420), Size(560, 420)])
        spared = cost._replace(amounts=cost.amounts._replace(encoder_tokens=300))
        assert within_free(spared, Resource.ENCODER_TOKENS, 200, UNKNOWN, QWEN).oldest_images == 0

    def test_fewer_answers(self):
        cost = cost_of(n=8, prompts=2)
        assert within_free(cost, Resource.SEQUENCES, 5, UNKNOWN, None) == Remedies(n=2)
        assert within_free(cost, Resource.SEQUENCES, 1, UNKNOWN, None) == Remedies()
        assert within_free(cost_of(), Resource.SEQUENCES, 0, UNKNOWN, None) == Remedies()


class TestMisfits:
    """What is refused for good says of what there is too little, and what would do."""

    def test_context(self):
        cost = cost_of(text=Bounds.exact(100))
        misfit = find_misfit(cost, EngineLimits(max_model_len=90))
        assert misfit.shortage == Shortage("context_tokens", 101, 90, 90, "messages")
        assert (misfit.shortage.deficit, misfit.remedies) == (11, Remedies(text_tokens=11))

    def test_pool(self):
        misfit = find_misfit(cost_of(text=Bounds.exact(170)), EngineLimits(kv_blocks=10))
        assert misfit.shortage == Shortage("kv_blocks", ceil_div(171, 16), 10, 10, "messages")

    def test_encoder(self):
        images = [Size(56, 56), Size(560, 420)]
        misfit = find_misfit(priced(images), EngineLimits(encoder_budget_tokens=100), QWEN)
        assert misfit.shortage == Shortage("encoder_tokens", 300, 100, 100, "messages[1].content[0].image_url.url")
        assert find_misfit(priced(resized(images, misfit.remedies)), EngineLimits(encoder_budget_tokens=100)) is None

    def test_sequences(self):
        misfit = find_misfit(cost_of(n=33), EngineLimits(sequences=32))
        assert misfit.shortage == Shortage("sequences", 33, 32, 32, "n")
        assert misfit.remedies == Remedies(n=32)
        assert find_misfit(cost_of(text=Bounds.exact(47), n=99), EngineLimits(kv_blocks=100)).shortage == Shortage(
            "kv_blocks", 101, 100, 100, "n"
        )

    def test_the_advice_counts_the_text_as_it_probably_is(self):
        limits, images = EngineLimits(max_model_len=1_000), [Size(560, 420)] * 4
        text = Bounds(0, 150, 400)
        request, plans, _ = request_with(*images)
        tokens = [QWEN.tokens(size) for size in images]
        cost = estimate(request, plans, tokens, text=text, output_tokens=64, limits=limits)
        misfit = find_misfit(cost, limits, QWEN)
        assert misfit.shortage.deficit == 209
        assert misfit.remedies.oldest_images == 2
        assert priced(resized(images, misfit.remedies), text=150).prompt_tokens.expected < 1_000
