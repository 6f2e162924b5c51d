"""The scheduler step by step, with a clock that the test turns."""

from array import array
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from gateway.emulator.config import EmulatorConfig, StepCost
from gateway.emulator.engine import Engine, Sequence, Step
from gateway.emulator.prompt import ImageSpan, Prompt
from gateway.emulator.statistics import Gauges


def sequence(prompt_tokens: int, output_tokens: int = 1, *, seed: int = 0, images: tuple[ImageSpan, ...] = ()):
    return Sequence(Prompt(array("H", [seed] * prompt_tokens), images), output_tokens)


def engine(**changes: object) -> Engine:
    values: dict[str, object] = {"block_size": 4, "num_gpu_blocks": 11, "enable_prefix_caching": False}
    return Engine(EmulatorConfig(**{**values, **changes}))


@dataclass
class Clock:
    """Runs an engine, one second a step."""

    engine: Engine
    now: float = 0.0

    def step(self) -> tuple[Step, list]:
        step = self.engine.schedule(self.now)
        self.now += 1
        return step, self.engine.finish(step, self.now)

    def run(self, limit: int = 2_000) -> list:
        emissions = []
        while self.engine.has_work:
            step, made = self.step()
            assert step.scheduled, "the engine is stuck"
            emissions += made
            assert (limit := limit - 1), "no end in sight"
        return emissions


def test_an_answer_comes_token_by_token_and_the_last_one_says_why_it_ended() -> None:
    one = sequence(5, 3)
    clock = Clock(engine())
    clock.engine.add(one, 0.0)

    assert clock.run() == [(one, 0, None), (one, 1, None), (one, 2, "length")]
    assert (one.scheduled_at, one.first_token_at, one.last_token_at) == (0.0, 1.0, 3.0)


def test_a_long_prompt_is_cut_into_chunks_and_answers_only_after_the_last() -> None:
    clock = Clock(engine(max_num_batched_tokens=8))
    clock.engine.add(sequence(20, 1), 0.0)

    assert [clock.step()[0].prefill_tokens for _ in range(3)] == [8, 8, 4]
    assert not clock.engine.has_work


def test_running_answers_go_before_new_prompts_within_one_budget() -> None:
    clock = Clock(engine(max_num_batched_tokens=6))
    clock.engine.add(sequence(4, 5), 0.0)
    clock.step()
    clock.engine.add(sequence(9, 1), 1.0)

    step, _ = clock.step()
    assert (step.decode_sequences, step.prefill_tokens) == (1, 5)


def test_a_prompt_that_does_not_fit_whole_waits_and_nothing_overtakes_it() -> None:
    clock = Clock(engine())
    running, large, small = sequence(16, 8), sequence(32, 1), sequence(4, 1)
    for one in (running, large, small):
        clock.engine.add(one, 0.0)

    clock.step()
    assert clock.engine.running == [running]
    assert list(clock.engine.waiting) == [large, small]
    ends = [one for one, _, reason in clock.run() if reason]
    assert ends[0] is running


def test_a_prompt_larger_than_the_pool_blocks_the_queue_for_ever() -> None:
    clock = Clock(engine())
    clock.engine.add(sequence(41), 0.0)
    clock.engine.add(sequence(4), 0.0)

    for _ in range(10):
        step, _ = clock.step()
        assert not step.scheduled
    assert clock.engine.gauges == Gauges(running=0, waiting=2, kv_cache_usage_ratio=0.0)


def test_growth_preempts_the_last_running_which_starts_again_before_those_behind() -> None:
    clock = Clock(engine(num_gpu_blocks=6))
    first, last, behind = sequence(8, 12), sequence(8, 12), sequence(8, 1)
    for one in (first, last, behind):
        clock.engine.add(one, 0.0)
    for _ in range(6):
        clock.step()

    assert clock.engine.running == [first]
    assert list(clock.engine.waiting) == [last, behind]
    ends = [one for one, _, reason in clock.run() if reason]
    assert ends == [first, behind, last], "both start when the first has ended; one token is sooner made"
    assert (first.preemptions, last.preemptions, behind.preemptions) == (0, 1, 0)
    assert clock.engine.statistics().preemptions == 1
    assert last.generated == 12


def test_no_more_run_at_once_than_max_num_seqs() -> None:
    clock = Clock(engine(max_num_seqs=2))
    for _ in range(3):
        clock.engine.add(sequence(4, 2), 0.0)

    clock.step()
    assert (len(clock.engine.running), len(clock.engine.waiting)) == (2, 1)


