"""The room that images leave for texts that will come: a text is served soon, but an engine full of images is not free
again for seconds. Whether anybody has to leave any is admission.py's question.
"""

from collections.abc import Sequence
from math import exp, inf

from gateway.domain.quantities import Amounts


class TextRoom:
    """For as many texts as come in a second, and one at least while any come; each as large as the last.

    No more than a quarter of what there is: one long text every ten seconds would keep out all images but one.
    """

    __slots__ = ("_came", "_count", "_text")

    _MEMORY_SECONDS = 4.0
    _FORGOTTEN_SECONDS = 10.0
    _MOST_SHARE = 4

    def __init__(self) -> None:
        self._text = Amounts()
        self._count = 0.0
        self._came = -inf

    def came(self, text: Amounts, now: float) -> None:
        """A text came that takes so much."""
        self._count = self._count_at(now) + 1.0
        self._text, self._came = text, now

    def amounts(self, now: float, capacity: Sequence[int | None]) -> Amounts:
        """What to leave of each `capacity`; nothing ten seconds after the last text."""
        if now - self._came >= self._FORGOTTEN_SECONDS:
            return Amounts()
        texts = max(1, round(self._count_at(now) / self._MEMORY_SECONDS))
        pairs = zip(self._text, capacity, strict=True)
        return Amounts(
            *[texts * amount if most is None else min(texts * amount, self._most_of(most)) for amount, most in pairs]
        )

    def _most_of(self, capacity: int) -> int:
        return max(1, capacity // self._MOST_SHARE)

    def _count_at(self, now: float) -> float:
        return self._count * exp((self._came - now) / self._MEMORY_SECONDS) if self._count else 0.0
