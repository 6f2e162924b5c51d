"""A page that is watched while it is used."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from playwright.async_api import Browser, ConsoleMessage, Page, Response, expect

FOREIGN_NAME = "evil.example"
FLAGS = [
    *("--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", f"--host-resolver-rules=MAP {FOREIGN_NAME} 127.0.0.1"),
]
PATIENCE_MS = 10_000
expect.set_options(timeout=PATIENCE_MS)


def shown_size(width: int, height: int) -> str:
    return f"{width} \N{MULTIPLICATION SIGN} {height}"


@dataclass
class Watched:
    """`faults` are errors and warnings of its console, scripts that failed, and requests that failed or were refused;
    `requests` the addresses that it asked for.
    """

    page: Page
    faults: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def note_message(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.faults.append(f"{message.type}: {message.text}")

    def note_response(self, response: Response) -> None:
        if response.status >= 400:
            self.faults.append(f"{response.status}: {response.url}")


@asynccontextmanager
async def watched_page(browser: Browser, url: str, **options: Any) -> AsyncIterator[Watched]:
    """The block runs when the page has shown its first state."""
    context = await browser.new_context(**({"viewport": {"width": 1280, "height": 900}} | options))
    context.set_default_timeout(PATIENCE_MS)
    page = await context.new_page()
    watched = Watched(page)
    page.on("console", watched.note_message)
    page.on("pageerror", lambda error: watched.faults.append(str(error)))
    page.on("requestfailed", lambda request: watched.faults.append(f"failed: {request.url}"))
    page.on("request", lambda request: watched.requests.append(request.url))
    page.on("response", watched.note_response)
    await page.goto(f"{url}/gateway/")
    await expect(page.locator("#updated")).not_to_be_empty()
    try:
        yield watched
    finally:
        await context.close()
