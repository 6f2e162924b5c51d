"""Versions as logs print them."""

import re

_VERSION = re.compile(r"v?(\d{1,4})\.(\d{1,4})")


def version_of(text: str | None) -> tuple[int, int] | None:
    """Major and minor; None where the text is of another form, as for builds of a branch, which vLLM calls 0.1.dev."""
    match = _VERSION.match(text or "")
    found = None if match is None else (int(match[1]), int(match[2]))
    return None if found == (0, 1) else found
