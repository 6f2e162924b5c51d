"""What other settings make of pictures and of limits, seen in what becomes of the requests."""

import pytest

from gateway.domain.cost import EngineLimits
from gateway.domain.outcome import Fate, Reason
from tests.support.log_lines import LIMITS, line, picture, shown

LARGE = picture(4000, 3000, digest="big")


class TestPictures:
    def test_a_preset_shrinks_what_was_sent_as_it_is(self, replay):
        one = line(**shown(LARGE, picture(), new=2))
        assert replay([one])[0.0].shrunk_images == 0
        assert replay([one], resize={"preset": "ocr"})[0.0].shrunk_images == 1

    def test_a_history_rule_leaves_out_old_ones_only(self, replay):
        one = line(**shown(*[picture(digest=str(n)) for n in range(6)], new=2))
        keep = {"mode": "always", "keep": 3, "grid": 1}
        assert replay([one], history=keep)[0.0].trimmed_images == 3
        assert replay([one], history=keep | {"keep": 1})[0.0].trimmed_images == 4

    def test_what_the_recording_left_out_unseen_is_taken_to_be_like_the_next_one(self, replay):
        one = line(**shown(None, None, LARGE, new=1))
        assert replay([one], resize={"preset": "thumbnail"})[0.0].shrunk_images == 3
        nothing_seen = line(**shown(None, None, new=1))
        assert replay([nothing_seen], resize={"preset": "thumbnail"})[0.0].shrunk_images == 2

    def test_what_the_client_asked_for_stays(self, replay):
        one = line(asked_resize="off", **shown(LARGE))
        assert replay([one], resize={"preset": "ocr"})[0.0].shrunk_images == 0
        small = line(asked_resize="thumbnail", **shown(LARGE))
        assert replay([small])[0.0].shrunk_images == 1

    def test_a_low_detail_counts_where_it_is_honoured(self, replay):
        one = line(**shown(picture(4000, 3000, is_low_detail=True)))
        assert replay([one], resize={"honour_detail": True})[0.0].shrunk_images == 1

    def test_a_turn_may_be_too_crowded(self, replay):
        one = line(**shown(picture(), picture(), new=2))
        ended = replay([one], images={"max_per_turn": 1})[0.0]
        assert (ended.fate, ended.reason) == (Fate.REFUSED, Reason.TOO_MANY_IMAGES)


class TestVideos:
    def test_what_was_kept_for_one_is_kept_again_and_never_a_reason_to_refuse(self, replay):
        kept = {"media_tokens": 32_768, "limits": EngineLimits(32_768, 3000), "capacity": (3000, 128, None, None)}
        assert replay([line(**kept)])[0.0].fate is Fate.ADMITTED
        assert replay([line(at, **kept) for at in (0.0, 0.1)])[0.1].fate is Fate.QUEUED


class TestLimits:
    def test_a_smaller_pool_refuses_for_good_and_a_larger_one_lets_in(self, replay):
        one = line(prompt_tokens=8000, text_tokens=(8000, 8000, 8000), limits=EngineLimits(32_768, 1000))
        assert replay([one])[0.0].fate is Fate.ADMITTED
        assert replay([one], budget={"kv_blocks": 400})[0.0].reason is Reason.NEVER_FITS_KV

    def test_what_never_fitted_may_fit_a_larger_pool(self, replay):
        one = line(
            outcome="refused", reason="never_fits_kv", upstream_status=None, offered_ms=None,
            prompt_tokens=8000, text_tokens=(8000, 8000, 8000), limits=EngineLimits(32_768, 400),
        )  # fmt: skip
        assert replay([one])[0.0].reason is Reason.NEVER_FITS_KV
        assert replay([one], budget={"kv_blocks": 1000})[0.0].fate is Fate.ADMITTED

    def test_the_context_is_the_recorded_one(self, replay):
        one = line(text_tokens=(5000, 5000, 5000), limits=LIMITS._replace(max_model_len=4096))
        assert replay([one])[0.0].reason is Reason.NEVER_FITS_CONTEXT

    def test_an_encoder_budget_that_the_engine_named_holds_unless_the_settings_have_one(self, replay):
        limits = LIMITS._replace(encoder_budget_tokens=1000)
        one = line(limits=limits, capacity=(950, 128, 1000, None), **shown(LARGE))
        assert replay([one])[0.0].shrunk_images == 1
        refusing = replay([one], resize={"fit": "refuse"})[0.0]
        assert refusing.reason is Reason.NEVER_FITS_ENCODER
        assert replay([one], budget={"encoder_tokens": 20_000})[0.0].reason is None

    def test_a_deadline_that_was_over_before_it_asked(self, replay):
        one = line(offered_ms=900.0, deadline_ms=500.0)
        assert replay([one])[0.0].reason is Reason.WOULD_MISS_DEADLINE


@pytest.mark.parametrize("endpoint", ["/v1/completions", "/v1/embeddings"])
def test_routes_without_pictures(replay, endpoint):
    one = line(endpoint=endpoint, prompts=3, answers=6 if endpoint == "/v1/completions" else 3, model=None)
    assert replay([one])[0.0].fate is Fate.ADMITTED
