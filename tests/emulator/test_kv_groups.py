"""What each group of layers holds of a sequence: all of it, or a window and what is being computed."""

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.emulator.config import EmulatorConfig
from gateway.emulator.engine import Engine, Sequence
from gateway.emulator.kv_groups import Group, blocks_of_longest, groups_of
from gateway.emulator.prompt import Prompt


def sequence(prompt_tokens: int, output_tokens: int = 1, *, seed: int = 0) -> Sequence:
    return Sequence(Prompt(array("H", [seed] * prompt_tokens), ()), output_tokens)


def engine(**changes: object) -> Engine:
    values: dict[str, object] = {"block_size": 4, "num_gpu_blocks": 1001, "max_num_batched_tokens": 16}
    windows: dict[str, object] = {"sliding_window": 9, "sliding_window_groups": 2, "enable_prefix_caching": False}
    return Engine(EmulatorConfig(**{**values, **windows, **changes}))


def used_by_step(one: Engine, *sequences: Sequence) -> list[int]:
    """Blocks in use in each step, until all are done."""
    for each in sequences:
        one.add(each, 0.0)
    used = []
    while one.has_work:
        step = one.schedule(0.0)
        assert step.scheduled, "the engine is stuck"
        used.append(one.statistics().used_blocks)
        one.finish(step, 0.0)
    return used


class TestGroups:
    def test_without_windows_there_is_one(self) -> None:
        assert groups_of(EmulatorConfig(block_size=16)) == (Group(16),)

    def test_each_window_is_a_group_that_waits_for_a_window_and_a_step(self) -> None:
        config = EmulatorConfig(sliding_window=1024, sliding_window_groups=6)
        assert groups_of(config) == (Group(16), *[Group(16, 1024, (1023 + 2048) // 16 + 1 + 1)] * 6)
        assert blocks_of_longest(config) == 2048 + 6 * 193

    def test_a_window_is_no_longer_than_the_context(self) -> None:
        config = EmulatorConfig(sliding_window=1024, sliding_window_groups=1, max_model_len=512)
        assert blocks_of_longest(config) == 32 + 33

    @pytest.mark.parametrize(("computed", "gone"), [(0, 0), (11, 0), (12, 1), (15, 1), (16, 2), (100, 23)])
    def test_blocks_wholly_before_the_window_are_gone(self, computed: int, gone: int) -> None:
        assert Group(4, 9, 8).gone(computed) == gone


class TestSequence:
    def test_chunks_of_a_long_prompt_and_then_tokens_of_the_answer(self) -> None:
        """Blocks of 4, steps of 16, a window of 9: 16 tokens, 32, 40, then one at a time."""
        full = [4, 8, 10, 11, 11, 11]
        windows = [4, 8 - 2, 10 - 6, 11 - 8, 11 - 8, 11 - 8]
        assert used_by_step(engine(), sequence(40, 4)) == [
            own + 2 * window for own, window in zip(full, windows, strict=True)
        ]

    def test_all_that_was_held_comes_back(self) -> None:
        one = engine()
        used_by_step(one, sequence(100, 20), sequence(30, 40, seed=1))
        assert one.statistics().used_blocks == 0

    def test_it_begins_once_what_it_waits_for_is_free(self) -> None:
        """40 tokens: 10 blocks of the group that keeps all, and (8 + 16) / 4 + 1 of each with a window."""
        needed = 10 + 2 * 7
        enough, short = engine(num_gpu_blocks=needed + 1), engine(num_gpu_blocks=needed)
        for one in (enough, short):
            one.add(sequence(40), 0.0)
        assert enough.schedule(0.0).scheduled
        assert not short.schedule(0.0).scheduled

    def test_one_that_is_preempted_begins_anew(self) -> None:
        one = engine(num_gpu_blocks=24)
        first, second = sequence(12, 40), sequence(12, 40, seed=1)
        used_by_step(one, first, second)
        assert one.totals.preemptions > 0
        assert (first.generated, second.generated) == (40, 40)

    def test_an_abort_gives_all_back(self) -> None:
        one, each = engine(), sequence(40, 9)
        one.add(each, 0.0)
        step = one.schedule(0.0)
        one.abort(each)
        one.finish(step, 0.0)
        assert one.statistics().used_blocks == 0


class TestPrefix:
    def test_the_same_prompt_finds_its_windows_again(self) -> None:
        one = engine(enable_prefix_caching=True)
        used_by_step(one, sequence(40))
        again = sequence(40)
        used_by_step(one, again)
        assert again.cached_tokens == 36

    def test_a_longer_one_finds_nothing_where_its_windows_were_not_kept(self) -> None:
        """Only what is in sight of the last token of a prompt stays (vLLM's default)."""
        one = engine(enable_prefix_caching=True)
        used_by_step(one, sequence(100))
        shorter = sequence(60)
        used_by_step(one, shorter)
        assert shorter.cached_tokens == 0

    def test_what_two_hold_is_counted_once_and_freed_by_the_last(self) -> None:
        one = engine(enable_prefix_caching=True)
        first, second = sequence(40, 30), sequence(40, 5)
        one.add(first, 0.0)
        for _ in range(4):
            one.finish(one.schedule(0.0), 0.0)
        alone = one.statistics().used_blocks
        one.add(second, 0.0)
        one.schedule(0.0)
        assert one.statistics().used_blocks < 2 * alone
        while one.has_work:
            one.finish(one.schedule(0.0), 0.0)
        assert one.statistics().used_blocks == 0


@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(1, 20), st.integers(0, 2)), min_size=1, max_size=6),
    st.integers(2, 30),
    st.integers(1, 3),
    st.booleans(),
)
def test_blocks_in_use_are_those_that_the_tables_hold(
    wanted: list[tuple[int, int, int]], window: int, groups: int, is_cached: bool
) -> None:
    one = engine(
        sliding_window=window, sliding_window_groups=groups, enable_prefix_caching=is_cached, num_gpu_blocks=90
    )
    for prompt_tokens, output_tokens, seed in wanted:
        one.add(sequence(prompt_tokens, output_tokens, seed=seed), 0.0)
    while one.has_work:
        step = one.schedule(0.0)
        assert step.scheduled
        tables = [table for each in one.running for table in each.tables._tables]
        assert one.statistics().used_blocks == len({block for table in tables for block in table if block is not None})
        one.finish(step, 0.0)
    assert one.statistics().used_blocks == 0
