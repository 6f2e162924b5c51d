"""Asks one server how many tokens a prompt has, for calibration: one question at a time, over the control path.

A status of 400 or 422 is the server's word about what was asked; anything else that is no count is a failure.
"""

from enum import StrEnum
from functools import partial

from gateway.upstream.pages import Page, PageError, Pages
from gateway.upstream.tls import UpstreamTls
from gateway.wire import calibration as wire

_REFUSALS = frozenset({400, 422})
_TIMEOUT_SECONDS = 10.0


class Way(StrEnum):
    """How a server is asked."""

    TOKENIZE = "tokenize"
    """It renders and preprocesses the prompt; its engine is not asked."""
    COMPLETIONS = "completions"
    """It answers with one token."""


class CountError(Exception):
    """No count came; the text says why, in one line without addresses."""


class CountRefusedError(CountError):
    """The server would not take what was asked."""


class Counter:
    """Connects when it is first asked, and anew after it was closed."""

    def __init__(
        self,
        base_url: str,
        upstream_key: str | None,
        timeout_seconds: float = _TIMEOUT_SECONDS,
        tls: UpstreamTls | None = None,
    ) -> None:
        self._open = partial(Pages, base_url, upstream_key, timeout_seconds, tls)
        self._opened: Pages | None = None
        self._takes_priority = True

    async def close(self) -> None:
        if self._opened is not None:
            await self._opened.close()
            self._opened = None

    @property
    def _pages(self) -> Pages:
        if self._opened is None:
            self._opened = self._open()
        return self._opened

    async def count(self, way: Way, model: str, picture: bytes | None) -> int:
        """Tokens of the prompt with a picture, a PNG file, or without. Raises CountError."""
        path, read = (
            (wire.TOKENIZE_PATH, wire.tokenize_count)
            if way is Way.TOKENIZE
            else (wire.COMPLETION_PATH, wire.completion_count)
        )
        try:
            page = await self._ask(way, path, model, picture)
        except PageError as error:
            raise CountError(f"{path}: {error}") from error
        if not page.is_success:
            raise _failure(path, page)
        tokens = read(page.body)
        if tokens is None:
            raise CountError(f"{path}: its answer has no count")
        return tokens

    async def _ask(self, way: Way, path: str, model: str, picture: bytes | None) -> Page:
        if way is Way.TOKENIZE:
            return await self._pages.post(path, wire.tokenize_question(model, picture))
        if self._takes_priority:
            page = await self._pages.post(path, wire.completion_question(model, picture, wire.LOWEST_PRIORITY))
            if page.status not in _REFUSALS:
                return page
        # Versions of vLLM that serve first come, first served may refuse a priority.
        page = await self._pages.post(path, wire.completion_question(model, picture, None))
        self._takes_priority = self._takes_priority and not page.is_success
        return page


def _failure(path: str, page: Page) -> CountError:
    message = wire.refusal_message(page.body)
    text = f"{path} answered {page.status}{f': {message}' if message else ''}"
    return CountRefusedError(text) if page.status in _REFUSALS else CountError(text)