def test_an_abort_takes_effect_at_the_end_of_the_step_and_counts_nowhere() -> None:
    one, waiting = sequence(8, 50), sequence(40, 1)
    clock = Clock(engine())
    for each in (one, waiting):
        clock.engine.add(each, 0.0)
    step = clock.engine.schedule(0.0)

    clock.engine.abort(one)
    clock.engine.abort(one)
    clock.engine.abort(waiting)
    assert clock.engine.statistics().used_blocks == 2
    assert clock.engine.finish(step, 1.0) == []
    assert clock.engine.statistics().used_blocks == 0
    assert clock.engine.totals.finished == {}
    assert not clock.engine.has_work


def test_aborting_what_has_finished_changes_nothing() -> None:
    one = sequence(4, 1)
    clock = Clock(engine())
    clock.engine.add(one, 0.0)
    clock.run()

    clock.engine.abort(one)
    assert not clock.engine.has_work
    assert clock.engine.totals.finished == {"length": 1}


def test_the_gauges_move_only_when_a_step_ends() -> None:
    clock = Clock(engine())
    clock.engine.add(sequence(8, 5), 0.0)
    step = clock.engine.schedule(0.0)

    assert clock.engine.gauges == Gauges()
    clock.engine.finish(step, 1.0)
    assert clock.engine.gauges == Gauges(running=1, waiting=0, kv_cache_usage_ratio=1 - 8 / 10)


def image(start: int, length: int, identity: bytes = b"cat") -> ImageSpan:
    return ImageSpan(start, length, identity)


def test_an_image_is_encoded_whole_in_the_step_that_reaches_it() -> None:
    clock = Clock(engine(max_num_batched_tokens=8, encoder_cache_size=12))
    clock.engine.add(sequence(20, 1, images=(image(6, 12),)), 0.0)

    assert [clock.step()[0].encoder_tokens for _ in range(3)] == [12, 0, 0]
    assert clock.engine.statistics().held_encoder_tokens == 0


def test_a_chunk_ends_before_an_image_for_which_the_step_has_no_room() -> None:
    clock = Clock(engine(max_num_batched_tokens=40, encoder_cache_size=12))
    clock.engine.add(sequence(30, 1, images=(image(2, 10, b"cat"), image(15, 10, b"dog"))), 0.0)

    steps = [clock.step()[0] for _ in range(2)]
    assert [(step.prefill_tokens, step.encoder_tokens) for step in steps] == [(15, 10), (15, 10)]


def test_a_waiting_request_stays_when_even_its_first_token_is_an_image_without_room() -> None:
    clock = Clock(engine(max_num_batched_tokens=14, encoder_cache_size=12))
    first = sequence(16, 1, images=(image(0, 12, b"cat"),))
    second = sequence(12, 1, images=(image(0, 12, b"dog"),))
    clock.engine.add(first, 0.0)
    clock.step()
    clock.engine.add(second, 1.0)

    step, _ = clock.step()
    assert [one for one, _ in step.scheduled] == [first, second]
    first, second = sequence(10, 1, images=(image(0, 10, b"x"),)), sequence(4, 1, images=(image(0, 4, b"y"),))
    for one in (first, second):
        clock.engine.add(one, 2.0)
    step, _ = clock.step()
    assert [one for one, _ in step.scheduled] == [first]


def test_an_image_seen_before_is_not_encoded_again() -> None:
    clock = Clock(engine())
    for _ in range(2):
        clock.engine.add(sequence(8, 1, images=(image(1, 6),)), clock.now)
        clock.run()

    clock.engine.add(sequence(8, 1, images=(image(1, 6),)), clock.now)
    assert clock.step()[0].encoder_tokens == 0


def test_an_equal_prompt_is_computed_only_from_its_last_block_on() -> None:
    clock = Clock(engine(enable_prefix_caching=True))
    first, second = sequence(12, 1), sequence(12, 1)
    clock.engine.add(first, 0.0)
    clock.run()
    clock.engine.add(second, clock.now)

    step, _ = clock.step()
    assert step.prefill_tokens == 4
    assert (first.cached_tokens, second.cached_tokens) == (0, 8)
    assert (first.cache_tokens_created, second.cache_tokens_created) == (12, 4)
    assert clock.engine.totals.prefix_hits == 8
    assert clock.engine.totals.prefix_queries == 24


