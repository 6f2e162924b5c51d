"""How the answers to a request take KV blocks: what is reserved for them one after the other, and more beyond that."""

from typing import NamedTuple

from gateway.domain.quantities import ceil_div
from gateway.domain.unfolding import Unfolding

GROWTH_STEP_TOKENS = 64
"""An answer that outgrows its reservation is charged in steps of this many tokens."""


class OutputGrowth(NamedTuple):
    """How the answers to a request grow into `reserved_tokens` (over all `answers`), and blocks with them beyond that,
    in the `groups` that hold more than their window.

    `most_tokens` are all that each can have (None: nothing bounds it). `spare_tokens` are free in the last block of a
    single answer at its full length. `unfolding_groups` take what is reserved for the answers with their tokens (None:
    all `groups` do, and no other); others are taken to hold it from the start, as a full window does.
    """

    reserved_tokens: int = 0
    block_tokens: int = 16
    groups: int = 1
    answers: int = 1
    most_tokens: int | None = None
    spare_tokens: int = 0
    unfolding_groups: int | None = None

    def from_now(
        self, blocks: int, generated_tokens: int = 0, likely_tokens: int = 0, grown_blocks: int = 0
    ) -> Unfolding:
        """What is to come of answers that hold `blocks`, `grown_blocks` of them beyond the reservation, and have
        `generated_tokens` (over all of them).

        `likely_tokens`: what one that is so long probably becomes; that may be more than is reserved.
        """
        reserved = self.reserved_tokens // self.answers
        whole = max(reserved, likely_tokens if self.most_tokens is None else min(likely_tokens, self.most_tokens))
        more_blocks = ceil_div(max(0, whole - reserved - self.spare_tokens), self.block_tokens)
        unfolding = self.groups if self.unfolding_groups is None else self.unfolding_groups
        return Unfolding(
            held_blocks=blocks,
            whole_blocks=max(blocks, blocks - grown_blocks + self.groups * self.answers * more_blocks),
            left_tokens=max(0, whole - generated_tokens // self.answers),
            block_tokens=self.block_tokens,
            copies=unfolding * self.answers,
            spare_tokens=self.spare_tokens + more_blocks * self.block_tokens - (whole - reserved),
            may_outgrow=self.most_tokens is None or whole < self.most_tokens,
        )

    @property
    def may_outgrow(self) -> bool:
        return self.most_tokens is None or self.reserved_tokens < self.most_tokens * self.answers

    def blocks(self, generated_tokens: int) -> int:
        """Blocks to hold beyond those reserved, once `generated_tokens` have been generated."""
        excess = generated_tokens - self.reserved_tokens
        if excess <= 0:
            return 0
        charged = ceil_div(excess, GROWTH_STEP_TOKENS) * GROWTH_STEP_TOKENS
        return self.groups * ceil_div(charged, self.block_tokens)
