import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.learning import ImageTokenCap, LearnedLimit, PreprocessRate, SequenceCeiling, TextRatio
from gateway.domain.quantities import Bounds


class TestTextRatio:
    def test_starts_at_three_bytes(self):
        assert TextRatio().bytes_per_token == 3.0
        assert TextRatio().bounds(300, 0) == Bounds(2, 100, 300)

    def test_learns_what_usage_reports_less_the_template(self):
        ratio = TextRatio()
        for _ in range(50):
            ratio.observe(4_500, 2, 1_000 + 18)
        assert ratio.bytes_per_token == pytest.approx(4.5, abs=0.05)
        assert ratio.bounds(4_500, 2).expected == pytest.approx(1_018, rel=0.01)

    def test_forgets(self):
        ratio = TextRatio()
        for bytes_per_token in (6, 2):
            for _ in range(1_000):
                ratio.observe(1_000 * bytes_per_token, 0, 1_000)
        assert ratio.bytes_per_token == pytest.approx(2.0, abs=0.05)

    @pytest.mark.parametrize(("text_bytes", "text_tokens"), [(0, 500), (3, 13), (3, 2), (3, 0)])
    def test_reports_that_say_nothing_about_text_teach_nothing(self, text_bytes, text_tokens):
        ratio = TextRatio()
        ratio.observe(text_bytes, 1, text_tokens)
        assert ratio.bytes_per_token == 3.0

    @given(st.lists(st.tuples(st.integers(0, 10**7), st.integers(-5, 10**5)), max_size=50))
    def test_stays_within_what_tokens_can_be(self, reports):
        ratio = TextRatio()
        for text_bytes, text_tokens in reports:
            ratio.observe(text_bytes, 0, text_tokens)
        assert 1.0 <= ratio.bytes_per_token <= 128.0

    def test_a_sample_that_is_denser_than_the_start_is_believed_and_one_that_is_not_is_no_promise(self):
        dense, sparse = TextRatio(), TextRatio()
        dense.sampled(600, 600, 13)
        sparse.sampled(600, 100, 13)
        assert (dense.bytes_per_token, sparse.bytes_per_token) == (1.0, 3.0)

    def test_a_system_message_that_the_template_writes_counts_where_the_client_has_none(self):
        ratio = TextRatio()
        ratio.sampled(600, 200, 60)
        assert ratio.bounds(300, 1, has_system=False).expected == 100 + 60
        assert ratio.bounds(300, 1, has_system=True).expected == 100 + 13
        assert ratio.bounds(300, 0, has_system=False).expected == 100
        ratio.observe(400, 1, 100 + 60, has_system=False)
        assert ratio.bytes_per_token == pytest.approx(3_400 / 1_100)

    def test_no_server_can_say_that_its_template_is_endless(self):
        ratio = TextRatio()
        ratio.sampled(600, 200, 2**31)
        assert ratio.bounds(300, 1, has_system=False).expected == 100 + 512 + 16

    def test_what_usage_has_taught_stands(self):
        ratio = TextRatio()
        ratio.observe(4_000, 0, 1_000)
        before = ratio.bytes_per_token
        ratio.sampled(600, 600, 60)
        assert ratio.bytes_per_token == before
        assert ratio.bounds(0, 1, has_system=False).expected == 13


