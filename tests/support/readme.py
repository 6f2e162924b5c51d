"""The README as text, and the numbers in its sentences."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
TEXT = " ".join(README.split())
_WORDS = {
    "one": 1.0, "two": 2.0, "three": 3.0, "four": 4.0, "five": 5.0, "nine": 9.0, "ten": 10.0, "half": 0.5,
    "a hundredth": 0.01, "a tenth": 0.1, "an eighth": 0.125, "a quarter": 0.25, "three quarters": 0.75,
    "a second": 1.0, "half a minute": 30.0, "a minute": 60.0, "a day": 86_400.0, "a million": 1e6, "twice": 2.0,
}  # fmt: skip
_NUMBER = "(" + "|".join(sorted(_WORDS, key=len, reverse=True)) + r"|\d[\d,]*(?:\.\d+)?)"


def said(sentence: str) -> tuple[float, ...]:
    """The numbers at each `#` of a piece that the README has once, in words or digits; times are in seconds."""
    (found,) = re.finditer(re.escape(sentence).replace(r"\#", _NUMBER), TEXT, re.IGNORECASE)
    words = (word.lower() for word in found.groups())
    return tuple(_WORDS[word] if word in _WORDS else float(word.replace(",", "")) for word in words)
