"""The status page for everybody: by keyboard, by screen reader, in the dark, on a telephone."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import expect

from tests.browser.watched import shown_size
from tests.support.live_gateway import image, live_gateway
from tests.support.model_server import model_server
from tests.support.pictures import encoded, picture

pytestmark = [pytest.mark.system("chromium"), pytest.mark.asyncio(loop_scope="module")]

PHOTO = {"name": "photo.jpg", "mimeType": "image/jpeg", "buffer": encoded(picture(1600, 1200), "JPEG")}
NAME = "An-Organisation/a-rather-long-model-name-72B-Instruct-AWQ"
PHONE = {"width": 390, "height": 844}
DESK = {"width": 1280, "height": 900}


@asynccontextmanager
async def full_page(open_page, **options):
    """With a refusal, a picture that was tried, and a model whose name is long."""
    models = [{"name": NAME, "family": "qwen3_vl"}]
    async with (
        model_server(models=[NAME]) as upstream,
        live_gateway(upstream.base_url, models=models, resize={"preset": "ocr"}) as gateway,
    ):
        await gateway.until_up()
        await gateway.chat(image("data:image/png;base64,AAAA"), model=NAME)
        await gateway.chat("x", model=NAME)
        async with open_page(f"http://{gateway.host}:{gateway.port}", **options) as opened:
            await opened.page.locator("#file").set_input_files(PHOTO)
            await expect(opened.page.locator(".families")).to_be_visible()
            await expect(opened.page.locator("#refusals li")).to_have_count(1)
            yield opened


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [DESK, PHONE], ids=["desk", "phone"])
async def test_axe_finds_nothing(open_page, scheme, viewport):
    # axe itself is a foreign script, so for it alone the page's policy is put aside.
    async with full_page(open_page, color_scheme=scheme, viewport=viewport, bypass_csp=True) as opened:
        found = await Axe().run(opened.page)
        assert found.violations_count == 0, found.generate_report()
        await opened.page.locator("#file").set_input_files(PHOTO | {"buffer": b"broken"})
        await expect(opened.page.get_by_role("alert")).to_contain_text("not an image")
        found = await Axe().run(opened.page)
        assert found.violations_count == 0, found.generate_report()


async def test_axe_finds_nothing_where_a_key_is_asked_for(open_page):
    tenants = [{"name": "team-a", "key_sha256": ["1" * 64]}]
    async with model_server() as upstream, live_gateway(upstream.base_url, tenants=tenants) as gateway:
        await gateway.until_up()
        address = f"http://{gateway.host}:{gateway.port}"
        async with open_page(address, viewport=PHONE, color_scheme="dark", bypass_csp=True) as opened:
            await opened.page.locator("#file").set_input_files(PHOTO)
            await expect(opened.page.get_by_label("API key")).to_be_visible()
            found = await Axe().run(opened.page)
            assert found.violations_count == 0, found.generate_report()


async def test_a_telephone_needs_no_sideways_scrolling(open_page):
    async with full_page(open_page, viewport=PHONE, has_touch=True, is_mobile=True) as opened:
        widths = "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
        scrolled, shown = await opened.page.evaluate(widths)
        assert scrolled <= shown == PHONE["width"]
        beyond = await opened.page.evaluate(
            "[...document.querySelectorAll('main *')].filter((node) => !node.closest('.unseen') && "
            "node.getBoundingClientRect().right > innerWidth + 1).map((node) => node.outerHTML.slice(0, 80))"
        )
        assert beyond == []


async def test_dark_and_light_differ_and_follow_the_system(open_page):
    grounds = {}
    for scheme in ("light", "dark"):
        async with full_page(open_page, color_scheme=scheme) as opened:
            grounds[scheme] = await opened.page.evaluate("getComputedStyle(document.body).backgroundColor")
            other = "dark" if scheme == "light" else "light"
            await opened.page.emulate_media(color_scheme=other)
            grounds[f"{other} later"] = await opened.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert grounds["light"] == grounds["light later"] != grounds["dark"] == grounds["dark later"]


async def test_who_wants_no_motion_gets_none(open_page):
    moved = "getComputedStyle(document.querySelector('.fill')).transitionDuration"
    async with full_page(open_page) as opened:
        assert await opened.page.evaluate(moved) == "0.4s"
        await opened.page.emulate_media(reduced_motion="reduce")
        assert await opened.page.evaluate(moved) == "0s"


async def chooser_by_keyboard(page):
    """As a person would: again, where a busy browser has not heard the first one."""
    opening = asyncio.ensure_future(page.wait_for_event("filechooser", timeout=60_000))
    while not opening.done():
        await page.locator("#file").focus()
        await page.keyboard.press("Enter")
        await asyncio.wait({opening}, timeout=2)
    return await opening


async def test_all_of_it_by_keyboard_with_the_focus_in_sight(open_page):
    async with full_page(open_page) as opened:
        page, stops = opened.page, []
        for _ in range(12):
            await page.keyboard.press("Tab")
            stop, outline = await page.evaluate(
                """() => {
                    const node = document.activeElement;
                    const shown = node.id === "file" ? node.nextElementSibling : node;
                    return [node.id || node.textContent, getComputedStyle(shown).outlineStyle];
                }"""
            )
            stops.append(stop)
            if stop == "/docs":
                break
            assert outline == "solid", stop
        assert stops == ["Skip to the content", "pause", "file", "model", "resize", "refusals", "/metrics", "/docs"]
        chooser = await chooser_by_keyboard(page)
        await chooser.set_files(PHOTO | {"buffer": encoded(picture(112, 112))})
        await expect(page.locator("figure").first).to_contain_text(shown_size(112, 112))


async def test_what_screen_readers_are_told_and_how_often(open_page):
    async with full_page(open_page) as opened:
        page = opened.page
        assert await page.locator("main, header, footer").count() == 3
        await expect(page.locator("#try-status")).to_contain_text("Admitted. A request with this picture")
        meter = page.get_by_role("meter", name="KV cache blocks")
        unlimited = page.locator('[data-resource="kv_blocks"]')
        await expect(unlimited).to_contain_text("no limit")
        assert await meter.count() == 0
        await expect(page.get_by_role("meter", name="Requests inside")).to_have_attribute("aria-valuemax", "2048")
        # Numbers change all the time; only the state of things is announced.
        live = await page.evaluate(
            "[...document.querySelectorAll('[role=status], [role=alert], [aria-live]')].map((n) => n.id || n.className)"
        )
        assert live == ["overall", "try-status", "try-error"]
