"""Debian's Chromium, without a window, and pages of it that keep what went wrong in them."""

import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager

import pytest_asyncio
from playwright.async_api import Browser, async_playwright

from tests.browser.watched import FLAGS, Watched, watched_page

Open = Callable[..., AbstractAsyncContextManager[Watched]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        yield browser
        await browser.close()


@pytest_asyncio.fixture(loop_scope="module")
async def open_page(browser: Browser) -> Open:
    """Opens the status page of a gateway; options are those of a browser context."""

    def opened(url: str, **options: object) -> AbstractAsyncContextManager[Watched]:
        return watched_page(browser, url, **options)

    return opened
