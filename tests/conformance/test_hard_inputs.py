"""Inputs that broke vision-language serving somewhere, sent through a whole gateway.

tests/data/hard_inputs/cases.json names for each the answers that are right: status, code, and what has to reach the
model server. The pictures that arrive there are judged here by Pillow alone, never by the gateway's own code. Two
cases about long conversations are repeated with the gateway's own step of four images.
"""

import base64
import gzip
import io
import json
import pathlib
import re

import pytest
import pytest_asyncio
from PIL import Image

from tests.support.live_gateway import CHAT, MODEL, live_gateway
from tests.support.model_server import ANSWER, error_of, model_server, posts

DATA = pathlib.Path(__file__).parents[1] / "data" / "hard_inputs"
CASES = {case["id"]: case for case in json.loads((DATA / "cases.json").read_text())}
JSON = {"content-type": "application/json"}
UNIT = 28
MODEL_MAX_PIXELS = 12_845_056
SETTINGS = {
    "images": {
        "max_pixels": 50_000_000,
        "max_per_turn": 8,
        "max_forwarded": 8,
        "min_side": UNIT,
        "formats": ["png", "jpeg", "gif", "webp", "bmp", "tiff", "avif"],
    },
    "models": [{"name": name, "family": "qwen2_5_vl"} for name in ("vlm", MODEL)],
}

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def answer_anything(visit):
    await visit.answer("200 OK", ANSWER, "content-type: application/json")


def house(grid):
    @pytest_asyncio.fixture(scope="module", loop_scope="module")
    async def running():
        history = {"keep": 8, "grid": grid}
        async with (
            model_server(answer_anything) as upstream,
            live_gateway(upstream.base_url, **SETTINGS, history=history) as gateway,
        ):
            await gateway.until_up()
            yield gateway, upstream

    return running


stepping_by_one = house(1)
stepping_by_four = house(4)


def read(name: str) -> bytes:
    data = (DATA / name).read_bytes()
    return gzip.decompress(data) if name.endswith(".gz") else data


