import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.kv_layers import read_layers
from gateway.domain.kv_layout import Kind, KvCharge, KvLayout, Layer, charges_of, group_layers, pool_tokens_of

CASES = json.loads((Path(__file__).parents[1] / "data" / "kv_pools.json").read_text())["cases"]
GIB = 2**30


def layers(full: int, local: int, kind: Kind = Kind.SLIDING, span: int = 1024, token_bytes: int = 4096):
    return [Layer(Kind.FULL, 0, token_bytes)] * full + [Layer(kind, span, token_bytes)] * local


def shapes(layout: KvLayout) -> list[tuple[str, int, int]]:
    return [(group.kind.name.lower(), group.layers, group.block_factor) for group in layout.groups]


GEMMA = group_layers(layers(5, 29))
"""Gemma 3 4B: 5 layers of full attention and 29 with a window of 1,024 tokens."""


class TestGroups:
    def test_layers_that_are_alike_are_one_group(self):
        layout = group_layers(layers(36, 0))
        assert (shapes(layout), layout.token_bytes) == ([("full", 36, 1)], 36 * 4096)

    def test_all_with_one_window_are_one_group_too(self):
        assert shapes(group_layers(layers(0, 32))) == [("sliding", 32, 1)]

    def test_full_attention_of_several_widths_is_one_group(self):
        layout = group_layers([Layer(Kind.FULL, 0, 4096), Layer(Kind.FULL, 0, 1024)])
        assert (shapes(layout), layout.token_bytes) == ([("full", 2, 1)], 5120)

    def test_the_fewer_layers_of_one_kind_give_the_size_and_the_last_group_is_padded(self):
        assert shapes(GEMMA) == [("full", 5, 1), *[("sliding", 5, 1)] * 5, ("sliding", 4, 1)]
        assert (GEMMA.token_bytes, GEMMA.all_token_bytes) == (5 * 4096, 7 * 5 * 4096)

    def test_kinds_of_almost_as_many_layers_make_two_groups_of_the_greater_size(self):
        """GPT-OSS with a drafter: 12 with a window, 13 without."""
        layout = group_layers(layers(13, 12))
        assert (shapes(layout), layout.token_bytes) == ([("full", 13, 1), ("sliding", 12, 1)], 13 * 4096)

    def test_windows_of_two_lengths_are_two_kinds(self):
        mixed = [*layers(2, 2), *[Layer(Kind.SLIDING, 512, 4096)] * 2]
        assert shapes(group_layers(mixed)) == [("full", 2, 1), ("sliding", 2, 1), ("sliding", 2, 1)]

    def test_smaller_tokens_are_put_into_longer_blocks_where_that_comes_out_even(self):
        wide = [Layer(Kind.FULL, 0, 8192)] * 2
        assert shapes(group_layers([*wide, *[Layer(Kind.SLIDING, 512, 2048)] * 2]))[1] == ("sliding", 2, 4)
        assert shapes(group_layers([*wide, *[Layer(Kind.SLIDING, 512, 3072)] * 2]))[1] == ("sliding", 2, 1)

    def test_states_have_no_bytes_a_token(self):
        layout = group_layers([Layer(Kind.FULL, 0, 4096), *[Layer(Kind.STATE)] * 3])
        assert (shapes(layout), layout.token_bytes) == ([("full", 1, 1), *[("state", 1, 1)] * 3], 4096)


