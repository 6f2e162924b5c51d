"""The constants that no source states: measured on start-up logs of vLLM, each with what it was measured on.

They were set on half of the cases of tests/data/memory_cases.json (those whose id has an even CRC-32) and are reported
on the other half; tests/domain/memory/test_calibration.py says how each follows. Everything else in this package is
arithmetic over what vLLM's sources do.
"""

from typing import NamedTuple

from gateway.domain.memory.plan import Span, Version

_SORT_FREE_SINCE = Version(0, 17)
_CONCATENATES = (Version(0, 11), Version(0, 12))
_GRAPHS_COUNTED_SINCE = Version(0, 21)
_NCCL_BUFFERS_SINCE = Version(0, 15)
_LARGE_CARD_GIB = 70


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
        if self.version < _SORT_FREE_SINCE:
            return Span(8.0, 39.0, 41.0)
        expected = 13.5 + number_bytes
        return Span((0.9 if self.version < Version(0, 30) else 0.5) * expected, expected, 1.06 * expected)

    @property
    def keeps_workspace(self) -> bool:
        """Experts share buffers that stay: a published report of 0.19 has 0.4 to 0.75 GiB more for such models."""
        return self.version >= _SORT_FREE_SINCE

    def graphs(self, layers: int, ranks: int) -> Span:
        """CUDA graphs of all sizes that are captured by default, which hardly depend on the width of a layer."""
        low, expected, high = (0.012, 0.018, 0.027) if ranks == 1 else (0.024, 0.033, 0.063)
        return Span(low * layers, expected * layers, high * layers)

    def non_torch(self, total_gib: float, ranks: int) -> Span:
        """Of CUDA itself and of NCCL. More for larger cards, which have more to keep state for."""
        if ranks > 1:
            return Span(0.3, 2.1, 2.4) if self.version >= _NCCL_BUFFERS_SINCE else Span(0.1, 0.45, 1.0)
        return Span(0.2, 0.25, 0.4) if total_gib >= _LARGE_CARD_GIB else Span(0.03, 0.12, 0.3)

    @property
    def graphs_in_budget(self) -> bool:
        """The graphs are estimated and taken off the KV pool."""
        return self.version >= _GRAPHS_COUNTED_SINCE
