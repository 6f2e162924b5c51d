import pytest

from gateway.replay.pace import Pace, Recording
from tests.support.log_lines import line, refused


def stream(arrived, prompt=160, tokens=50, first=0.2, each=0.02, **fields):
    usual = {
        "prompt_tokens": prompt,
        "actual_output_tokens": tokens,
        "first_event_ms": first * 1000,
        "total_ms": (first + each * tokens) * 1000,
    }
    return line(arrived, **usual | fields)


class TestLearning:
    def test_start_and_pace_of_prompts(self):
        lines = [stream(100.0 * n, prompt=100 * n, first=0.05 + 100 * n / 10_000) for n in range(1, 40)]
        pace = Recording(lines).pace
        assert pace.start_seconds == pytest.approx(0.05, rel=0.01)
        assert pace.prompt_token_seconds == pytest.approx(1 / 10_000, rel=0.01)
        assert pace.token_seconds == pytest.approx(0.02, rel=0.01)

    def test_each_other_request_makes_all_slower(self):
        """Of sixty that come together the nth has n - 1 others beside it."""
        lines = [stream(n * 0.01, tokens=100, each=0.02 + 0.001 * n, first=0.0) for n in range(60)]
        pace = Recording(lines).pace
        assert pace.token_seconds == pytest.approx(0.02, rel=0.05)
        assert pace.crowding_seconds == pytest.approx(0.001, rel=0.05)

    def test_the_engines_own_line_makes_first_tokens_late(self):
        """The nth of sixty that come together waits for those before it."""
        recording = Recording([stream(n * 0.001, first=0.05 + 0.1 * n, tokens=100) for n in range(60)])
        assert recording.pace.queueing_seconds == pytest.approx(0.1, rel=0.01)
        assert recording.pace.start_seconds == pytest.approx(0.05, rel=0.05)
        assert recording.pace.token_seconds == pytest.approx(0.02, rel=0.01)

    def test_a_pace_is_never_below_nothing(self):
        """The longer the prompt, the sooner the answer: some other cause, not the prompt."""
        lines = [stream(100.0 * n, prompt=10_000 - 100 * n, first=0.01 * n) for n in range(1, 40)]
        pace = Recording(lines).pace
        assert pace.prompt_token_seconds == 0
        assert pace.start_seconds == pytest.approx(0.2)

    def test_answers_that_are_not_streamed_tell_the_pace_by_their_whole_time(self):
        lines = [
            line(100.0 * n, is_streaming=False, first_event_ms=2000.0, actual_output_tokens=100, total_ms=2000.0)
            for n in range(30)
        ]
        assert Recording(lines).pace.token_seconds == pytest.approx(0.02)

    def test_a_log_without_enough_answers_has_the_usual_pace(self):
        assert Recording([refused(), stream(1.0), stream(2.0, tokens=3)]).pace == Pace()


def test_tokens_that_were_only_counted_count():
    lines = [stream(100.0 * n, tokens=50, actual_output_tokens=None, counted_output_tokens=50) for n in range(30)]
    assert Recording(lines).pace.token_seconds == pytest.approx(0.02)


class TestService:
    def test_as_it_was_where_it_is_as_crowded(self):
        one = stream(0.0)
        service = Recording([one]).service(one, 0, 160, None, others=0)
        assert service == pytest.approx((0.2, 1.2, 50))
        assert service.seconds_at(50) == service.whole_seconds
        assert service.seconds_at(25) == pytest.approx(0.7)

    def test_longer_where_it_is_more_crowded(self):
        lines = [stream(n * 0.01, tokens=100, each=0.02 + 0.0002 * n, first=0.1) for n in range(60)]
        recording = Recording(lines)
        alone = recording.service(lines[0], 0, 160, None, others=0)
        beside = recording.service(lines[0], 0, 160, None, others=100)
        assert beside.whole_seconds == pytest.approx(2 * alone.whole_seconds, rel=0.1)

    def test_sooner_where_fewer_stand_in_the_engines_own_line(self):
        lines = [stream(n * 0.001, first=0.05 + 0.1 * n, tokens=100) for n in range(60)]
        service = Recording(lines).service(lines[59], 0, 160, None, others=0)
        assert service == pytest.approx((0.05, 2.05, 100), rel=0.05)

    def test_a_whole_answer_is_split_as_a_stream_would_have_been(self):
        streams = [stream(100.0 * n, prompt=100 * n, first=0.05 + 100 * n / 10_000) for n in range(1, 40)]
        whole = line(9000.0, is_streaming=False, prompt_tokens=1000, actual_output_tokens=50, total_ms=1150.0)
        service = Recording([*streams, whole]).service(whole, 0, 1000, None, others=0)
        assert service == pytest.approx((0.15, 1.15, 50), rel=0.01)

    def test_sooner_with_a_smaller_prompt_but_never_at_once(self):
        lines = [stream(100.0 * n, prompt=100 * n, first=0.05 + 100 * n / 10_000) for n in range(1, 40)]
        recording = Recording(lines)
        first, whole, _ = recording.service(lines[-1], 0, 3900 - 1000, None, others=0)
        assert first == pytest.approx(0.44 - 0.1, rel=0.01)
        assert whole - first == pytest.approx(1.0)
        assert recording.service(lines[-1], 0, 0, None, others=0).first_seconds == pytest.approx(0.05, rel=0.01)

    def test_what_was_not_served_gets_another_ones_answer(self):
        recording = Recording([stream(1.0, tokens=30), stream(2.0, tokens=70)])
        drawn = {recording.service(refused(), number, 800, None, others=0).output_tokens for number in range(9)}
        assert drawn == {30, 70}
        first, whole, tokens = recording.service(refused(), 1, 800, 10, others=0)
        assert (first, tokens) == (pytest.approx(0.2), 10)
        assert whole == pytest.approx(first + 10 * 0.02)

    def test_in_a_log_without_answers_too(self):
        assert Recording([]).service(refused(), 0, 100, None, others=3).output_tokens == 256


def test_how_crowded_it_was():
    lines = [stream(0.0), stream(0.5), stream(0.6), stream(5.0), refused(0.55)]
    recording = Recording(lines)
    assert [recording.others(each) for each in lines[:4]] == [0, 1, 2, 0]
