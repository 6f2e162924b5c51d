"""The constants that no source states: measured on start-up logs of vLLM, each with what it was measured on.

They were set on half of the cases of tests/data/memory_cases.json (those whose id has an even CRC-32) and are reported
on the other half; tests/domain/memory/test_calibration.py says how each follows. Everything else in this package is
arithmetic over what vLLM's sources do.
"""

from typing import NamedTuple

from gateway.domain.memory.plan import Span, Version

SORT_FREE_SINCE = Version(0, 17)
COPIED_BYTES, SORTED_BYTES = 13.5, 39.0
"""Of a logit in the sampler: copies beside its own bytes, and all of it before that version."""
_CONCATENATES = (Version(0, 11), Version(0, 12))
_GRAPHS_COUNTED_SINCE = Version(0, 21)
_NCCL_BUFFERS_SINCE = Version(0, 15)
_CAPTURES_BY_SEQUENCES_SINCE = Version(0, 10)
_SMALLER_GRAPHS_SINCE = Version(0, 24)
"""0.007 GiB a layer were printed by a version later than those that were measured."""
_LARGEST_CAPTURED = 512
_LARGE_CARD_GIB = 70


def _captured_sizes(largest: int) -> int:
    """1, 2, 4, then every 8th up to 256, then every 16th up to 512."""
    sizes = (1, 2, 4, *range(8, 257, 8), *range(272, _LARGEST_CAPTURED + 1, 16))
    return sum(size <= largest for size in sizes)


class Calibration(NamedTuple):
    """What holds for one version."""

    version: Version

    def tower(self, peak: float) -> Span:
        """`peak` by formula, and 0.1 GiB beside it."""
        expected = peak + 0.1 if peak else 0.0
        return Span(0.92 * expected, expected, 1.08 * expected)

    @property
    def concatenates_queries(self) -> bool:
        """The towers of Qwen rotate a copy of queries and keys in 32 bits: vLLM pull requests 24511 to 28769."""
        return _CONCATENATES[0] <= self.version < _CONCATENATES[1]

    def logit_bytes(self, number_bytes: int) -> Span:
        """Of each logit while the sampler is profiled: its own, and 13.5 of copies in 32 bits. Up to 0.16 a sort of
        all of them made it 39 (published for 0.15 and 0.16; a start of 0.10.2 printed as much). From about 0.30 the
        profile leaves out top-k and top-p, of which there is no log yet.
        """
        if self.version < SORT_FREE_SINCE:
            return Span(8.0, SORTED_BYTES, 41.0)
        expected = COPIED_BYTES + number_bytes
        return Span((0.9 if self.version < Version(0, 30) else 0.5) * expected, expected, 1.06 * expected)

    @property
    def keeps_workspace(self) -> bool:
        """Experts share buffers that stay: a published report of 0.19 has 0.4 to 0.75 GiB more for such models."""
        return self.version >= SORT_FREE_SINCE

    def graphs(self, layers: int, ranks: int, sequences: int) -> Span:
        """CUDA graphs, which hardly depend on the width of a layer. Fewer sequences have fewer sizes captured: 128 of
        them took 0.0122 GiB a layer, of 0.018 by this 0.0124. Of still fewer no log is known, so the upper limit stays
        that of all sizes.
        """
        low, expected, high = (0.012, 0.018, 0.027) if ranks == 1 else (0.024, 0.033, 0.063)
        if ranks == 1 and self.version >= _SMALLER_GRAPHS_SINCE:
            low = 0.007
        largest = 2 * sequences if self._captures_by_sequences else _LARGEST_CAPTURED
        share = _captured_sizes(largest) / _captured_sizes(_LARGEST_CAPTURED)
        return Span(share * low * layers, share * expected * layers, high * layers)

    @property
    def _captures_by_sequences(self) -> bool:
        """Up to twice `--max-num-seqs` tokens; before, always up to 512."""
        return self.version >= _CAPTURES_BY_SEQUENCES_SINCE

    def non_torch(self, total_gib: float, ranks: int) -> Span:
        """Of CUDA itself and of NCCL. More for larger cards, which have more to keep state for."""
        if ranks > 1:
            return Span(0.3, 2.1, 2.4) if self.version >= _NCCL_BUFFERS_SINCE else Span(0.1, 0.45, 1.0)
        return Span(0.2, 0.25, 0.4) if total_gib >= _LARGE_CARD_GIB else Span(0.03, 0.12, 0.3)

    @property
    def graphs_in_budget(self) -> bool:
        """The graphs are estimated and taken off the KV pool."""
        return self.version >= _GRAPHS_COUNTED_SINCE