def body_of(case) -> bytes:
    if "declared" not in case:
        return read(case["file"])
    url = f"data:{case['declared']};base64,{base64.b64encode(read(case['file'])).decode()}"
    content = [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": url}}]
    return json.dumps({"model": MODEL, "messages": [{"role": "user", "content": content}]}).encode()


async def ask(running, body: bytes):
    """The answer, and the bodies that reached the model server."""
    gateway, upstream = running
    before = len(posts(upstream))
    answer = await gateway.http.post(CHAT, content=body, headers=JSON)
    await gateway.until_released()
    return answer, [visit.body for visit in posts(upstream)[before:]]


def urls_in(body: bytes) -> list[str]:
    parts = [part for message in json.loads(body)["messages"] for part in message["content"] or []]
    return [part["image_url"]["url"] for part in parts if isinstance(part, dict) and "image_url" in part]


def pictures_in(body: bytes) -> list[tuple[Image.Image, bytes]]:
    """As vLLM would open them: strict base64 behind a plain header."""
    found = []
    for url in urls_in(body):
        header, payload = url.split(",", 1)
        file = base64.b64decode(payload, validate=True)
        with Image.open(io.BytesIO(file)) as picture:
            assert re.fullmatch(f"data:image/{picture.format.lower()}(;[a-z0-9=-]+)?;base64", header)
            assert getattr(picture, "n_frames", 1) == 1
            assert picture.getexif().get(0x0112, 1) == 1
            picture.load()
        found.append((picture, file))
    return found


def assert_is_as_expected(picture: Image.Image, file: bytes, expected) -> None:
    assert picture.mode == "RGB" or (picture.mode == "L" and expected.get("may_be_grey"))
    assert picture.size == tuple(expected["size"])
    for x, y, colour, tolerance in expected.get("probes", ()):
        place = int(x * picture.width), int(y * picture.height)
        seen = picture.convert("RGB").getpixel(place)
        assert max(abs(a - b) for a, b in zip(seen, colour, strict=True)) <= tolerance, (place, seen, colour)
    if picture.format == "JPEG":
        assert file.endswith(b"\xff\xd9")


def assert_was_made_to_fit(picture: Image.Image, _: bytes, expected) -> None:
    """Pictures whose size the gateway has to change."""
    width, height = picture.size
    if expected["forwarded_rule"].startswith("both sides"):
        assert min(width, height) >= UNIT
    else:
        assert width * height <= MODEL_MAX_PIXELS
        assert abs(width / height - 6000 / 4000) < 0.02 * 1.5
        assert width % UNIT == height % UNIT == 0


def assert_is_right(forwarded: list[bytes], sent: bytes, right) -> None:
    if right["status"] != 200:
        assert forwarded == []
        return
    (body,) = forwarded
    if right.get("forward") == "unchanged":
        assert body == sent
        return
    pictures = pictures_in(body)
    assert len(pictures) == right.get("images_forwarded", 1)
    for picture, file in pictures:
        if "forwarded_rule" in right:
            assert_was_made_to_fit(picture, file, right)
        elif "image" in right:
            assert_is_as_expected(picture, file, right["image"])


@pytest.mark.parametrize("name", CASES)
async def test_a_hard_input(stepping_by_one, name):
    case = CASES[name]
    body = body_of(case)
    answer, forwarded = await ask(stepping_by_one, body)
    code = error_of(answer)["code"] if answer.status_code != 200 else None
    right = [a for a in case["answers"] if (a["status"], a.get("code")) == (answer.status_code, code)]
    assert right, (answer.status_code, answer.text, case["answers"])
    assert_is_right(forwarded, body, right[0])


async def test_too_many_in_one_turn_names_both_numbers(stepping_by_one):
    answer, _ = await ask(stepping_by_one, body_of(CASES["too_many_in_turn"]))
    assert {"8", "13"} <= set(re.findall(r"\d+", error_of(answer)["message"]))


@pytest.mark.parametrize(("name", "images", "kept"), [("hist_over_limit", 13, 5), ("hist_40_images", 40, 8)])
async def test_long_conversations_lose_images_by_fours(stepping_by_four, name, images, kept):
    """dropped = ceil((images - 8) / 4) x 4, the oldest first; all else stays in its place."""
    body = body_of(CASES[name])
    answer, (forwarded,) = await ask(stepping_by_four, body)
    assert (answer.status_code, len(urls_in(body)), len(urls_in(forwarded))) == (200, images, kept)
    expected = json.loads(body)
    parts = [part for message in expected["messages"] for part in message["content"] if "image_url" in part]
    for part in parts[: images - kept]:
        part.clear()
        part.update(type="text", text="[image removed to fit the context]")
    assert json.loads(forwarded) == expected


def as_anthropic(case) -> bytes | None:
    """The case's picture in a body of Anthropic's, where the case is one picture."""
    if "declared" not in case:
        return None
    source = {"type": "base64", "media_type": case["declared"], "data": base64.b64encode(read(case["file"])).decode()}
    content = [{"type": "text", "text": "What is this?"}, {"type": "image", "source": source}]
    return json.dumps({"model": MODEL, "messages": [{"role": "user", "content": content}]}).encode()


@pytest.mark.parametrize("name", CASES)
async def test_a_hard_input_is_counted_or_refused_and_goes_nowhere(stepping_by_one, name):
    """Pixels are not decoded for a count, so what only they show is no reason to refuse."""
    gateway, upstream = stepping_by_one
    case, before = CASES[name], len(posts(upstream))
    allowed = {200, *(right["status"] for right in case["answers"])}
    for path, body in (("/tokenize", body_of(case)), ("/v1/messages/count_tokens", as_anthropic(case))):
        if body is not None:
            answer = await gateway.http.post(path, content=body, headers=JSON | {"x-gateway-tokens": "estimate"})
            assert answer.status_code in allowed, answer.text
            assert ("count" in answer.text or "input_tokens" in answer.text) is (answer.status_code == 200)
    await gateway.until_released()
    assert len(posts(upstream)) == before
