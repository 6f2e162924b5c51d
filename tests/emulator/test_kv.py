"""Blocks are never lost, never held twice by accident, and found again by what they hold."""

from array import array
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from gateway.emulator.kv import BlockPool, prompt_hashes
from gateway.emulator.prompt import ImageSpan, Prompt


def prompt(*tokens: int, images: tuple[ImageSpan, ...] = ()) -> Prompt:
    return Prompt(array("H", tokens), images)


def test_one_block_is_kept_back() -> None:
    pool = BlockPool(96)

    assert pool.total_blocks == 95
    pool.take(1)
    assert pool.usage_ratio == 1 - 94 / 95


def test_a_released_block_is_found_by_its_hash_until_it_is_taken_for_something_else() -> None:
    pool = BlockPool(3)
    (block,) = pool.take(1)
    pool.remember(block, 77)
    pool.release([block])

    assert pool.cached_prefix([77, 78]) == [block]
    pool.take(2)
    assert pool.cached_prefix([77]) == []


def test_a_shared_block_is_free_only_when_the_last_holder_lets_go() -> None:
    pool = BlockPool(4)
    blocks = pool.take(2)
    pool.share(blocks)

    pool.release(blocks)
    assert pool.free_blocks == 1
    assert pool.free_among(blocks) == 0
    pool.release(blocks)
    assert pool.free_blocks == 3
    assert pool.free_among(blocks) == 2


def test_the_longest_unused_block_is_reused_first_and_of_a_sequence_its_tail() -> None:
    pool = BlockPool(5)
    first = pool.take(2)
    second = pool.take(2)
    pool.release(first)
    pool.release(second)

    assert pool.take(4) == [first[1], first[0], second[1], second[0]]


def test_prompts_with_different_salts_share_no_block() -> None:
    plain = Prompt(array("H", range(9)))
    mine, yours = (prompt_hashes(replace(plain, salt=salt), 2) for salt in ("mine", "yours"))

    assert not {*mine, *yours} & {*prompt_hashes(plain, 2)}
    assert not {*mine} & {*yours}
    assert prompt_hashes(replace(plain, salt="mine"), 2) == mine


def test_equal_beginnings_have_equal_hashes_and_the_image_is_part_of_them() -> None:
    cat, dog = (ImageSpan(2, 3, identity) for identity in (b"cat", b"dog"))
    with_cat = prompt_hashes(prompt(*range(9), images=(cat,)), 2)

    assert len(with_cat) == 4
    assert prompt_hashes(prompt(*range(8), 99, images=(cat,)), 2) == with_cat
    with_dog = prompt_hashes(prompt(*range(9), images=(dog,)), 2)
    assert with_dog[0] == with_cat[0]
    assert not set(with_dog[1:]) & set(with_cat[1:])


@given(st.lists(st.tuples(st.sampled_from(["take", "share", "release"]), st.integers(1, 5)), max_size=40))
def test_every_block_is_free_or_held(moves: list[tuple[str, int]]) -> None:
    pool = BlockPool(12)
    held: list[list[int]] = []
    for move, count in moves:
        if move == "take" and count <= pool.free_blocks:
            held.append(pool.take(count))
        elif move == "share" and held:
            pool.share(held[-1])
            held.append(held[-1])
        elif move == "release" and held:
            pool.release(held.pop(count % len(held)))
        distinct = {block for blocks in held for block in blocks}
        assert len(distinct) + pool.free_blocks == pool.total_blocks
