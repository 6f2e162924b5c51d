"""`make screenshots`: the pictures of docs/screenshots, of a gateway under load before an emulated engine."""

import asyncio
import contextlib
import io
import pathlib
import shutil

from PIL import Image
from playwright.async_api import Browser, Page, async_playwright, expect

from gateway.cli.demo.pictures import photograph
from gateway.domain.geometry import Size
from gateway.emulator.config import EmulatorConfig
from gateway.emulator.serve import running_emulator
from tests.browser.watched import FLAGS, watched_page
from tests.support.live_gateway import LiveGateway, image, live_gateway
from tests.support.pictures import data_url, encoded, picture

FOLDER = pathlib.Path(__file__).parents[2] / "docs" / "screenshots"
MODEL = "Qwen/Qwen2.5-VL-7B-Instruct"
ENGINE = EmulatorConfig(model=MODEL, num_gpu_blocks=1601, max_model_len=16_384, max_num_seqs=16)
SECTIONS = {
    "models": [{"name": MODEL}],
    "resize": {"preset": "detail"},
    "queue": {"requests": 12, "wait_seconds": 4},
    "history": {"mode": "always", "keep": 2, "grid": 1},
}
DESK = {"width": 1280, "height": 1000}
PHONE = {"width": 390, "height": 844}
CLIENTS = 18
WARM_UP_SECONDS = 15
MOST_BYTES = 200_000
_MARGIN = 16


async def keep_asking(gateway: LiveGateway, number: int) -> None:
    """One client: a picture, an answer, and again; every third has large pictures, one sends what is none."""
    size = (2400, 1800) if number % 3 == 0 else (900 + 40 * number, 700)
    photo = image(data_url(encoded(picture(*size, seed=number), "JPEG"), "image/jpeg"))
    for turn in range(10_000):
        if number == 1 and turn % 3 == 2:
            await gateway.chat("Well?", image("data:image/png;base64,AAAA"), model=MODEL)
        await gateway.chat("What is this?", photo, model=MODEL, max_tokens=60 + 10 * number)
        await asyncio.sleep(0.3)


@contextlib.asynccontextmanager
async def under_load(gateway: LiveGateway):
    tasks = [asyncio.create_task(keep_asking(gateway, number)) for number in range(CLIENTS)]
    await asyncio.sleep(WARM_UP_SECONDS)
    yield
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def try_a_picture(page: Page) -> None:
    file = photograph(Size(4000, 3000)).file
    await page.locator("#file").set_input_files({"name": "photo.jpg", "mimeType": "image/jpeg", "buffer": file})
    await expect(page.locator(".families")).to_be_visible(timeout=30_000)
    for index in range(2):
        await page.locator("figure img").nth(index).evaluate("(image) => image.decode()")


async def section_of(page: Page, inside: str) -> bytes:
    """The section around something, with a margin."""
    box = await page.locator("section", has=page.locator(inside)).bounding_box()
    assert box is not None
    scrolled = await page.evaluate("scrollY")
    clip = {"x": box["x"] - _MARGIN, "y": box["y"] + scrolled - _MARGIN}
    size = {"width": box["width"] + 2 * _MARGIN, "height": box["height"] + 2 * _MARGIN}
    return await page.screenshot(full_page=True, clip=clip | size)


def save(name: str, png: bytes) -> None:
    """In 256 colours, which a page like this has hardly more of."""
    out = io.BytesIO()
    Image.open(io.BytesIO(png)).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(out, "PNG", optimize=True)
    if out.tell() > MOST_BYTES:
        raise SystemExit(f"{name}.png has {out.tell()} bytes; at most {MOST_BYTES} are wanted")
    (FOLDER / f"{name}.png").write_bytes(out.getvalue())
    print(f"{name}.png: {out.tell()} bytes")


async def take(browser: Browser, url: str, scheme: str) -> None:
    async with watched_page(browser, url, color_scheme=scheme, viewport=DESK) as desk:
        save(f"status-{scheme}", await desk.page.screenshot())
        await try_a_picture(desk.page)
        save(f"try-{scheme}", await section_of(desk.page, "#try"))
        save(f"refusals-{scheme}", await section_of(desk.page, "#refusals"))
    async with watched_page(browser, url, color_scheme=scheme, viewport=PHONE, is_mobile=True) as phone:
        save(f"phone-{scheme}", await phone.page.screenshot())


async def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    with running_emulator(ENGINE) as emulator:
        async with live_gateway(emulator.base_url, **SECTIONS) as gateway, async_playwright() as driver:
            await gateway.until_up()
            browser = await driver.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
            async with under_load(gateway):
                for scheme in ("light", "dark"):
                    await take(browser, f"http://{gateway.host}:{gateway.port}", scheme)
            await browser.close()


if __name__ == "__main__":
    asyncio.run(main())
