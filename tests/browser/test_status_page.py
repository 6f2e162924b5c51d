"""The status page in a real browser: what a person sees, clicks and types."""

import asyncio

import pytest
from playwright.async_api import Error, expect

from gateway.domain.vision.registry import FAMILIES
from gateway.keys_file import digest_of
from tests.browser.watched import FOREIGN_NAME, shown_size
from tests.support.live_gateway import image, live_gateway, until
from tests.support.model_server import Patient, model_server
from tests.support.pictures import data_url, encoded, picture
from tests.support.raw_http import raw_http_server

pytestmark = [pytest.mark.system("chromium"), pytest.mark.asyncio(loop_scope="module")]

PHOTO = {"name": "photo.jpg", "mimeType": "image/jpeg", "buffer": encoded(picture(1600, 1200), "JPEG")}
BROKEN = {"name": "broken.png", "mimeType": "image/png", "buffer": encoded(picture(300, 200))[:900]}
BAD_IMAGE = image("data:image/png;base64,AAAA")

READ_ALOUD = """
    async ([address, options]) => {
        try {
            const answer = await fetch(address, options);
            return answer.ok ? await answer.text() : "nothing";
        } catch {
            return "nothing";
        }
    }
"""


def url_of(gateway):
    return f"http://{gateway.host}:{gateway.port}"


def bar(page, resource):
    return page.locator(f'[data-resource="{resource}"] [role="meter"]')


