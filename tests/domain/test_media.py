"""Which videos and audio are let in, and what is kept for them."""

import pytest

from gateway.domain.cost import EngineLimits, estimate, spare_served
from gateway.domain.errors import Code, GatewayError
from gateway.domain.media import NOTHING, MediaCost, MediaKind, MediaPolicy, MediaRef, counts_by_kind, price_media
from gateway.domain.never_fits import find_misfit
from gateway.domain.outcome import Reason
from gateway.domain.quantities import Bounds
from gateway.domain.ticket import Ticket
from gateway.domain.vision.registry import resolve
from tests.support.costs import request_with

VIDEO, AUDIO = MediaKind.VIDEO, MediaKind.AUDIO
RULE = resolve("qwen2_5_vl").video
PATCH = 16384


def ref(kind=VIDEO, place=0, **fields):
    part = f"messages[0].content[{place}]"
    return MediaRef(kind, part, f"{part}.video_url.url", **fields)


def price(*refs, video=MediaPolicy(), audio=MediaPolicy(), rule=RULE):  # noqa: B008  # it is frozen
    return price_media(refs, {VIDEO: video, AUDIO: audio}, rule, "qwen2_5_vl" if rule else "internvl")


def refusal(*refs, **policies):
    with pytest.raises(GatewayError) as refused:
        price(*refs, **policies)
    error = refused.value
    assert (error.status, error.code, error.reason) == (400, Code.MEDIA_NOT_ALLOWED, Reason.MEDIA_NOT_ALLOWED)
    return error


class TestWithoutSettings:
    def test_nothing_is_let_in_though_its_bound_is_known(self):
        error = refusal(ref(place=2))
        assert error.param == "messages[0].content[2]"
        assert error.message == (
            "`messages[0].content[2]`: Video is not let in here (videos.per_request is 0). "
            "Send single frames as images."
        )
        assert "Audio is not let in here (audios.per_request is 0). Send a transcript" in refusal(ref(AUDIO)).message
        assert all(policy == MediaPolicy() for policy in NOTHING.values())


class TestHowMany:
    def test_as_many_as_the_setting_says_of_each_kind(self):
        refs = [ref(place=0), ref(AUDIO, place=1), ref(place=2)]
        costs = price(*refs, video=MediaPolicy(2), audio=MediaPolicy(1, tokens=500))
        assert counts_by_kind(costs) == {VIDEO: 2, AUDIO: 1}

    def test_the_first_beyond_it_is_named(self):
        error = refusal(ref(place=0), ref(place=1), ref(place=4), video=MediaPolicy(2))
        assert error.param == "messages[0].content[4]"
        assert (
            "has 3 video parts, those of earlier turns included, and the limit is 2 (videos.per_request)"
            in error.message
        )


class TestTheBound:
    def test_of_a_file_that_nobody_looked_into(self):
        assert price(ref(), video=MediaPolicy(1)) == (MediaCost(VIDEO, ref().part, 384 * PATCH + 3, 384 * PATCH),)

    def test_of_as_many_frames_as_the_server_takes(self):
        assert price(ref(), video=MediaPolicy(1, frames=16))[0].encoder_tokens == 8 * PATCH

    @pytest.mark.parametrize(("frames", "patches"), [(1, 1), (2, 1), (3, 2), (16, 8), (17, 9), (10**9, 384)])
    def test_of_a_list_of_pictures_by_their_number(self, frames, patches):
        assert price(ref(frames=frames), video=MediaPolicy(1, frames=16))[0].encoder_tokens == patches * PATCH

    def test_by_the_operators_word_where_that_is_less(self):
        assert price(ref(), video=MediaPolicy(1, tokens=4000)) == (MediaCost(VIDEO, ref().part, 4000, 4000),)
        assert price(ref(frames=1), video=MediaPolicy(1, tokens=10**6))[0].encoder_tokens == PATCH

    def test_by_the_operators_word_alone_where_the_family_defines_none(self):
        assert price(ref(), video=MediaPolicy(1, tokens=4000), rule=None)[0].prompt_tokens == 4000
        assert price(ref(AUDIO), audio=MediaPolicy(1, tokens=750))[0].prompt_tokens == 750

    def test_by_nobody_is_a_refusal(self):
        error = refusal(ref(), video=MediaPolicy(1), rule=None)
        assert "not known for models of the family internvl, and videos.tokens" in error.message
        assert "audios.tokens" in refusal(ref(AUDIO), audio=MediaPolicy(1)).message


