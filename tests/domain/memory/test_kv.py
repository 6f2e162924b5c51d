"""The KV pool: printed tokens and blocks from printed GiB, to the block."""

import pytest

from gateway.domain.memory.kv import kv_layout
from gateway.domain.memory.plan import Flags, Sliding, TextSpec, Version
from tests.support.memory import GEMMA_4B, LLAMA_8B, QWEN3_8B, QWEN_3B, QWEN_7B, QWEN_32B, spec

V19, V23, V32 = Version(0, 19), Version(0, 23), Version(0, 32)


def layout(name, version=V32, *, is_v0=False, **flags):
    return kv_layout(spec(name).text, Flags(max_num_batched_tokens=8192, **flags), version, is_v0=is_v0)


@pytest.mark.parametrize(
    ("name", "flags", "bytes_per_token"),
    [
        (QWEN_3B, {}, 36_864),
        (QWEN_7B, {}, 57_344),
        (QWEN_32B, {}, 262_144),
        (QWEN3_8B, {}, 147_456),
        (QWEN_7B, {"kv_cache_dtype": "fp8"}, 28_672),
        (QWEN_7B, {"kv_cache_dtype": "bfloat16", "dtype": "float32"}, 57_344),
        (LLAMA_8B, {"dtype": "float32"}, 262_144),
        (QWEN_32B, {"tensor_parallel_size": 2}, 131_072),
        (QWEN_3B, {"tensor_parallel_size": 4}, 18_432),  # two KV heads: a rank keeps at least one
        ("Kimi-K2", {"tensor_parallel_size": 8}, 70_272),  # latent: 61 layers x 576 x 2, whole on every rank
    ],
)
def test_bytes_of_a_token_on_one_rank(name, flags, bytes_per_token):
    found = layout(name, **flags)
    assert (found.bytes_per_token, found.groups) == (bytes_per_token, 1)


@pytest.mark.parametrize(
    ("name", "pool_gib", "tokens"),
    [
        (QWEN_7B, 1.81, 33_888),  # printed: 33,824, of a pool printed to two decimals
        (QWEN_3B, 9.26, 269_712),  # 269,568
        (LLAMA_8B, 58.11, 476_032),  # 476,000
    ],
)
def test_tokens_are_whole_blocks(name, pool_gib, tokens):
    found = layout(name)
    assert found.tokens_in(found.blocks_in(pool_gib), 8192) == tokens
    assert tokens % 16 == 0


def test_a_pool_below_nothing_holds_nothing():
    assert layout(QWEN_7B).blocks_in(-14.28) == 0


def test_gemma_has_a_group_of_full_layers_and_six_of_local_ones():
    found = layout(GEMMA_4B, V19)
    assert (found.groups, found.local_groups) == (7, 6)
    assert found.bytes_per_block == 5 * 2 * 4 * 256 * 2 * 16  # as many layers as there are full ones
    assert found.blocks_in(62.51) == pytest.approx(204_817, rel=0.0002)  # printed on H100


def test_older_versions_print_the_blocks_of_one_group_and_newer_ones_what_requests_hold():
    old, new = layout(GEMMA_4B, V19), layout(GEMMA_4B, V23)
    blocks = new.blocks_in(162.84)
    assert old.tokens_in(blocks, 8192) == blocks // 7 * 16
    assert new.tokens_in(blocks, 8192) == pytest.approx(1_217_591, rel=0.0002)  # printed on MI300X
    assert blocks / new.blocks_of(8192) == pytest.approx(148.63, abs=0.02)


def test_a_window_saves_what_lies_behind_it_and_the_batch_in_flight():
    text = spec(GEMMA_4B).text
    short_batch = kv_layout(text, Flags(max_num_batched_tokens=2048), V23)
    assert short_batch.blocks_of(32_768) == 2048 + 6 * (-(-(1023 + 2048) // 16) + 1)
    assert short_batch.blocks_of(512) == 32 + 6 * (32 + 1)


def test_with_asynchronous_scheduling_two_batches_are_in_flight():
    text = spec(GEMMA_4B).text
    assert kv_layout(text, Flags(max_num_batched_tokens=2048), V23).in_flight_tokens == 2048
    assert kv_layout(text, Flags(max_num_batched_tokens=2048), V32).in_flight_tokens == 4096


def test_chunks_begin_where_blocks_do():
    found = layout("Llama-4-Scout-17B-16E-Instruct", V23)
    assert (found.groups, found.local_groups) == (4, 3)
    assert found.blocks_of(131_072) == 8192 + 3 * (8192 + 8192) // 16


@pytest.mark.parametrize("how", [{"is_v0": True}, {"disable_hybrid_kv_cache_manager": True}])
def test_v0_and_a_manager_that_is_switched_off_treat_every_layer_as_full(how):
    found = layout(GEMMA_4B, **how)
    assert (found.groups, found.bytes_per_block) == (1, 34 * 2 * 4 * 256 * 2 * 16)
    assert found.blocks_of(32_768) == 2048


def test_kinds_that_are_about_as_many_are_padded_to_the_commoner():
    text = TextSpec(25, 64, 4, 4, 16, 128, 100, sliding=Sliding(128, 12))
    found = kv_layout(text, Flags(max_num_batched_tokens=64), V32)
    assert (found.groups, found.bytes_per_block) == (2, 13 * 2 * 4 * 16 * 2 * 16)


def test_a_window_that_all_layers_share_makes_no_groups():
    text = TextSpec(4, 64, 4, 4, 16, 128, 100, sliding=Sliding(128, 4))
    assert kv_layout(text, Flags(max_num_batched_tokens=64), V32).groups == 1
