"""The engine's encoder cache: visual embeddings by image identity, counted in tokens. Pure.

Entries nobody refers to stay until their space is needed, the longest unused first.
Source: `v1/core/encoder_cache_manager.py`.
"""

from collections import Counter, OrderedDict


class EncoderCache:
    """`capacity_tokens` embeddings; entries are held by sequences and shared between them."""

    def __init__(self, capacity_tokens: int) -> None:
        self.capacity_tokens = capacity_tokens
        self._tokens: OrderedDict[bytes, int] = OrderedDict()
        self._holders: Counter[bytes] = Counter()

    @property
    def held_tokens(self) -> int:
        return sum(self._tokens[identity] for identity in self._holders)

    def __contains__(self, identity: bytes) -> bool:
        return identity in self._tokens

    def is_held(self, identity: bytes) -> bool:
        return identity in self._holders

    def fits(self, tokens: int) -> bool:
        """Whether so much more can be held; what nobody holds makes way."""
        return self.held_tokens + tokens <= self.capacity_tokens

    def hold(self, identity: bytes, tokens: int) -> None:
        """Refer to an entry, new or cached. The caller has checked `fits` for one that nobody holds yet."""
        self._holders[identity] += 1
        self._tokens[identity] = tokens
        self._tokens.move_to_end(identity)
        self._evict()

    def release(self, identity: bytes) -> None:
        self._holders[identity] -= 1
        if not self._holders[identity]:
            del self._holders[identity]

    def _evict(self) -> None:
        excess = sum(self._tokens.values()) - self.capacity_tokens
        for identity in list(self._tokens):
            if excess <= 0:
                return
            if not self.is_held(identity):
                excess -= self._tokens.pop(identity)