class TestHosts:
    POLICY = MediaPolicy(1, hosts=frozenset({"videos.example.com"}))

    def test_vllm_asks_only_those_that_are_allowed(self):
        assert price(ref(host="videos.example.com"), video=self.POLICY)
        for host in ("example.com", "a.videos.example.com", "videos.example.com.evil.org", "127.0.0.1"):
            error = refusal(ref(host=host), video=self.POLICY)
            assert "vLLM itself would fetch this video" in error.message
            assert host not in error.message, "what the client wrote is not logged"

    def test_without_any_none(self):
        assert "data:video/...;base64" in refusal(ref(host="videos.example.com"), video=MediaPolicy(1)).message


class TestTheWholeCost:
    LIMITS = EngineLimits(max_model_len=32_768, kv_blocks=4096, encoder_budget_tokens=20_000)
    BIG, SMALL = MediaCost(VIDEO, "p", 6_000_000, 6_000_000), MediaCost(VIDEO, "q", 1000, 900)

    def cost(self, *media, limits=LIMITS, text=100, output_tokens=16, **fields):
        request, plans, tokens = request_with(**fields)
        return estimate(
            request, plans, tokens, text=Bounds.exact(text), output_tokens=output_tokens, limits=limits, media=media
        )

    def test_the_bound_is_kept_and_little_is_sure(self):
        cost = self.cost(self.SMALL)
        assert cost.prompt_tokens == Bounds(101, 1100, 1100)
        assert (cost.media_tokens, cost.uncertain_media_tokens, cost.visual_tokens) == (1000, 999, 0)
        assert (cost.amounts.encoder_tokens, cost.amounts.preprocess_pixels) == (900, 0)

    def test_no_more_than_vllm_would_serve(self):
        cost = self.cost(self.BIG, self.BIG)
        assert cost.prompt_tokens == Bounds(102, 32_768 - 16, 32_768)
        assert cost.media_tokens == 2 * 32_768
        assert cost.amounts.encoder_tokens == 2 * 20_000
        assert cost.amounts.kv_blocks == 32_768 // 16

    def test_all_of_it_where_nothing_is_known(self):
        cost = self.cost(self.BIG, limits=EngineLimits())
        assert cost.prompt_tokens == Bounds(101, 6_000_100, 6_000_100)
        assert cost.amounts.encoder_tokens == 6_000_000

    def test_is_no_reason_to_refuse_for_good(self):
        cost = self.cost(self.BIG)
        assert find_misfit(cost, self.LIMITS) is None
        too_long = find_misfit(self.cost(self.SMALL, text=40_000), self.LIMITS)
        assert too_long.error.code == Code.CONTEXT_LENGTH_EXCEEDED
        assert "Shorten the text by at least 7234 tokens" in too_long.error.message

    def test_stays_where_images_are_spared(self):
        assert spare_served(self.cost(self.SMALL), []).amounts.encoder_tokens == 900

    def test_a_bound_teaches_no_pace(self):
        ticket = Ticket.of(self.cost(self.SMALL), 0.0, 1.0)
        assert ticket.is_bounded
        assert ticket.prefill_tokens == 100 + 900 + 512
        assert not Ticket.of(self.cost(), 0.0, 1.0).is_bounded

    def test_nothing_is_held_of_an_engine_that_is_not_needed(self):
        assert not any(self.cost(self.SMALL, needs_engine=False).amounts)