class TestImageTokenCap:
    def test_nothing_is_cut_until_something_is_known(self):
        assert ImageTokenCap().within(15_303) == 15_303

    def test_what_calibration_saw_of_one_shape_bounds_others_until_usage_tells(self):
        cap = ImageTokenCap(1_298, is_bound=True)
        assert (cap.within(15_303), cap.least_within(15_303)) == (1_298, 432)
        assert (cap.within(1_298), cap.least_within(1_298)) == (1_298, 432), "the next square below it may be the most"
        assert (cap.within(326), cap.least_within(326)) == (326, 326)
        cap.observe([15_303], Bounds.exact(1_250))
        assert (cap.within(15_303), cap.least_within(15_303)) == (1_250, 1_250)

    def test_what_is_much_less_than_the_image_should_make_was_cut(self):
        cap = ImageTokenCap()
        cap.observe([15_303], Bounds(1_000, 1_280, 1_500))
        assert (cap.within(15_303), cap.within(326)) == (1_280, 326)

    def test_of_several_images_the_large_ones_were_cut_to_the_same(self):
        cap = ImageTokenCap()
        cap.observe([5_000, 326, 15_303], Bounds.exact(326 + 2 * 1_000))
        assert (cap.within(5_000), cap.within(15_303), cap.within(326)) == (1_000, 1_000, 326)

    @pytest.mark.parametrize("seen", [Bounds(1_100, 1_300, 1_500), Bounds(0, 300, 1_371), Bounds.exact(1_200)])
    def test_what_the_text_may_explain_proves_nothing(self, seen):
        cap = ImageTokenCap()
        cap.observe([1_371], seen)
        assert cap.most is None

    def test_what_was_learned_stands_until_images_were_surely_more_and_is_not_lifted_by_a_longer_text(self):
        cap = ImageTokenCap()
        cap.observe([15_303], Bounds.exact(1_536))
        cap.observe([1_371], Bounds(1_300, 1_460, 1_570))
        assert cap.within(15_303) == 1_536
        cap.observe([4_000], Bounds(3_500, 3_900, 4_100))
        assert cap.within(15_303) == 15_303

    def test_a_server_that_was_started_with_more_lifts_what_was_learned(self):
        cap = ImageTokenCap()
        cap.observe([15_303], Bounds.exact(1_280))
        cap.observe([15_303], Bounds.exact(5_000))
        assert cap.within(15_303) == 5_000

    @given(st.lists(st.integers(1, 20_000), min_size=1, max_size=6), st.integers(1, 20_000))
    def test_it_finds_the_maximum_from_any_images_that_were_cut(self, images, most):
        seen = sum(min(image, most) for image in images)
        cap = ImageTokenCap()
        cap.observe(images, Bounds.exact(seen))
        # By more than half cannot be an error of the estimate, and by less than a tenth may be.
        assert cap.most is not None or 2 * seen > sum(images) - 1_000
        assert cap.most is None or 10 * seen < 9 * sum(images)
        if cap.most is not None:
            assert abs(sum(map(cap.within, images)) - seen) < len(images)


