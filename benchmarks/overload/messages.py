"""Bodies of requests. Pictures are real JPEGs without content: equally large for every cache, cheap for this machine.

Each carries a comment of its own, so no cache that goes by bytes answers for work, but inside one conversation, where
the second request shows the pictures of the first again.
"""

import base64
import io
from functools import cache
from typing import Any

from PIL import Image

from benchmarks.overload.traffic import FIRST_TURN_IMAGES, Request
from benchmarks.overload.upstream import MODEL

COMMENT_BYTES = 48
_START_OF_IMAGE = b"\xff\xd8"
_COMMENT = b"\xff\xfe" + (COMMENT_BYTES + 2).to_bytes(2, "big")


@cache
def _grey_jpeg(width: int, height: int) -> bytes:
    file = io.BytesIO()
    Image.new("L", (width, height), 128).save(file, "JPEG", quality=75, optimize=True)
    return file.getvalue()


def data_url(size: tuple[int, int], name: str) -> str:
    """A picture of that size whose bytes no other name has."""
    comment = name.encode().ljust(COMMENT_BYTES, b".")
    if len(comment) > COMMENT_BYTES:
        raise ValueError(f"{name!r} is longer than {COMMENT_BYTES} bytes")
    after = _grey_jpeg(*size)[len(_START_OF_IMAGE) :]
    return "data:image/jpeg;base64," + base64.b64encode(_START_OF_IMAGE + _COMMENT + comment + after).decode()


def payload(request: Request, salt: str) -> dict[str, Any]:
    """The body as a value. `salt` keeps the cells of a run apart; it has the same length in all of them."""
    turns = _conversation(request, salt) if request.kind == "history" else [_question(request, salt)]
    body: dict[str, Any] = {"model": MODEL, "messages": turns, "stream": True}
    if request.max_tokens is not None:
        body["max_tokens"] = request.max_tokens
    return body


def _question(request: Request, salt: str) -> dict[str, Any]:
    name = f"{salt} {request.stream} {request.index:06d}"
    if not request.images:
        return {"role": "user", "content": f"{name} {request.text}"}
    urls = [data_url(size, f"{name} {place}") for place, size in enumerate(request.images)]
    return _turn(urls, f"{name} {request.text}")


def _conversation(request: Request, salt: str) -> list[dict[str, Any]]:
    """Each user turn shows one picture; the last one of the first request stands in the second one word for word."""
    turns: list[dict[str, Any]] = []
    for place, size in enumerate(request.images):
        name = f"{salt} {request.stream} s{request.session:05d} {place}"
        if place:
            turns.append({"role": "assistant", "content": "The second shelf from the left, nothing else."})
        text = request.text if place >= FIRST_TURN_IMAGES else "What changed?"
        turns.append(_turn([data_url(size, name)], f"{name} {text}"))
    return turns


def _turn(urls: list[str], text: str) -> dict[str, Any]:
    images = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return {"role": "user", "content": [*images, {"type": "text", "text": text}]}
