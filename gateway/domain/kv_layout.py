"""Which layers of a model share KV blocks, and how many blocks a sequence needs of each group. Pure.

vLLM puts layers into groups of one size; each group has block tables of its own, and all take blocks from one pool. A
group of full attention keeps every token, one with a window no more than the window and what is being computed.
Source: vLLM 0.32 `v1/core/kv_cache_utils.py` (groups: `_get_kv_cache_groups_uniform_page_size`; pool:
`get_max_concurrency_for_kv_cache_config`), `v1/kv_cache_interface.py` (blocks: `max_admission_blocks_per_request`),
`v1/core/single_type_kv_cache_manager.py` (what is kept).

What is not followed: speculative decoding, context parallelism, attention with latents beside windows, and layouts that
pack pages of several sizes into one block.
"""

from bisect import bisect_left
from collections.abc import Sequence
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from gateway.domain.quantities import ceil_div

_STATE_BLOCKS = 2
"""Of a layer that keeps a state: the present one and the one before, so that a prefix can be taken up (`MambaSpec`)."""
_DECODE_TOKENS = 2
"""In flight of one sequence that writes its answer: with asynchronous scheduling a step is planned while one runs."""
_PADDING_RATIO = 1.5
"""Groups get the size of the largest kind of layers, not of the smallest, where the two differ by less."""


class Kind(StrEnum):
    """What a layer keeps, as `layer_types` of config.json spell it."""

    FULL = "full_attention"
    SLIDING = "sliding_attention"
    CHUNKED = "chunked_attention"
    STATE = "linear_attention"


class Layer(NamedTuple):
    """`span_tokens` is the window or the chunk that it looks at (0: all), `token_bytes` what one token takes on one
    rank; of states, which do not grow by tokens, 0.
    """

    kind: Kind
    span_tokens: int = 0
    token_bytes: int = 0


class KvGroup(NamedTuple):
    """Layers with one block table; its blocks hold `block_factor` times the tokens of the server's block size."""

    kind: Kind
    layers: int
    span_tokens: int = 0
    block_factor: int = 1

    def most_blocks(self, block_tokens: int, in_flight_tokens: int, max_model_len: int) -> int | None:
        """Of one sequence at the same time, however long it is; None where only its length is a limit.

        `in_flight_tokens` are scheduled and not yet settled. A window may begin anywhere in a block, hence one more.
        """
        block = block_tokens * self.block_factor
        if self.kind is Kind.SLIDING:
            return ceil_div(min(self.span_tokens - 1 + in_flight_tokens, max_model_len), block) + 1
        if self.kind is Kind.CHUNKED:
            return ceil_div(min(self.span_tokens + in_flight_tokens, max_model_len), block)
        return _STATE_BLOCKS if self.kind is Kind.STATE else None


class KvCharge(NamedTuple):
    """`groups` that are charged alike: by blocks of `block_tokens`, at most `most_blocks` for one sequence, and once
    its prompt is computed at most `later_blocks` (None: no limit but its length).
    """

    groups: int
    block_tokens: int
    most_blocks: int | None = None
    later_blocks: int | None = None

    def has_room(self, blocks: int, sequences: int) -> bool:
        """Whether so many sequences with `blocks` in all take more of it with more tokens."""
        return self.later_blocks is None or blocks < sequences * self.later_blocks

    def keeps_all(self, blocks: int, sequences: int) -> bool:
        """Whether so many sequences keep every token that needs `blocks` in all: no window leaves any out."""
        return self.later_blocks is None or blocks <= sequences * self.later_blocks

    def within(self, blocks: int, sequences: int, *, is_later: bool) -> int:
        """What is charged where so many sequences would need `blocks` of each group to keep every token."""
        most = self.later_blocks if is_later else self.most_blocks
        return self.groups * (blocks if most is None else min(blocks, sequences * most))


class KvLayout(NamedTuple):
    """All groups of a model. A block of the pool takes `token_bytes` for each token of the server's block size."""

    groups: tuple[KvGroup, ...]
    token_bytes: int = 0

    @property
    def all_token_bytes(self) -> int:
        """One token in all groups: each has one size, so padding counts too."""
        return len(self.groups) * self.token_bytes

    def longest_blocks(self, block_tokens: int, in_flight_tokens: int, max_model_len: int) -> int:
        """What vLLM takes one sequence of the whole context to need when it starts (`max_memory_usage_bytes`)."""
        return sum(
            most
            if (most := group.most_blocks(block_tokens, in_flight_tokens, max_model_len)) is not None
            else ceil_div(max_model_len, block_tokens * group.block_factor)
            for group in self.groups
        )

    def pool_tokens(self, blocks: int, block_tokens: int, in_flight_tokens: int, max_model_len: int) -> int:
        """The pool's size as vLLM 0.23 and later print it: how often the whole context fits, in tokens."""
        longest = self.longest_blocks(block_tokens, in_flight_tokens, max_model_len)
        return int(blocks / longest * max_model_len)


