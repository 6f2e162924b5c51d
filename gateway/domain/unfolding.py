"""Answers do not take at once all that is reserved for them: they grow into it token by token, those that began earlier
end earlier, and what these give back serves the others' growth.

vLLM gives every running answer one token a step (vllm/v1/core/sched/scheduler.py), so the steps that each has left tell
who still runs when another ends; what all of them hold at once is most at one of these ends, or now. With speculative
decoding that is not so, and nobody may ask here. The same sum is in "Past-Future Scheduler for LLM Serving under SLA
Guarantees" (Gong et al., ASPLOS 2025). Pure.
"""

from collections.abc import Iterable
from typing import NamedTuple

_MOST_ENDS = 32
_MOST_LOOKS = 8_192
"""At one answer at one end; so a look takes some milliseconds at most."""


class Unfolding(NamedTuple):
    """The answers to one request, which holds `held_blocks`: each takes `left_tokens` more, and then they end and give
    `whole_blocks` back.

    `copies` blocks come with each further `block_tokens`; `spare_tokens` are free in the last of the whole. Without
    `left_tokens` nobody knows when they end, and all is theirs from now on. `may_outgrow`: the whole is likely, not
    the most that they can take.
    """

    held_blocks: int
    whole_blocks: int
    left_tokens: int = 0
    block_tokens: int = 16
    copies: int = 1
    spare_tokens: int = 0
    may_outgrow: bool = True

    def blocks_after(self, tokens: int) -> int:
        """Held once each has `tokens` more, which is no more than are left."""
        if not self.left_tokens:
            return self.whole_blocks
        return self.whole_blocks - self.copies * ((self.left_tokens - tokens + self.spare_tokens) // self.block_tokens)


class BlocksAhead:
    """What running answers hold now and at each of their ends: `levels`, as (tokens from now, from when on, blocks).

    Of many ends some are looked at together, as if the first of these ended with the last: never less than will be.
    """

    __slots__ = ("_lasting", "_levels", "held_blocks", "outgrowing_blocks")

    def __init__(self, answers: Iterable[Unfolding] = ()) -> None:
        running = list(answers)
        self.held_blocks = sum(each.held_blocks for each in running)
        self.outgrowing_blocks = sum(each.held_blocks for each in running if each.may_outgrow)
        ending = sorted((each for each in running if each.left_tokens), key=_left_tokens)
        self._lasting = sum(each.whole_blocks for each in running if not each.left_tokens)
        self._levels = [(0, 0, self._lasting + sum(each.blocks_after(0) for each in ending))]
        ends = min(_MOST_ENDS, -(-_MOST_LOOKS // max(1, len(ending))))
        stride = -(-len(ending) // ends) or 1
        since = 0
        for first in range(0, len(ending), stride):
            together, later = ending[first : first + stride], ending[first + stride :]
            until = together[-1].left_tokens
            blocks = sum(each.whole_blocks for each in together) + sum(each.blocks_after(until) for each in later)
            self._levels.append((until, since, self._lasting + blocks))
            since = until

    def most_blocks(self, newcomer: Unfolding | None = None) -> int:
        """At once, at any time from now on, with one that begins now."""
        if newcomer is None:
            return max(blocks for _, _, blocks in self._levels)
        beside = max(blocks + _beside(newcomer, until, since) for until, since, blocks in self._levels)
        return max(beside, self._lasting + newcomer.whole_blocks)


def _left_tokens(answers: Unfolding) -> int:
    return answers.left_tokens


def _beside(newcomer: Unfolding, until: int, since: int) -> int:
    """The most that it holds between these."""
    left = newcomer.left_tokens
    if left and left <= since:
        return 0
    return newcomer.blocks_after(min(until, left))