class TestLongest:
    @pytest.mark.parametrize(
        ("layout", "blocks"),
        [
            (group_layers(layers(36, 0)), 8192 // 16),
            (GEMMA, 512 + 6 * (3071 // 16 + 1 + 1)),
            (group_layers(layers(12, 36, Kind.CHUNKED, 2048)), 512 + 3 * 256),
            (group_layers(layers(10, 30, Kind.STATE, 0, 0)), 512 + 3 * 2),
        ],
    )
    def test_each_kind_keeps_what_it_looks_at_and_what_is_in_flight(self, layout, blocks):
        assert layout.longest_blocks(16, 2048, 8192) == blocks

    def test_no_window_is_longer_than_the_context(self):
        assert GEMMA.longest_blocks(16, 8192, 8192) == 512 + 6 * (512 + 1)


class TestCharges:
    def test_a_server_tells_by_its_longest_request_how_much_is_in_flight(self):
        longest = GEMMA.longest_blocks(16, 2048, 131_072)
        assert charges_of(GEMMA, 16, 131_072, longest) == (
            KvCharge(1, 16),
            KvCharge(6, 16, most_blocks=193, later_blocks=66),
        )

    def test_a_server_that_does_without_windows_says_so_too(self):
        assert charges_of(GEMMA, 16, 8_200, 513) == charges_of(None, 16, 8_200, 513) == (KvCharge(1, 16),)

    @pytest.mark.parametrize("told", [None, 777, 10**6])
    def test_windows_are_unknown_where_the_server_does_not_tell_or_does_not_agree(self, told):
        assert charges_of(GEMMA, 16, 8192, told) == ()

    def test_nothing_is_known_without_files_of_a_server_that_has_windows(self):
        assert charges_of(None, 16, 8192, 700) == ()
        assert charges_of(None, 16, None, 512) == ()

    def test_chunks_are_full_attention_unless_the_server_tells_otherwise(self):
        llama = group_layers(layers(12, 36, Kind.CHUNKED, 8192))
        assert charges_of(llama, 16, 131_072, None) == (KvCharge(1, 16),)
        told = llama.longest_blocks(16, 8192, 131_072)
        assert charges_of(llama, 16, 131_072, told) == (KvCharge(1, 16), KvCharge(3, 16, 1024, 513))

    def test_states_need_no_telling(self):
        qwen = group_layers(layers(10, 30, Kind.STATE, 0, 0))
        assert charges_of(qwen, 16, 8192, None) == (KvCharge(1, 16), KvCharge(3, 16, 2, 2))

    def test_longer_blocks_are_fewer(self):
        layout = group_layers([Layer(Kind.FULL, 0, 8192)] * 2 + [Layer(Kind.SLIDING, 512, 4096)] * 2)
        told = layout.longest_blocks(16, 1024, 32_768)
        assert charges_of(layout, 16, 32_768, told)[1] == KvCharge(1, 32, 49, 18)

    @given(
        full=st.integers(1, 8),
        local=st.integers(1, 40),
        span=st.integers(2, 5_000),
        block=st.sampled_from([16, 32, 128]),
        in_flight=st.integers(1, 20_000),
        context=st.integers(5_001, 200_000),
    )
    def test_what_a_server_tells_is_told_back(self, full, local, span, block, in_flight, context):
        layout = group_layers(layers(full, local, span=span))
        told = layout.longest_blocks(block, in_flight, context)
        charges = charges_of(layout, block, context, told)
        assert sum(charge.groups for charge in charges) == len(layout.groups)
        cap = layout.groups[-1].most_blocks(block, in_flight, context)
        assert {charge.most_blocks for charge in charges} == {None, cap}
        assert all((charge.later_blocks or 0) <= (charge.most_blocks or 0) for charge in charges)


class TestPool:
    def test_one_group_keeps_as_many_tokens_as_its_blocks_hold(self):
        assert pool_tokens_of((KvCharge(1, 16),), 100) == 1_600

    def test_several_groups_share_the_pool(self):
        assert pool_tokens_of((KvCharge(7, 16),), 100) == 14 * 16

    def test_windows_leave_the_rest_to_the_group_that_keeps_all(self):
        windows = (KvCharge(1, 16), KvCharge(6, 16, 10, 6))
        assert pool_tokens_of(windows, 69) == 9 * 16
        assert pool_tokens_of(windows, 70) == 10 * 16
        assert pool_tokens_of(windows, 100) == 40 * 16

    def test_longer_blocks_are_counted_by_their_own_length(self):
        assert pool_tokens_of((KvCharge(1, 16), KvCharge(1, 64, 4, 2)), 5) == 4 * 16

    def test_windows_alone_hold_any_length(self):
        assert pool_tokens_of((KvCharge(1, 16, 10, 6),), 20) >= 20 * 16


def layout_of(case) -> KvLayout:
    """As that server had it: engines of the first kind kept all tokens of all layers."""
    own = read_layers(case["text_config"])
    if case["engine"] == "V0":
        own = [Layer(Kind.FULL, 0, layer.token_bytes) for layer in own]
    return group_layers([layer._replace(token_bytes=rank_bytes(case, layer)) for layer in own])


def rank_bytes(case, layer: Layer) -> int:
    halved = 2 if str(case["kv_cache_dtype"]).startswith("fp8") else 1
    kv_heads = case["text_config"]["num_key_value_heads"]
    return layer.token_bytes // min(case["tensor_parallel"], kv_heads) // halved


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_pools_of_public_start_logs(case):
    """The log rounds the bytes to a hundredth of a GiB: the blocks must be what some value in that range makes."""
    layout, block = layout_of(case), case["block_size"]
    least, most = (int((case["kv_cache_gib"] + off) * GIB) // (layout.token_bytes * block) for off in (-0.005, 0.005))
    if case["smaller_rank"]:
        least = least * 98 // 100
    if case["num_gpu_blocks"] is not None:
        assert least - 1 <= case["num_gpu_blocks"] <= most + 1
    if case["kv_cache_tokens"] is not None and len(layout.groups) == 1:
        assert least - 1 <= case["kv_cache_tokens"] // block <= most + 1
    elif case["kv_cache_tokens"] is not None:
        context, batched = case["max_model_len"], case["max_num_batched_tokens"] or case["max_model_len"]
        tokens = [layout.pool_tokens(blocks, block, batched, context) for blocks in (least - 1, most + 1)]
        assert tokens[0] <= case["kv_cache_tokens"] <= tokens[1]
        assert tokens[1] / tokens[0] < 1.0002
