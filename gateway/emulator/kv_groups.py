"""The block tables of one sequence: one for each group of layers, as models with sliding windows have several. Pure.

A group of full attention keeps every token to the end. One with a window lets go of blocks that lie wholly before the
window of the next token, at the beginning of a step; so while a prompt is computed it holds a window and a chunk.
Source: `v1/core/single_type_kv_cache_manager.py`, `v1/core/kv_cache_coordinator.py` of 0.32.
"""

from collections.abc import Sequence
from typing import NamedTuple

from gateway.emulator.config import EmulatorConfig
from gateway.emulator.kv import BlockHash, BlockPool


class Group(NamedTuple):
    """`window` in tokens, None for full attention; `cap_blocks` is the most that a sequence waits for at first."""

    block: int
    window: int | None = None
    cap_blocks: int | None = None

    def gone(self, computed: int) -> int:
        """Blocks at the beginning that no token after the first `computed` looks at."""
        return 0 if self.window is None else max(0, computed - self.window + 1) // self.block

    def to_begin(self, tokens: int) -> int:
        whole = -(-tokens // self.block)
        return whole if self.cap_blocks is None else min(whole, self.cap_blocks)

    def replays(self, place: int, prompt_tokens: int) -> bool:
        """Whether the block of this place is looked up when the same prompt comes again, whose last token is computed
        anew. Others of a window are not kept (`prefix_cache_retention_interval` 0, the default).
        """
        if self.window is None:
            return True
        end = (prompt_tokens - 1) // self.block
        return end - -(-(self.window - 1) // self.block) <= place < end


def groups_of(config: EmulatorConfig) -> tuple[Group, ...]:
    """One of full attention, and those with a window. One step is in flight at a time, and a window may begin anywhere
    in a block.
    """
    full = Group(config.block_size)
    if config.sliding_window is None:
        return (full,)
    most_tokens = min(config.sliding_window - 1 + config.max_num_batched_tokens, config.max_model_len)
    cap_blocks = -(-most_tokens // config.block_size) + 1
    return (full, *[Group(config.block_size, config.sliding_window, cap_blocks)] * config.sliding_window_groups)


def blocks_of_longest(config: EmulatorConfig) -> int:
    """What a request of the whole context is taken to need when the server starts."""
    whole = -(-config.max_model_len // config.block_size)
    return sum(whole if group.cap_blocks is None else group.cap_blocks for group in groups_of(config))


class Prefix(NamedTuple):
    """A beginning of `length` blocks that is cached; of each group, the blocks that it still looks at."""

    length: int
    blocks: tuple[list[int], ...]


class BlockTables:
    """What one sequence holds of the pool; the first group is of full attention. None stands where a group let go."""

    def __init__(self, groups: Sequence[Group], pool: BlockPool) -> None:
        self._groups = groups
        self._pool = pool
        self._tables: list[list[int | None]] = [[] for _ in groups]
        self._known = 0

    def cached_prefix(self, hashes: Sequence[BlockHash]) -> Prefix:
        """The longest beginning that every group has all of that it needs. Nothing is taken yet."""
        full = self._cached(0, hashes)
        for length in range(len(full), 0, -1):
            windows = [self._window(number, hashes[:length]) for number in range(1, len(self._groups))]
            if None not in windows:
                return Prefix(length, (full[:length], *(window for window in windows if window is not None)))
        return Prefix(0, tuple([] for _ in self._groups))

    def needed_to_begin(self, tokens: int, prefix: Prefix) -> int:
        """Free blocks that a sequence of so many tokens waits for."""
        # A window holds as much of what is computed anew however long the beginning is that was cached.
        new = sum(group.to_begin(max(0, tokens - prefix.length * group.block)) for group in self._groups)
        return new + sum(map(self._pool.free_among, prefix.blocks))

    def begin(self, prefix: Prefix) -> None:
        self._known = prefix.length
        for table, blocks in zip(self._tables, prefix.blocks, strict=True):
            self._pool.share(blocks)
            table[:] = [*[None] * (prefix.length - len(blocks)), *blocks]

    def let_go(self, computed: int) -> None:
        """Give back what no later token looks at."""
        for group, table in zip(self._groups, self._tables, strict=True):
            gone = min(group.gone(computed), len(table))
            if gone and table[gone - 1] is not None:
                self._pool.release([block for block in table[:gone] if block is not None])
                table[:gone] = [None] * gone

    def missing(self, tokens: int) -> int:
        """Blocks to take before so many tokens have a place in every group."""
        return sum(
            max(0, -(-tokens // group.block) - len(table))
            for group, table in zip(self._groups, self._tables, strict=True)
        )

    def take(self, tokens: int) -> None:
        """The caller has checked that what is missing is free."""
        for group, table in zip(self._groups, self._tables, strict=True):
            table.extend(self._pool.take(max(0, -(-tokens // group.block) - len(table))))

    def remember(self, hashes: Sequence[BlockHash], full_blocks: int, prompt_tokens: int) -> int:
        """So many of these are full and can be found from now on. How many of them are new."""
        places = range(self._known, min(len(hashes), full_blocks))
        for place in places:
            for number, (group, table) in enumerate(zip(self._groups, self._tables, strict=True)):
                block = table[place]
                if block is not None and group.replays(place, prompt_tokens):
                    self._pool.remember(block, _of_group(number, hashes[place]))
        self._known += len(places)
        return len(places)

    def release(self) -> None:
        for table in self._tables:
            self._pool.release([block for block in table if block is not None])
            table.clear()
        self._known = 0

    def _cached(self, number: int, hashes: Sequence[BlockHash]) -> list[int]:
        return self._pool.cached_prefix(_of_group(number, each) for each in hashes)

    def _window(self, number: int, hashes: Sequence[BlockHash]) -> list[int] | None:
        """Of this group, what is looked at behind these blocks; None where not all of it is cached."""
        group = self._groups[number]
        needed = hashes[group.gone(len(hashes) * group.block) :]
        found = self._cached(number, needed)
        return found if len(found) == len(needed) else None


def _of_group(number: int, block_hash: BlockHash) -> BlockHash:
    """Groups hold different things of the same tokens."""
    return hash((number, block_hash)) if number else block_hash