class Thread:
    """The engine's one preprocessing thread, and a client that keeps `backlog` images on their way to it."""

    def __init__(self, pixels_per_second: float, latency_seconds: float = 0.0):
        self.pixels_per_second = pixels_per_second
        self.latency_seconds = latency_seconds

    def run(
        self, rate: PreprocessRate, *, images: int, pixels: int, backlog: int | None = None, start: float = 0.0
    ) -> float:
        now = free_at = start
        on_their_way: list[float] = []
        for _ in range(images):
            limit = backlog or max(1, rate.capacity_pixels // pixels)
            while len(on_their_way) >= limit:
                now = on_their_way.pop(0)
                rate.seen_through(now, pixels)
            rate.sent(now, pixels)
            free_at = max(free_at, now) + pixels / self.pixels_per_second
            on_their_way.append(free_at + self.latency_seconds)
        for now in on_their_way:
            rate.seen_through(now, pixels)
        return now


class TestPreprocessRate:
    def test_starts_at_twenty_million_and_two_seconds(self):
        assert PreprocessRate().capacity_pixels == 40_000_000
        assert PreprocessRate(backlog_seconds=0.5).capacity_pixels == 10_000_000

    def test_a_large_image_makes_room_for_the_next_beside_it(self):
        rate = PreprocessRate(backlog_seconds=1.0)
        rate.sent(0.0, 12_000_000)
        assert rate.capacity_pixels >= 2 * 12_000_000
        for moment in range(100):
            rate.sent(float(moment), 1_000)
        assert rate.capacity_pixels == pytest.approx(20_000_000, rel=0.01)

    def test_images_of_more_than_half_a_backlog_do_not_hold_the_rate_where_it_began(self):
        rate = PreprocessRate(backlog_seconds=1.0)
        Thread(80e6, latency_seconds=0.45).run(rate, images=200, pixels=12_000_000)
        assert rate.pixels_per_second > 28e6

    @pytest.mark.parametrize("true_rate", [3e6, 8e6, 60e6, 200e6])
    def test_finds_the_rate_of_a_loaded_thread(self, true_rate):
        rate = PreprocessRate()
        Thread(true_rate, latency_seconds=0.2).run(rate, images=3_000, pixels=1_000_000)
        assert rate.pixels_per_second == pytest.approx(true_rate, rel=0.25)

    def test_a_single_slow_image_proves_nothing(self):
        rate = PreprocessRate()
        Thread(50e6, latency_seconds=5.0).run(rate, images=20, pixels=1_000_000, backlog=1)
        assert rate.pixels_per_second == 20e6

    def test_a_single_fast_image_proves_that_it_can_be_done(self):
        rate = PreprocessRate()
        rate.sent(0.0, 10_000_000)
        rate.seen_through(0.1, 10_000_000)
        assert rate.pixels_per_second == 20e6 + 0.5 * 80e6

    def test_never_stuck_at_one_image_at_a_time(self):
        rate = PreprocessRate()
        now = Thread(1e5).run(rate, images=200, pixels=1_000_000)
        assert rate.pixels_per_second < 1.5e6
        Thread(30e6, latency_seconds=0.1).run(rate, images=500, pixels=1_500_000, start=now)
        assert rate.pixels_per_second == pytest.approx(30e6, rel=0.25)

    def test_stays_within_its_bounds(self):
        rate = PreprocessRate()
        for second in range(100):
            rate.sent(float(second), 2_000_000_000)
            rate.seen_through(second + 0.001, 2_000_000_000)
        assert rate.pixels_per_second == 500e6

    def test_events_at_the_same_instant_are_no_evidence(self):
        rate = PreprocessRate()
        rate.sent(1.0, 5)
        rate.seen_through(1.0, 5)
        assert rate.pixels_per_second == 20e6

    def test_images_already_on_their_way_prove_no_higher_rate(self):
        rate = PreprocessRate()
        for _ in range(31):
            rate.sent(0.0, 1_000_000)
        rate.seen_through(1.5, 1_000_000)
        for _ in range(30):
            rate.seen_through(2.6, 1_000_000)
        assert rate.pixels_per_second <= 20e6

    def test_a_thread_that_was_idle_in_between_is_not_taken_for_slow(self):
        rate = PreprocessRate()
        for pixels in (30_000_000, 10_000_000, 1):
            rate.sent(0.0, pixels)
        rate.lost_sight(0.0, 1)
        rate.seen_through(5.0, 30_000_000)
        rate.sent(5.0, 40_000_000)
        rate.seen_through(10.0, 10_000_000)
        assert rate.pixels_per_second == 20e6

    def test_what_is_not_followed_spoils_the_evidence(self):
        rate = PreprocessRate()
        rate.sent(0.0, 40_000_000)
        rate.sent(0.0, 40_000_000)
        rate.lost_sight(10.0, 40_000_000)
        rate.seen_through(10.5, 40_000_000)
        assert rate.pixels_per_second == 20e6

    def test_when_the_thread_should_be_through_counts_the_work_ahead(self):
        rate = PreprocessRate()
        assert rate.sent(5.0, 20_000_000) == 6.0
        assert rate.sent(5.5, 10_000_000) == 6.5
        assert rate.sent(9.0, 10_000_000) == 9.5


class TestSequenceCeiling:
    def test_starts_at_128(self):
        assert SequenceCeiling().sequences == 128

    def test_running_flat_with_waiters_twice_is_the_ceiling(self):
        ceiling = SequenceCeiling()
        ceiling.observe(running=16, waiting=3, queue_depth=0)
        assert ceiling.sequences == 128
        ceiling.observe(running=16, waiting=9, queue_depth=0)
        assert ceiling.sequences == 64
        for _ in range(3):
            ceiling.observe(running=16, waiting=9, queue_depth=0)
        assert ceiling.sequences == 18

    @pytest.mark.parametrize("second", [(17, 3), (16, 0), (0, 5)])
    def test_not_flat_or_nobody_waiting_changes_nothing(self, second):
        ceiling = SequenceCeiling()
        ceiling.observe(16, 3, 0)
        ceiling.observe(*second, 0)
        assert ceiling.sequences == 128

    @pytest.mark.parametrize(("kv_usage", "sequences"), [(0.95, 128), (0.5, 64)])
    def test_those_that_wait_for_blocks_say_nothing_of_seats(self, kv_usage, sequences):
        ceiling = SequenceCeiling()
        for _ in range(2):
            ceiling.observe(16, 3, 0, kv_usage=kv_usage)
        assert ceiling.sequences == sequences

    def test_an_engine_that_runs_nothing_says_nothing(self):
        ceiling = SequenceCeiling()
        ceiling.observe(0, 5, 0)
        ceiling.observe(0, 5, 0)
        assert ceiling.sequences == 128

    def test_full_here_and_free_there_twice_is_a_quarter_more(self):
        ceiling = SequenceCeiling()
        ceiling.observe(running=120, waiting=0, queue_depth=4)
        ceiling.observe(running=128, waiting=0, queue_depth=4)
        assert ceiling.sequences == 160
        ceiling.observe(running=160, waiting=0, queue_depth=4)
        assert ceiling.sequences == 160

    @pytest.mark.parametrize("poll", [(128, 0, 0), (100, 0, 4)])
    def test_no_queue_here_or_not_at_the_ceiling_changes_nothing(self, poll):
        ceiling = SequenceCeiling()
        ceiling.observe(*poll)
        ceiling.observe(*poll)
        assert ceiling.sequences == 128

    def test_a_ceiling_of_one_can_rise(self):
        ceiling = SequenceCeiling()
        for _ in range(8):
            ceiling.observe(1, 5, 0)
        for _ in range(2):
            ceiling.observe(1, 0, 5)
        assert ceiling.sequences == 2

    def test_follows_an_engine_with_more_seats_than_assumed(self):
        ceiling, seats = SequenceCeiling(), 300
        for _ in range(20):
            running = min(ceiling.sequences, seats)
            ceiling.observe(running, ceiling.sequences - running, queue_depth=50)
        assert 300 <= ceiling.sequences <= 375


class TestLearnedLimit:
    def test_unknown_until_somebody_speaks(self):
        limit = LearnedLimit()
        assert limit.value is None
        limit.learn(2_048)
        assert limit.value == 2_048
        limit.learn(4_096)
        assert limit.value == 4_096

    def test_the_smaller_of_the_setting_and_the_engines_word(self):
        limit = LearnedLimit(8)
        assert limit.value == 8
        limit.learn(4)
        assert limit.value == 4
        limit.learn(16)
        assert limit.value == 8

    def test_a_restarted_engine_may_say_something_else(self):
        limit = LearnedLimit(8)
        limit.learn(4)
        limit.forget()
        assert limit.value == 8

    def test_what_an_engine_that_turns_away_kept_is_the_ceiling_at_once(self):
        ceiling = SequenceCeiling()
        ceiling.observe(0, 0, 0, rejections=7)
        for kept in (40, 12, 13):
            ceiling.turned_away(kept)
        assert ceiling.sequences == 12
        ceiling.observe(12, 0, 4, rejections=123)
        assert ceiling.sequences == 12

    def test_it_stands_for_sixty_looks_and_rises_by_one_two_four(self):
        ceiling = SequenceCeiling()
        ceiling.turned_away(12)
        seen = []
        for _ in range(66):
            ceiling.observe(ceiling.sequences, 0, 4, rejections=1)
            seen.append(ceiling.sequences)
        assert seen == [12] * 60 + [13, 13, 15, 15, 18, 18]

    @pytest.mark.parametrize("rejections", [None, 7])
    def test_without_a_limit_of_the_engine_there_was_another_reason(self, rejections):
        ceiling = SequenceCeiling()
        for _ in range(3):
            ceiling.observe(3, 0, 0, rejections)
        ceiling.turned_away(3)
        seen = []
        for _ in range(3):
            ceiling.observe(3, 0, 0, rejections)
            seen.append(ceiling.sequences)
        assert seen == [3, 3, 128]

    @pytest.mark.parametrize("counts", [(0, 4), (4, 4)])
    def test_the_engine_may_count_a_look_later_or_earlier(self, counts):
        ceiling = SequenceCeiling()
        ceiling.observe(3, 0, 0, rejections=0)
        ceiling.observe(12, 0, 0, rejections=counts[0])
        ceiling.turned_away(12)
        for _ in range(5):
            ceiling.observe(12, 0, 0, rejections=counts[1])
        assert ceiling.sequences == 12