class TestWatching:
    async def test_it_loads_without_a_fault_and_asks_nobody_else(self, open_page):
        async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
            await gateway.until_up()
            async with open_page(url_of(gateway)) as opened:
                await expect(opened.page).to_have_title("vlm-gateway status")
                await expect(opened.page.get_by_role("status").first).to_have_text("Serving.")
                await expect(opened.page.get_by_role("heading", name="Model server")).to_be_visible()
                await until(lambda: sum(each.endswith("/state") for each in opened.requests) > 2)
            assert opened.faults == []
            assert {each for each in opened.requests if not each.startswith(f"{url_of(gateway)}/gateway/")} == set()
            assert gateway.ended() == {}

    async def test_bars_move_while_requests_run_and_wait(self, open_page):
        patient = Patient()
        budget = {"sequences": 2, "kv_blocks": 4000}
        async with model_server(patient) as upstream, live_gateway(upstream.base_url, budget=budget) as gateway:
            await gateway.until_up()
            async with open_page(url_of(gateway)) as opened:
                sequences = bar(opened.page, "sequences")
                await expect(sequences).to_have_attribute("aria-valuenow", "0")
                photo = image(data_url(encoded(picture(560, 560))))
                tasks = [asyncio.create_task(gateway.chat("x", photo)) for _ in range(5)]
                await expect(sequences).to_have_attribute("aria-valuenow", "2")
                await expect(sequences).to_have_attribute("aria-valuetext", "2 of 2 (100 %, full)")
                fill = sequences.locator(".fill")
                await expect(fill).to_have_js_property("style.width", "100%")
                await expect(opened.page.locator("#figures")).to_contain_text("Waiting3")
                patient.may_answer.set()
                await asyncio.gather(*tasks)
                await expect(sequences).to_have_attribute("aria-valuenow", "0")
                await expect(opened.page.locator("#figures")).to_contain_text("Finished5")
            assert opened.faults == []

    async def test_a_refusal_appears_with_its_reason_as_text(self, open_page):
        async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
            await gateway.until_up()
            async with open_page(url_of(gateway)) as opened:
                await expect(opened.page.get_by_text("Nothing has been refused")).to_be_visible()
                await gateway.chat(BAD_IMAGE)
                first = opened.page.locator("#refusals li").first
                await expect(first).to_contain_text("bad_image")
                await expect(first).to_contain_text("400 · /v1/chat/completions")
                await expect(opened.page.get_by_text("Nothing has been refused")).to_be_hidden()
                markup = "<img src=x onerror=alert(1)>"
                await gateway.http.post("/v1/completions", content=b"{}", headers={"content-type": markup})
                await expect(first).to_contain_text(markup)
                assert await opened.page.locator("#refusals img").count() == 0
                await expect(opened.page.locator("#reasons")).to_contain_text("bad_request 1")
                for _ in range(3):
                    await gateway.chat(BAD_IMAGE)
                await expect(opened.page.locator("#refusals li")).to_have_count(3)
                await expect(first).to_contain_text("and 2 more like it since")
            assert opened.faults == []

    async def test_it_says_when_the_gateway_is_gone_and_when_it_is_back(self, open_page):
        async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
            await gateway.until_up()
            async with open_page(url_of(gateway)) as opened:
                await opened.page.context.set_offline(True)
                await expect(opened.page.locator("#overall-text")).to_contain_text("No answer from the gateway since")
                await opened.page.context.set_offline(False)
                await expect(opened.page.locator("#overall-text")).to_have_text("Serving.")

    async def test_it_says_what_is_amiss(self, open_page):
        async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
            await gateway.until_up()
            async with open_page(url_of(gateway)) as opened:
                overall = opened.page.locator("#overall-text")
                await upstream.stop()
                await expect(overall).to_have_text("The model server cannot serve now.")
                await expect(opened.page.locator("#upstreams .chip")).to_have_text("Down")
                gateway.application.drain()
                await expect(overall).to_have_text("Draining: nothing new is taken.")

    async def test_nobody_asks_while_it_is_paused_or_out_of_sight(self, open_page):
        async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
            await gateway.until_up()
            async with open_page(url_of(gateway)) as opened:
                page = opened.page
                await page.clock.install()
                await page.reload()
                pause = page.get_by_role("button", name="Pause updates")
                await pause.press("Space")
                await expect(pause).to_have_attribute("aria-pressed", "true")
                assert await asked_within(opened, 20_000) == 0
                await pause.press("Enter")
                assert await asked_within(opened, 5_000) > 1
                await page.evaluate("Object.defineProperty(document, 'hidden', {value: true, configurable: true})")
                await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
                assert await asked_within(opened, 20_000) == 0
                await page.evaluate("delete document.hidden")
                await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
                assert await asked_within(opened, 5_000) > 1

    async def test_an_answer_that_comes_late_neither_ends_a_pause_nor_asks_twice_after_it(self, open_page):
        asked, may_answer = asyncio.Event(), asyncio.Event()

        async def hold(route):
            asked.set()
            await may_answer.wait()
            await route.continue_()

        async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
            await gateway.until_up()
            async with open_page(url_of(gateway)) as opened:
                page = opened.page
                await page.clock.install()
                await page.reload()
                await page.route("**/state", hold)
                await asked.wait()
                pause = page.get_by_role("button", name="Pause updates")
                await pause.press("Space")
                may_answer.set()
                assert await asked_within(opened, 10_000) == 0
                asked.clear()
                may_answer.clear()
                await pause.press("Space")
                await asked.wait()
                await pause.press("Space")
                await pause.press("Space")
                may_answer.set()
                assert 5 < await asked_within(opened, 10_000) <= 12


