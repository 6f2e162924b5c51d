"""A goal as it is said: "8 users, 2 images of 1280x1280, 4k context"."""

import re

from gateway.domain.geometry import Size
from gateway.domain.memory.fit import Goal

EXAMPLE = "8 users, 2 images of 1280x1280, 4k context"
_PARTS = {
    "users": r"([1-9]\d{0,5}) users?",
    "images": r"(\d+) images?(?: of (\d+)(?:\s*(?:²|\^2)|\s*[x×*]\s*(\d+)))?",  # noqa: RUF001  # people write it so
    "context": r"(\d+\.?\d*)\s*([kK]?) (?:tokens of )?context|context (?:of )?(\d+\.?\d*)\s*([kK]?)",
}


class GoalError(ValueError):
    """A goal that cannot be read; the text says how to write one."""


def read_goal(text: str) -> Goal:
    """Raises GoalError."""
    found = {name: re.search(pattern, text) for name, pattern in _PARTS.items()}
    users, images, context = found["users"], found["images"], found["context"]
    unread = text
    for each in filter(None, found.values()):
        unread = unread.replace(each[0], "")
    if users is None or context is None or re.sub(r"[,;\s]|and|each|with", "", unread):
        raise GoalError(f'--fit "{text}": write it as "{EXAMPLE}"')
    size = None
    if images is not None and images[2]:
        size = Size(int(images[2]), int(images[3] or images[2]))
    elif images is not None and int(images[1]):
        raise GoalError(f'--fit "{text}": say how large the images are, as in "{EXAMPLE}"')
    number, thousand = (context[1], context[2]) if context[1] else (context[3], context[4])
    tokens = int(float(number) * (1024 if thousand else 1))
    if not tokens:
        raise GoalError(f'--fit "{text}": a context of no tokens has no answer; write it as "{EXAMPLE}"')
    return Goal(int(users[1]), tokens, int(images[1]) if images else 0, size)


def read_size(text: str) -> Size:
    """`1280x720`, or one number for a square. Raises GoalError."""
    found = re.fullmatch(r"(\d+)(?:[x×](\d+))?", text)  # noqa: RUF001
    if not found or not int(found[1]) or found[2] == "0":
        raise GoalError(f"--image {text}: write a size in pixels, e.g. 1280x720")
    return Size(int(found[1]), int(found[2] or found[1]))
