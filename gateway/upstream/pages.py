"""One page of vLLM at a time, for the control path: within bytes and seconds, whatever the server does.

All of httpx lives here. One import line names the library, because httpx2 continues httpx with the same interface.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from http.cookiejar import CookieJar, DefaultCookiePolicy

import httpx

from gateway.upstream.tls import UpstreamTls, certificate_trouble

_MOST_BYTES = 16 << 20  # the list of some ten thousand adapters
_LONGEST_REASON = 200
_JSON = {"content-type": "application/json"}
# How it shows that a server closed an idle connection just when a request was on its way.
_BROKEN_OFF = (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError)


class PageError(Exception):
    """No page came; the text says why, in one short line without addresses."""


class SilentPageError(PageError):
    """A connection was made, and then nothing, or not all of it, came in time."""


@dataclass(frozen=True, slots=True)
class Page:
    """What was answered. Redirects are not followed, codings not undone."""

    status: int
    body: bytes

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300


class Pages:
    """The pages of one server. `timeout_seconds` bounds a connection and each silence, twice that a whole page."""

    def __init__(
        self, base_url: str, upstream_key: str | None, timeout_seconds: float, tls: UpstreamTls | None = None
    ) -> None:
        headers: Mapping[str, str] = {"authorization": f"Bearer {upstream_key}"} if upstream_key else {}
        self._whole_seconds = 2 * timeout_seconds
        self._hint = "" if tls is None else tls.hint
        self._extensions = {"sni_hostname": tls.server_name} if tls is not None and tls.server_name else None
        self._client = httpx.AsyncClient(
            base_url=base_url,
            headers={"accept-encoding": "identity", **headers},
            timeout=timeout_seconds,
            verify=True if tls is None else tls.context,
            trust_env=False,
            # A server could make each request longer than the one before.
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
        )

    async def close(self) -> None:
        await self._client.aclose()

    async def get(self, path: str) -> Page:
        """Raises PageError for everything that a server can do wrong."""
        return await self._ask("GET", path, None)

    async def post(self, path: str, body: bytes) -> Page:
        """As `get`; `body` is JSON, and may be sent twice."""
        return await self._ask("POST", path, body)

    async def _ask(self, method: str, path: str, body: bytes | None) -> Page:
        try:
            async with asyncio.timeout(self._whole_seconds):
                try:
                    return await self._exchange(method, path, body)
                except _BROKEN_OFF:
                    return await self._exchange(method, path, body)
        except httpx.ConnectTimeout:
            raise PageError("no connection could be made in time") from None
        except (TimeoutError, httpx.TimeoutException):
            raise SilentPageError("did not answer in time") from None
        except PageError:
            raise
        except _BROKEN_OFF as error:
            raise PageError(one_line(error) + self._hint) from error
        except Exception as error:  # no list of what the library makes of odd answers is complete
            raise PageError(certificate_trouble(error) or one_line(error)) from error

    async def _exchange(self, method: str, path: str, body: bytes | None) -> Page:
        headers = None if body is None else _JSON
        asking = self._client.stream(method, path, content=body, headers=headers, extensions=self._extensions)
        async with asking as answer:
            return Page(answer.status_code, await _whole_body(answer))


async def _whole_body(answer: httpx.Response) -> bytes:
    body = bytearray()
    async for piece in answer.aiter_raw():
        body += piece
        if len(body) > _MOST_BYTES:
            raise PageError(f"is longer than {_MOST_BYTES >> 20} MiB")
    return bytes(body)


def one_line(error: Exception) -> str:
    """An error for the log, for it may quote what a server sent."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= _LONGEST_REASON else text[:_LONGEST_REASON] + "..."