def test_siblings_of_one_request_share_the_prompt_they_start_with() -> None:
    clock = Clock(engine(enable_prefix_caching=True))
    prompt = Prompt(array("H", range(9)))
    for _ in range(3):
        clock.engine.add(Sequence(prompt, 2), 0.0)

    clock.step()
    assert clock.engine.statistics().used_blocks == 2 + 3


def test_a_cached_beginning_that_ends_inside_an_image_needs_the_image_again() -> None:
    clock = Clock(engine(enable_prefix_caching=True, encoder_cache_size=8))
    spans = (image(0, 2, b"small"), image(3, 6, b"large"))
    clock.engine.add(sequence(10, 1, images=spans), 0.0)
    clock.run()
    clock.engine.add(sequence(8, 1, seed=5, images=(image(0, 8, b"other"),)), clock.now)
    clock.run()
    clock.engine.add(sequence(10, 1, images=spans), clock.now)

    step, _ = clock.step()
    assert (step.prefill_tokens, step.encoder_tokens) == (2, 6)


def test_a_step_takes_its_base_and_what_its_work_costs() -> None:
    step = Step(0, 0, prefill_tokens=100, decode_sequences=3, encoder_tokens=20)

    assert step.seconds(StepCost(1.0, 0.01, 0.1, 0.5)) == 1.0 + 1.0 + 0.3 + 10.0
    assert step.seconds(StepCost(1.0, 0.01, 0.1, 0.5).scaled(0)) == 0.0


def test_whole_prompts_count_as_queued_until_their_first_token() -> None:
    clock = Clock(engine(max_num_batched_tokens=8))
    for length in (12, 7):
        clock.engine.add(sequence(length, 3), 0.0)

    clock.step()
    assert clock.engine.prefilling_prompt_tokens == 19
    clock.step()
    assert clock.engine.prefilling_prompt_tokens == 7


def picture_of(prompt_tokens: int) -> tuple[ImageSpan, ...]:
    """The second half of the prompt is two pictures, the same for every prompt of this length."""
    half, rest = prompt_tokens // 2, prompt_tokens - prompt_tokens // 2
    return (image(half, rest // 2, b"a%d" % rest), image(half + rest // 2, rest - rest // 2, b"b%d" % rest))


requests = st.tuples(st.integers(4, 30), st.integers(1, 9), st.integers(0, 2), st.booleans())


@given(
    st.lists(requests, min_size=1, max_size=12),
    st.booleans(),
    st.sampled_from([5, 16, 64]),
    st.integers(10, 16),
    st.lists(st.integers(0, 11), max_size=4),
)
def test_every_request_ends_in_order_and_every_block_returns(
    wanted: list[tuple[int, int, int, bool]],
    prefix_caching: bool,
    batched_tokens: int,
    blocks: int,
    aborted_after: list[int],
) -> None:
    clock = Clock(
        engine(
            num_gpu_blocks=blocks,
            enable_prefix_caching=prefix_caching,
            max_num_batched_tokens=batched_tokens,
            max_num_seqs=3,
            encoder_cache_size=16,
        )
    )
    everything = [
        sequence(length, output, seed=seed, images=picture_of(length) if has_image else ())
        for length, output, seed, has_image in wanted
        if length + output <= 4 * (blocks - 1)
    ]
    for one in everything:
        clock.engine.add(one, 0.0)
    made: dict[Sequence, int] = dict.fromkeys(everything, 0)
    ticks = 0
    while clock.engine.has_work:
        step = clock.engine.schedule(clock.now)
        assert step.scheduled
        assert sum(tokens for _, tokens in step.scheduled) <= batched_tokens
        assert len(clock.engine.running) <= 3
        if ticks in aborted_after and everything:
            clock.engine.abort(everything[ticks % len(everything)])
        ticks, clock.now = ticks + 1, clock.now + 1
        for one, place, _ in clock.engine.finish(step, clock.now):
            assert place == made[one], "tokens come in order, none twice"
            made[one] += 1
        held = {block for one in clock.engine.running for table in one.tables._tables for block in table}
        assert len(held) == clock.engine.statistics().used_blocks
        assert clock.engine.statistics().held_encoder_tokens <= 16
    finished = [one for one in everything if not one.aborted]
    assert all(made[one] == one.output_tokens for one in finished)
    assert [one.scheduled_at for one in finished] == sorted(one.scheduled_at for one in finished)
    assert clock.engine.statistics().used_blocks == 0
    assert clock.engine.statistics().held_encoder_tokens == 0
    assert clock.engine.totals.finished["length"] == len(finished)
