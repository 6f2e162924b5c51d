"""Blocks that the gateway charges for a request, beside those that the emulator's engine, which shares no code with it,
waits for and holds.
"""

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.cost import EngineLimits, kv_blocks_needed
from gateway.domain.kv_layout import Kind, Layer, charges_of, group_layers
from gateway.domain.quantities import Bounds
from gateway.emulator.config import EmulatorConfig
from gateway.emulator.engine import Engine, Sequence
from gateway.emulator.kv_groups import blocks_of_longest
from gateway.emulator.prompt import Prompt
from tests.support.costs import cost_of

WINDOW_GROUPS = 5


def emulated(window: int | None, batched: int, block: int, blocks: int = 20_000) -> EmulatorConfig:
    return EmulatorConfig(
        sliding_window=window,
        sliding_window_groups=WINDOW_GROUPS,
        max_num_batched_tokens=batched,
        block_size=block,
        num_gpu_blocks=blocks,
        enable_prefix_caching=False,
    )


def limits_of(config: EmulatorConfig) -> EngineLimits:
    """As the gateway knows that server: the layers by the model's files, the rest by what the server tells."""
    windows = [Layer(Kind.SLIDING, config.sliding_window, 4)] * (2 * WINDOW_GROUPS) if config.sliding_window else []
    layout = group_layers([Layer(Kind.FULL, 0, 4)] * 2 + windows)
    charges = charges_of(layout, config.block_size, config.max_model_len, blocks_of_longest(config))
    assert charges, "the layout agrees with the server"
    return EngineLimits(kv_block_tokens=config.block_size, kv_charges=charges)


def held_by_phase(config: EmulatorConfig, prompt_tokens: int, output_tokens: int) -> tuple[int, int]:
    """Most blocks in use while the prompt is computed, and from its first token on."""
    engine = Engine(config)
    one = Sequence(Prompt(array("H", [0] * prompt_tokens), ()), output_tokens)
    engine.add(one, 0.0)
    most = [0, 0]
    while engine.has_work:
        step = engine.schedule(0.0)
        place = int(one.generated > 0)
        most[place] = max(most[place], engine.statistics().used_blocks)
        engine.finish(step, 0.0)
    return most[0], most[1]


def held_step_by_step(config: EmulatorConfig, prompt_tokens: int, output_tokens: int) -> list[tuple[int, int]]:
    """Tokens generated before each step, and the blocks in use once it is scheduled."""
    engine, steps = Engine(config), []
    one = Sequence(Prompt(array("H", [0] * prompt_tokens), ()), output_tokens)
    engine.add(one, 0.0)
    while engine.has_work:
        generated, step = one.generated, engine.schedule(0.0)
        steps.append((generated, engine.statistics().used_blocks))
        engine.finish(step, 0.0)
    return steps


def begins(config: EmulatorConfig, prompt_tokens: int) -> bool:
    engine = Engine(config)
    engine.add(Sequence(Prompt(array("H", [0] * prompt_tokens), ()), 1), 0.0)
    return bool(engine.schedule(0.0).scheduled)


@pytest.mark.parametrize("window", [None, 64, 1000, 1024, 4096])
@pytest.mark.parametrize("batched", [256, 2048])
@pytest.mark.parametrize("prompt_tokens", [1, 16, 17, 900, 1024, 1025, 3000, 9000])
def test_a_prompt_begins_with_just_as_many_free_blocks_as_are_charged_for_it(window, batched, prompt_tokens):
    charged = kv_blocks_needed(prompt_tokens, 0, limits_of(emulated(window, batched, 16)))
    # The engine keeps one block for itself.
    assert begins(emulated(window, batched, 16, charged + 1), prompt_tokens)
    assert charged == 1 or not begins(emulated(window, batched, 16, charged), prompt_tokens)


@given(
    window=st.one_of(st.none(), st.integers(2, 3_000)),
    batched=st.integers(16, 4_000),
    block=st.sampled_from([16, 32, 128]),
    prompt_tokens=st.integers(1, 8_000),
    output_tokens=st.integers(1, 300),
)
def test_what_is_charged_is_held_in_each_phase(window, batched, block, prompt_tokens, output_tokens):
    """Never less than what is held. More by no more than the answer's two rounded blocks, and the block by which a
    window may lie across others, in each group.
    """
    config = emulated(window, batched, block)
    limits = limits_of(config)
    groups = sum(charge.groups for charge in limits.kv_charges)
    prefill, later = held_by_phase(config, prompt_tokens, output_tokens)
    charged = kv_blocks_needed(prompt_tokens, output_tokens, limits)
    charged_later = kv_blocks_needed(prompt_tokens, output_tokens, limits, is_later=True)
    assert prefill <= charged
    assert later <= charged_later
    if output_tokens > block:
        assert charged_later - later <= 2 * groups
    if window is None or window > prompt_tokens + output_tokens:
        assert charged - max(prefill, later) <= 2 * groups


@given(
    window=st.one_of(st.none(), st.integers(2, 600)),
    batched=st.integers(16, 1_000),
    prompt_tokens=st.integers(1, 2_000),
    output_tokens=st.integers(1, 200),
)
def test_what_is_foreseen_of_an_answer_is_never_less_than_it_holds(window, batched, prompt_tokens, output_tokens):
    config = emulated(window, batched, 16)
    text = Bounds.exact(prompt_tokens)
    cost = cost_of(text=text, output_tokens=output_tokens, limits=limits_of(config), max_tokens=output_tokens)
    before = cost.growth.from_now(cost.amounts.kv_blocks)
    later_blocks = cost.amounts.kv_blocks - cost.prefill_kv_blocks
    for generated, used in held_step_by_step(config, prompt_tokens, output_tokens):
        assert used <= before.blocks_after(generated)
        if generated:
            assert used <= cost.growth.from_now(later_blocks, generated).blocks_after(0)
            assert used <= cost.growth.from_now(later_blocks, 1).blocks_after(generated - 1)
