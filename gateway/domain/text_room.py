"""The room that images leave for texts that will come: a text is served soon, but an engine full of images is not free
again for seconds. Whether anybody has to leave any is admission.py's question.
"""

from math import exp, inf

from gateway.domain.quantities import Amounts


class TextRoom:
    """For as many texts as come in a second, and one at least while any come; each as large as the last."""

    __slots__ = ("_came", "_count", "_text")

    _MEMORY_SECONDS = 4.0
    _FORGOTTEN_SECONDS = 10.0

    def __init__(self) -> None:
        self._text = Amounts()
        self._count = 0.0
        self._came = -inf

    def came(self, text: Amounts, now: float) -> None:
        """A text came that takes so much."""
        self._count = self._count_at(now) + 1.0
        self._text, self._came = text, now

    def amounts(self, now: float) -> Amounts:
        """What to leave; nothing ten seconds after the last text."""
        if now - self._came >= self._FORGOTTEN_SECONDS:
            return Amounts()
        texts = max(1, round(self._count_at(now) / self._MEMORY_SECONDS))
        return Amounts(*[texts * amount for amount in self._text])

    def _count_at(self, now: float) -> float:
        return self._count * exp((self._came - now) / self._MEMORY_SECONDS) if self._count else 0.0
