"""The day of traffic, what clients do: each act does something that shows on the dashboards, and knows what it did."""

import json
import pathlib
from typing import Any

import pytest

from gateway.imaging import workers
from tests.deploy.panels.customer import AT_ONCE, Customer
from tests.deploy.panels.house import LAB_KEY, House
from tests.deploy.panels.tally import Picture, Range, Seen
from tests.support import isolation
from tests.support.live_gateway import CHAT, image, until
from tests.support.pictures import data_url, encoded, picture

THUMBNAIL = {"x-gateway-resize": "thumbnail"}
LAB = {"authorization": f"Bearer {LAB_KEY}"}
TEXT = "Tell me of it."
BOMB = pathlib.Path(__file__).parents[2] / "data" / "hard_inputs" / "png_bomb_30000.png"


def tokens_of(width: int, height: int) -> int:
    """Prompt tokens of a picture in Qwen2.5-VL, whose sides are rounded to 28, with those that begin and end it."""
    return round(width / 28) * round(height / 28) + 2


def kept(file_format: str, width: int, height: int) -> Picture:
    return Picture(file_format, "kept", width * height, tokens_of(width, height))


async def plain_requests(house: House) -> None:
    """Texts, streams, other endpoints, a tenant with a key."""
    customer = house.customer
    for _ in range(3):
        await customer.is_served(TEXT)
    await customer.is_served(TEXT, stream=True)
    await customer.is_served(TEXT, stream=True, headers=LAB, tenant="lab")
    await customer.is_served(TEXT, model="small")
    await customer.is_served(TEXT, model="small", stream=True)
    # The emulator's template leaves tools out, so it takes less than was to be expected.
    tools = [{"type": "function", "function": {"name": "look", "description": "Look again. " * 40}}]
    await customer.is_served(TEXT, model="small", tools=tools)
    await _completion(customer)
    await _counting_of_tokens(customer)
    house.gateway.application.reload()
    await until(lambda: house.gateway.metrics("gateway_key_reloads_total") != {})
    assert (await house.gateway.http.get("/v1/models")).status_code == 200
    customer.tally.seen.append(Seen("finished", model="other", endpoint="/v1/models"))


async def _completion(customer: Customer) -> None:
    body = {"model": "tiny", "prompt": "Once upon a time", "max_tokens": 4}
    visit, task = customer.post("/v1/completions", json.dumps(body).encode())
    await task
    assert visit.status == 200
    assert visit.usage is not None
    tokens = visit.prompt_tokens, visit.usage["prompt_tokens"]
    customer.tally.seen.append(
        Seen(
            "finished",
            endpoint="/v1/completions",
            wait=visit.waited(),
            sent_seconds=visit.seconds,
            tokens=tokens,
            answer_tokens=visit.usage["completion_tokens"],
        )
    )


async def _counting_of_tokens(customer: Customer) -> None:
    """Answered by the gateway itself."""
    body = {"model": "tiny", "prompt": "Five words are not many."}
    visit, task = customer.post("/tokenize", json.dumps(body).encode(), {"x-gateway-tokens": "estimate"})
    await task
    assert visit.status == 200
    customer.tally.seen.append(Seen("finished", endpoint="/tokenize"))


async def pictures_of_all_kinds(house: House) -> None:
    """Kept in three formats, encoded anew, made smaller, left out of a long conversation."""
    customer = house.customer
    for name, (width, height) in {"png": (280, 280), "jpeg": (560, 280), "webp": (84, 84)}.items():
        file = encoded(picture(width, height), name.upper())
        part = image(data_url(file, f"image/{name}"))
        await customer.is_served(TEXT, part, pictures=[kept(name, width, height)])
    see_through = image(data_url(encoded(picture(112, 112, mode="RGBA"))))
    normalised = Picture("png", "normalised", 112 * 112, tokens_of(112, 112))
    await customer.is_served(TEXT, see_through, pictures=[normalised])
    await _made_smaller(customer)
    await _left_out(customer)


async def _made_smaller(customer: Customer) -> None:
    large = image(data_url(encoded(picture(1680, 1260), "JPEG"), "image/jpeg"))
    visit, task = customer.begin(TEXT, large, headers=THUMBNAIL)
    await task
    ordinal, action, before, after, _ = visit.headers["x-gateway-images"].split(";")
    assert (ordinal, action, before) == ("0", "resized", "1680x1260")
    cost = tokens_of(*map(int, after.split("x")))
    smaller = Picture("jpeg", "resized", 1680 * 1260, cost, tokens_of(1680, 1260) - cost)
    customer.note_served(visit, pictures=[smaller])


