"""KV blocks of the engine: a pool with reference counts and a prefix cache. Pure.

Invariant: every block but the reserved one is either free (reference count 0) or held; free blocks keep their cached
content until they are handed out again, the longest unused first. Source: `v1/core/block_pool.py`.
"""

from array import array
from collections.abc import Iterable, Sequence

from gateway.emulator.prompt import ImageSpan, Prompt

BlockHash = int


class BlockPool:
    """Blocks 1 to num_gpu_blocks - 1; block 0 is vLLM's null block and is never handed out."""

    def __init__(self, num_gpu_blocks: int) -> None:
        self.total_blocks = num_gpu_blocks - 1
        self._free: dict[int, None] = dict.fromkeys(range(1, num_gpu_blocks))
        self._holders = array("I", bytes(4 * num_gpu_blocks))
        self._hash_of: dict[int, BlockHash] = {}
        self._block_of: dict[BlockHash, int] = {}

    @property
    def free_blocks(self) -> int:
        return len(self._free)

    @property
    def usage_ratio(self) -> float:
        return 1 - self.free_blocks / self.total_blocks

    def cached_prefix(self, hashes: Iterable[BlockHash]) -> list[int]:
        """Blocks that hold the longest cached run of these hashes. They are not taken yet."""
        blocks = []
        for block_hash in hashes:
            block = self._block_of.get(block_hash)
            if block is None:
                break
            blocks.append(block)
        return blocks

    def free_among(self, blocks: Sequence[int]) -> int:
        """How many of these blocks nobody holds; taking them lowers `free_blocks` by as much."""
        return sum(block in self._free for block in blocks)

    def share(self, blocks: Sequence[int]) -> None:
        for block in blocks:
            self._free.pop(block, None)
            self._holders[block] += 1

    def take(self, count: int) -> list[int]:
        """`count` blocks for one holder; what they had cached is forgotten. The caller has checked `free_blocks`."""
        blocks = []
        for _ in range(count):
            block = next(iter(self._free))
            del self._free[block]
            self._forget(block)
            self._holders[block] = 1
            blocks.append(block)
        return blocks

    def remember(self, block: int, block_hash: BlockHash) -> None:
        """A full block's content can be found by its hash from now on; the first block with a hash keeps it."""
        if block_hash not in self._block_of:
            self._block_of[block_hash] = block
            self._hash_of[block] = block_hash

    def release(self, blocks: Sequence[int]) -> None:
        """One holder lets go. The tail of a sequence becomes reusable before its head, which others may share."""
        for block in reversed(blocks):
            self._holders[block] -= 1
            if not self._holders[block]:
                self._free[block] = None

    def _forget(self, block: int) -> None:
        block_hash = self._hash_of.pop(block, None)
        if block_hash is not None:
            del self._block_of[block_hash]


def prompt_hashes(prompt: Prompt, block_size: int) -> list[BlockHash]:
    """Chained hashes of the prompt's full blocks. An image's identity enters every block that it overlaps, the salt the
    first, and so all behind it.
    """
    hashes: list[BlockHash] = []
    parent: BlockHash = 0 if prompt.salt is None else hash(prompt.salt)
    for start in range(0, len(prompt.tokens) - block_size + 1, block_size):
        content = prompt.tokens[start : start + block_size].tobytes()
        parent = hash((parent, content, *_identities_within(prompt.images, start, start + block_size)))
        hashes.append(parent)
    return hashes


def _identities_within(images: Sequence[ImageSpan], start: int, end: int) -> Iterable[tuple[bytes, int]]:
    return ((image.identity, image.start - start) for image in images if image.start < end and image.end > start)