def group_layers(layers: Sequence[Layer]) -> KvLayout:
    """The groups that vLLM makes of these layers. They get one size, so the last one of a kind may be padded."""
    kinds: dict[Layer, int] = {}
    for layer in layers:
        kinds[layer] = kinds.get(layer, 0) + 1
    if len({(layer.kind, layer.span_tokens) for layer in kinds}) == 1:
        alike = next(iter(kinds))
        group = KvGroup(alike.kind, len(layers), alike.span_tokens)
        return KvLayout((group,), sum(layer.token_bytes for layer in layers))
    least, most = min(kinds.values()), max(kinds.values())
    size = most if most < least * _PADDING_RATIO else least
    page_bytes = max(layer.token_bytes for layer in kinds)
    groups = [group for layer, count in kinds.items() for group in _split(layer, count, size, page_bytes)]
    return KvLayout(tuple(groups), size * page_bytes)


def _split(layer: Layer, count: int, size: int, page_bytes: int) -> list[KvGroup]:
    """A page has the same bytes in all groups: smaller tokens are put into longer blocks where that comes out even."""
    is_even = layer.token_bytes and page_bytes % layer.token_bytes == 0
    factor = page_bytes // layer.token_bytes if is_even else 1
    number = ceil_div(count, size)
    return [KvGroup(layer.kind, len(range(place, count, number)), layer.span_tokens, factor) for place in range(number)]


@lru_cache(maxsize=256)
def charges_of(
    layout: KvLayout | None, block_tokens: int, max_model_len: int | None, longest_blocks: int | None
) -> tuple[KvCharge, ...]:
    """By what a server's sequences are charged; nothing where neither the model's files nor the server tell enough.

    `longest_blocks` is what the server says that one sequence of its whole context needs. It tells whether windows are
    used at all (not with `--disable-hybrid-kv-cache-manager`), and how many tokens may be in flight: where it is not
    told, or does not agree with the layout, nothing is known of groups with a window. Chunks are taken for full
    attention then, which they are unless vLLM was told otherwise.
    """
    one_full_group = (KvCharge(1, block_tokens),)
    if longest_blocks is not None and max_model_len is not None:
        if longest_blocks == ceil_div(max_model_len, block_tokens):
            return one_full_group
        agreed = None if layout is None else _agreed(layout, block_tokens, max_model_len, longest_blocks)
        if agreed is not None:
            return agreed
    kinds = set() if layout is None else {group.kind for group in layout.groups}
    if layout is None or Kind.SLIDING in kinds:
        return ()
    return _charges(layout, block_tokens, 0, 0) if Kind.STATE in kinds else one_full_group


def _agreed(
    layout: KvLayout, block_tokens: int, max_model_len: int, longest_blocks: int
) -> tuple[KvCharge, ...] | None:
    """With as many tokens in flight that one sequence of the whole context needs just so many blocks; None where there
    is no such number.
    """

    def blocks(in_flight_tokens: int) -> int:
        return layout.longest_blocks(block_tokens, in_flight_tokens, max_model_len)

    tokens = bisect_left(range(max_model_len + 1), longest_blocks, lo=1, key=blocks)
    return _charges(layout, block_tokens, tokens, max_model_len) if blocks(tokens) == longest_blocks else None


def _charges(layout: KvLayout, block_tokens: int, in_flight_tokens: int, max_model_len: int) -> tuple[KvCharge, ...]:
    """Groups that are charged alike, together."""
    numbers: dict[KvCharge, int] = {}
    for group in layout.groups:
        alike = KvCharge(
            0,
            block_tokens * group.block_factor,
            group.most_blocks(block_tokens, in_flight_tokens, max_model_len),
            group.most_blocks(block_tokens, min(in_flight_tokens, _DECODE_TOKENS), max_model_len),
        )
        numbers[alike] = numbers.get(alike, 0) + 1
    return tuple(alike._replace(groups=number) for alike, number in numbers.items())


def pool_tokens_of(charges: tuple[KvCharge, ...], blocks: int) -> int:
    """Tokens of the longest sequence that `blocks` can hold while its prompt is computed, to whole blocks."""
    if len(charges) == 1 and charges[0].most_blocks is None:
        return blocks // charges[0].groups * charges[0].block_tokens
    return _pool_tokens(charges, blocks)


@lru_cache(maxsize=64)
def _pool_tokens(charges: tuple[KvCharge, ...], blocks: int) -> int:
    block_tokens = min(charge.block_tokens for charge in charges)
    # Without a group that keeps every token the pool holds any length: then this is a bound that no context reaches.
    most = blocks * max(charge.block_tokens for charge in charges)

    def needed(tokens: int) -> int:
        return sum(charge.within(ceil_div(tokens, charge.block_tokens), 1, is_later=False) for charge in charges)

    sizes = range(0, most + 1, block_tokens)
    return sizes[bisect_left(sizes, blocks + 1, key=needed) - 1]