async def _left_out(customer: Customer) -> None:
    """Twelve pictures in turn are more than there is room for at `c`."""
    parts = [image(data_url(encoded(picture(280, 280, seed=seed)))) for seed in range(12)]
    messages: list[dict[str, Any]] = []
    for part in parts:
        messages += [{"role": "user", "content": [part]}, {"role": "assistant", "content": "I see."}]
    messages.append({"role": "user", "content": TEXT})
    visit, task = customer.begin(body={"model": "small", "messages": messages, "max_tokens": 4})
    await task
    entries = visit.headers["x-gateway-images"].split(", ")
    left_out = len(entries)
    assert entries == [f"{ordinal};trimmed" for ordinal in range(left_out)]
    each = tokens_of(280, 280)
    # What is saved is counted with the first of them.
    gone = [
        Picture("unknown", "trimmed", None, None, left_out * each if not ordinal else 0) for ordinal in range(left_out)
    ]
    staying = [kept("png", 280, 280)] * (12 - left_out)
    customer.note_served(visit, model="small", pictures=[*gone, *staying])


async def faults_of_clients(house: House) -> None:
    """Nothing of this gets to an engine, but one that was let in before its picture was decoded."""
    customer = house.customer
    await _bad_pictures(customer, house)
    visit, task = customer.post(CHAT, b"{")
    await task
    customer.note_refused(visit, "bad_request", code="invalid_json", model="other")
    await customer.is_refused("never_fits_context", "x" * 5000, code="context_length_exceeded")
    four = [image(data_url(encoded(picture(56, 56, seed=seed)))) for seed in range(4)]
    await customer.is_refused("too_many_images", *four, headers=LAB, tenant="lab")
    late = {"x-gateway-deadline-ms": "0.001"}
    await customer.is_refused("would_miss_deadline", TEXT, headers=late, wait=AT_ONCE)
    for path, endpoint in (("/nowhere", "other"), ("/v1/models/huge", "/v1/models")):
        answer = await house.gateway.http.get(path)
        assert (answer.status_code, answer.headers["x-gateway-reason"]) == (404, "not_found")
        customer.tally.seen.append(Seen("refused", model="other", endpoint=endpoint, reason="not_found"))
    visit, task = customer.begin(TEXT, model="huge")
    await task
    assert (visit.status, visit.headers.get("x-gateway-reason")) == (404, None)
    customer.tally.seen.append(Seen("upstream_refused", model="other", wait=AT_ONCE, sent_seconds=visit.seconds))


async def _bad_pictures(customer: Customer, house: House) -> None:
    png = encoded(picture(200, 200))
    bad = {
        "invalid_base64_image": "data:image/png;base64,@@@@",
        "unsupported_image_media_type": data_url(b"<html>no picture</html>"),
        "image_too_large": data_url(BOMB.read_bytes()),
        "invalid_image_dimensions": data_url(encoded(picture(2010, 8))),
    }
    for code, url in bad.items():
        await customer.is_refused("bad_image", TEXT, image(url), code=code)
    # That only decoding shows, which is done once it was let in.
    damaged = image(data_url(png[: len(png) // 2] + bytes(100)))
    await customer.is_refused("bad_image", TEXT, damaged, code="image_parse_error", wait=AT_ONCE)


async def pictures_by_address(house: House) -> None:
    """Fetched, kept from before, not there, not allowed."""
    customer, host = house.customer, house.image_host.base_url
    for _ in range(2):
        await customer.is_served(TEXT, image(f"{host}/a.png"), pictures=[kept("png", 56, 84)])
    gone, forbidden = image(f"{host}/gone.png"), image("http://10.0.0.5/a.png")
    await customer.is_refused("bad_image", TEXT, gone, code="failed_to_download_image")
    await customer.is_refused("bad_image", TEXT, forbidden, code="invalid_image_url")
    house.tally.fetches.update(["fetched", "cached", "failed", "refused"])


async def workers_that_die(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """One is killed at its work, one is ended for taking too long."""
    customer = house.customer
    killer, hanger = (image(data_url(encoded(picture(140, 140, seed=seed)))) for seed in (1, 2))
    with monkeypatch.context() as patch:
        patch.setattr(workers, "judge", isolation.crash_once)
        await customer.is_served(TEXT, killer, pictures=[kept("png", 140, 140)])
    house.tally.workers_lost["died"] += 1
    with monkeypatch.context() as patch:
        patch.setattr(workers, "judge", isolation.hang)
        visit, task = customer.begin(TEXT, hanger)
        await until(lambda: '{resource="decode_bytes"}' in house.gateway.metrics("gateway_held"))
        await house.note_moment("decoding", decode_bytes={"held": Range(140 * 140, 1 << 26)})
        await task
    customer.note_refused(visit, "bad_image", code="image_parse_error", model="tiny", wait=AT_ONCE)
    house.tally.workers_lost["late"] += 1
