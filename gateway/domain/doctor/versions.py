"""Versions as logs print them."""

import re

NO_RELEASE = (0, 1)
"""What builds of a branch call themselves: 0.1.dev."""
_VERSION = re.compile(r"v?(\d{1,4})\.(\d{1,4})")


def version_of(text: str | None) -> tuple[int, int] | None:
    """Major and minor; None where the text is of another form or no release."""
    match = _VERSION.match(text or "")
    found = None if match is None else (int(match[1]), int(match[2]))
    return None if found == NO_RELEASE else found
