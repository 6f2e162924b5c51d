"""Values of files, quoted in a sentence: short whatever somebody wrote into them. Pure."""

import reprlib

_MOST_CHARACTERS = 120

_REPR = reprlib.Repr()
_REPR.maxlevel = 2
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = _MOST_CHARACTERS


def quoted(value: object) -> str:
    """As Python spells it, cut in the middle where it is long."""
    return shortened(_REPR.repr(value))


def shortened(text: str, most_characters: int = _MOST_CHARACTERS) -> str:
    """The text, cut at its end where it is longer."""
    return text if len(text) <= most_characters else f"{text[: most_characters - 3]}..."