async def asked_within(opened, milliseconds):
    """How often the page asks while so much of its time passes; what was on its way has come before."""
    await opened.page.clock.run_for(100)
    await opened.page.wait_for_load_state("networkidle")
    before = len(opened.requests)
    for _ in range(milliseconds // 1000):
        await opened.page.clock.run_for(1000)
        await opened.page.evaluate("new Promise(requestAnimationFrame)")
    return len(opened.requests) - before


class TestTrying:
    async def test_a_picture_is_chosen_and_its_costs_the_preview_and_the_verdict_appear(self, open_page):
        async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
            await gateway.until_up()
            async with open_page(url_of(gateway)) as opened:
                page = opened.page
                await page.locator("#file").set_input_files(PHOTO)
                await expect(page.get_by_role("heading", name="Admitted")).to_be_visible()
                rows = page.locator(".families tbody tr")
                await expect(rows).to_have_count(len(FAMILIES))
                served = page.locator("tr[data-served]")
                await expect(served).to_contain_text("qwen2_5_vl this model")
                await expect(served.locator("td").first).to_have_text(f"2,453 seen as {shown_size(1596, 1204)}")
                await expect(page.get_by_text("Byte for byte as it came.")).to_be_visible()
                await page.get_by_label("Resize").select_option("thumbnail")
                after = page.locator("figure").nth(1)
                await expect(after).to_contain_text("a preset asks for it")
                width, height = await after.locator("img").evaluate(
                    "async (image) => { await image.decode(); return [image.naturalWidth, image.naturalHeight]; }"
                )
                assert width * height <= 512**2
                await expect(after).to_contain_text(f"JPEG, {shown_size(width, height)}")
                await expect(served.locator("td").nth(1)).to_contain_text(f"sent as {shown_size(width, height)}")
            assert opened.faults == []
            await gateway.until_released()

    async def test_one_is_dropped(self, open_page):
        async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
            await gateway.until_up()
            async with open_page(url_of(gateway)) as opened:
                page = opened.page
                dropped = await page.evaluate_handle(
                    """(bytes) => {
                        const transfer = new DataTransfer();
                        transfer.items.add(new File([new Uint8Array(bytes)], "p.png", { type: "image/png" }));
                        return transfer;
                    }""",
                    [*encoded(picture(280, 140))],
                )
                await page.dispatch_event("#drop", "dragover", {"dataTransfer": dropped})
                await expect(page.locator("#drop")).to_have_attribute("data-over", "")
                await page.dispatch_event("#drop", "drop", {"dataTransfer": dropped})
                await expect(page.locator("#drop")).not_to_have_attribute("data-over", "")
                await expect(page.locator("tr[data-served] td").first).to_contain_text("52 seen as")
                await expect(page.locator("figure").first).to_contain_text(f"PNG, {shown_size(280, 140)}")
            assert opened.faults == []

    async def test_a_broken_file_shows_the_error_and_the_next_one_takes_it_away(self, open_page):
        async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
            await gateway.until_up()
            async with open_page(url_of(gateway)) as opened:
                page = opened.page
                await page.locator("#file").set_input_files(PHOTO)
                await expect(page.locator("figure")).to_have_count(2)
                await page.locator("#file").set_input_files(BROKEN)
                await expect(page.get_by_role("alert")).to_contain_text("image_parse_error")
                await expect(page.locator("figure")).to_have_count(0)
                await expect(page.locator("#refusals li").first).to_contain_text("/gateway/try")
                await page.locator("#file").set_input_files(PHOTO)
                await expect(page.get_by_role("alert")).to_be_empty()
                await expect(page.locator("figure")).to_have_count(2)
            # The browser itself writes that an answer was 400; nothing else was amiss.
            assert {fault.partition(":")[0] for fault in opened.faults} == {"400", "error"}

    async def test_where_keys_are_configured_the_first_try_asks_for_one(self, open_page):
        tenants = [{"name": "team-a", "key_sha256": [digest_of("sk-right")]}]
        async with model_server() as upstream, live_gateway(upstream.base_url, tenants=tenants) as gateway:
            await gateway.until_up()
            async with open_page(url_of(gateway)) as opened:
                page, key = opened.page, opened.page.get_by_label("API key")
                await expect(key).to_be_hidden()
                await page.locator("#file").set_input_files(PHOTO)
                await expect(page.get_by_role("alert")).to_contain_text("no API key")
                await expect(key).to_be_focused()
                for wrong, told in (("sk-wrong", "is not known here"), ("schlüssel", "ASCII alone")):
                    await key.fill(wrong)
                    await key.press("Enter")
                    await expect(page.get_by_role("alert")).to_contain_text(told)
                await key.fill(" sk-right ")
                await key.press("Tab")
                await expect(page.get_by_role("heading", name="Admitted")).to_be_visible()
                await expect(page.get_by_role("alert")).to_be_empty()
                assert await page.evaluate("[localStorage.length, sessionStorage.length, document.cookie]") == [
                    0,
                    0,
                    "",
                ]
                assert not any("sk-right" in each for each in opened.requests)
                await page.reload()
                await expect(key).to_be_hidden()
                await expect(key).to_have_value("")
            # The browser itself writes that answers were 401; nothing else was amiss.
            assert {fault.partition(":")[0] for fault in opened.faults} == {"401", "error"}

    async def test_one_that_would_wait_and_one_that_never_fits(self, open_page):
        patient = Patient()
        async with (
            model_server(patient) as upstream,
            live_gateway(upstream.base_url, budget={"kv_blocks": 70}) as gateway,
        ):
            await gateway.until_up()
            running = asyncio.create_task(gateway.chat("x", max_tokens=800))
            await until(lambda: gateway.metrics("gateway_held").get('{resource="sequences"}') == 1)
            async with open_page(url_of(gateway)) as opened:
                page = opened.page
                small = PHOTO | {"buffer": encoded(picture(560, 420), "JPEG")}
                await page.locator("#file").set_input_files(small)
                await expect(page.get_by_role("heading", name="Waiting")).to_be_visible()
                await expect(page.locator(".verdict")).to_contain_text("be refused after 30 s")
                await page.get_by_label("Resize").select_option("off")
                await page.locator("#file").set_input_files(PHOTO)
                await expect(page.get_by_role("heading", name="Refused: never_fits_kv")).to_be_visible()
                await expect(page.locator(".verdict")).to_contain_text("What would fit now: send it as")
            patient.may_answer.set()
            await running

    async def test_a_format_that_browsers_cannot_show_is_named(self, open_page):
        async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
            await gateway.until_up()
            async with open_page(url_of(gateway)) as opened:
                tiff = {"name": "p.tiff", "mimeType": "", "buffer": encoded(picture(200, 100), "TIFF")}
                await opened.page.locator("#file").set_input_files(tiff)
                before = opened.page.locator("figure").first
                await expect(before).to_contain_text("This browser cannot show the format.")
                await expect(before).to_contain_text(f"TIFF, {shown_size(200, 100)}")


class TestForeignPages:
    async def test_another_site_reads_nothing_and_tries_nothing(self, browser):
        async def site(visit):
            await visit.answer("200 OK", b"<title>evil</title>", "content-type: text/html")

        async with (
            model_server() as upstream,
            live_gateway(upstream.base_url) as gateway,
            raw_http_server(site) as foreign,
        ):
            page = await browser.new_page()
            await page.goto(foreign.base_url)
            for options in ({}, {"mode": "no-cors"}, {"method": "POST", "body": "x"}):
                for path in ("state", "try"):
                    address = f"{url_of(gateway)}/gateway/{path}"
                    assert await page.evaluate(READ_ALOUD, [address, options]) == "nothing"
            await page.close()
            assert "finished" not in gateway.ended()

    async def test_a_foreign_name_that_leads_here_is_refused(self, browser):
        async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
            page = await browser.new_page()
            answer = await page.goto(f"http://{FOREIGN_NAME}:{gateway.port}/gateway/")
            assert answer.status == 403
            assert FOREIGN_NAME in await page.content()
            answer = await page.goto(f"http://localhost:{gateway.port}/gateway/")
            assert answer.status == 200
            await page.close()

    async def test_what_was_put_into_the_page_does_not_run(self, open_page):
        async with (
            model_server() as upstream,
            live_gateway(upstream.base_url) as gateway,
            open_page(url_of(gateway)) as opened,
        ):
            with pytest.raises(Error, match="TrustedHTML"):
                await opened.page.evaluate("document.body.innerHTML = '<b>x</b>'")
            with pytest.raises(Error, match="TrustedScript"):
                await opened.page.evaluate("document.body.setAttribute('onclick', 'window.ran = 1')")
