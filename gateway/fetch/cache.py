"""Pictures that were fetched before, by address: so that one re-sent with every turn is not fetched with every turn.

What may be kept and for how long is the host's word (RFC 9111): `no-store` keeps nothing, `max-age` spares the question
for that long, a validator (`ETag`, `Last-Modified`) makes it a short one. Nothing is kept of what has neither.
"""

import re
from dataclasses import dataclass, replace

from cachetools import LRUCache
from multidict import CIMultiDict, CIMultiDictProxy

_MOST_FRESH_SECONDS = 3600.0
_ENTRY_OVERHEAD_BYTES = 1024
_MAX_AGE = re.compile(r"(?:^|[,\s])max-age\s*=\s*\"?(\d{1,10})")
_WORDS = re.compile(r"[a-z-]+")
_SENDABLE = re.compile(r"[ -~]{1,256}")

Headers = CIMultiDict[str] | CIMultiDictProxy[str]


@dataclass(frozen=True, slots=True)
class Kept:
    """A picture as base64. `source` is where it came from after redirects, with the validators that it had there;
    until `fresh_until` nobody need ask again.
    """

    base64: memoryview
    source: str
    etag: str | None
    last_modified: str | None
    fresh_until: float

    @property
    def held_bytes(self) -> int:
        """With the address that was asked for, which is about as long as the one that it came from."""
        words = 2 * len(self.source) + len(self.etag or "") + len(self.last_modified or "")
        return len(self.base64) + words + _ENTRY_OVERHEAD_BYTES

    def question(self, url: str) -> dict[str, str]:
        """Headers that ask `url` whether it has changed; none where it came from elsewhere."""
        if url != self.source:
            return {}
        if self.etag is not None:
            return {"If-None-Match": self.etag}
        return {"If-Modified-Since": self.last_modified} if self.last_modified is not None else {}


def worth_keeping(base64: memoryview, source: str, headers: Headers, now: float) -> Kept | None:
    """None where the host forbids it, or nothing of what it says would ever make it useful."""
    fresh_seconds = _fresh_seconds(headers)
    if fresh_seconds is None:
        return None
    etag, last_modified = _validator(headers, "ETag"), _validator(headers, "Last-Modified")
    kept = Kept(base64, source, etag, last_modified, now + fresh_seconds)
    return kept if fresh_seconds > 0 or kept.question(source) else None


def renewed(kept: Kept, headers: Headers, now: float) -> Kept | None:
    """After the host has said that it is the same picture still; None where it says now that it may not be kept."""
    fresh_seconds = _fresh_seconds(headers)
    return None if fresh_seconds is None else replace(kept, fresh_until=now + fresh_seconds)


def _validator(headers: Headers, name: str) -> str | None:
    """One that can be sent back as it came."""
    value = headers.get(name)
    return value if value is not None and _SENDABLE.fullmatch(value) else None


def _fresh_seconds(headers: Headers) -> float | None:
    """None: it must not be kept."""
    control = ",".join(headers.getall("Cache-Control", [])).lower()
    words = set(_WORDS.findall(control))
    if "no-store" in words:
        return None
    found = _MAX_AGE.search(control)
    if found is None or "no-cache" in words:
        return 0.0
    age = headers.get("Age", "")
    gone = float(age) if age.isascii() and age.isdigit() else 0.0
    return min(max(0.0, float(found.group(1)) - gone), _MOST_FRESH_SECONDS)


class FetchCache(LRUCache[str, Kept]):
    """Pictures by the address that was asked for, the one not used for longest going first, bounded by the bytes that
    they hold (`currsize`).
    """

    def __init__(self, capacity_bytes: int) -> None:
        super().__init__(capacity_bytes, getsizeof=lambda kept: kept.held_bytes)

    def put(self, url: str, kept: Kept | None) -> None:
        """In the place of what was kept of `url`; None, or one larger than the cache, leaves nothing of it."""
        if kept is None or kept.held_bytes > self.maxsize:
            self.pop(url, None)
        else:
            self[url] = kept
