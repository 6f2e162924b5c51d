"""Every refusal that was captured from a real vLLM: the emulator gives the same status, type, param and beginning."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from PIL import Image

from tests.support.pictures import data_url, encoded, picture

CAPTURES = Path(__file__).parents[1] / "data" / "vllm_captures"
CAPTURED: dict[str, Any] = json.loads((CAPTURES / "errors_qwen2_5_vl.json").read_text())
FETCHED: dict[str, Any] = json.loads((CAPTURES / "errors_fetch_and_close_qwen2_5_vl.json").read_text())

JPEG = encoded(picture(640, 480), "JPEG")
PNG = data_url(encoded(Image.new("RGB", (56, 56))))
LARGE = data_url(encoded(Image.new("RGB", (3584, 3584)), "JPEG"))

NOT_EMULATED = {
    "http_ok_loopback": "no URL is fetched",
    "http_redirect": "no URL is fetched",
    "http_404": "no URL is fetched",
    "http_500": "no URL is fetched",
    "http_html": "no URL is fetched",
    "http_empty_body": "no URL is fetched",
    "http_slow_12s": "no URL is fetched",
    "ftp_scheme": "captured again in FETCHED, this one hit a closed connection",
    "http_unresolvable": "captured again in FETCHED, this one hit a closed connection",
    "pixels_100MP_png": "300 MB of pixels; pixels_200MP_png is refused before decoding",
    "huge_base64_64MiB_not_image": "64 MiB; zero_bytes and not_an_image take the same path",
    "truncate_prompt_tokens": "ignored by the emulator",
    "image_fetch_request_headers_seen_by_image_server": "no request",
    "image_server_hits": "no request",
}


def user(*parts: object) -> list[dict[str, object]]:
    return [{"role": "user", "content": list(parts)}]


def image(url: object) -> dict[str, object]:
    return {"type": "image_url", "image_url": {"url": url}}


def text(content: str) -> dict[str, str]:
    return {"type": "text", "text": content}


def jpeg(file: bytes) -> list[dict[str, object]]:
    return user(image(data_url(file, "image/jpeg")))


# The captures keep only the beginning of long strings; these messages stand for the ones that were sent.
MESSAGES: dict[str, list[dict[str, object]]] = {
    "prompt_too_long_text": user(text("x" * 40_000)),
    "stream_prompt_too_long": user(text("x" * 40_000)),
    "prompt_exactly_max_len_minus_1": user(text("x" * 32_712)),
    "prompt_exactly_max_len": user(text("x" * 32_713)),
    "prompt_too_long_images_3x_3584": user(text("d"), image(LARGE), image(LARGE), image(LARGE)),
    "too_many_images_5_of_4": user(text("d"), *[image(PNG)] * 5),
    "too_many_images_over_turns": [*user(*[image(PNG)] * 3), *user(image(PNG), image(PNG))],
    "video_url_when_limit_0": user(text("d"), {"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AA"}}),
    "corrupt_image_bytes_flipped": jpeg(b"\xff\xd8\xff\xe0" + bytes(2_000)),
    "truncated_jpeg_half": jpeg(JPEG[: len(JPEG) // 2]),
    "truncated_jpeg_header_only": jpeg(JPEG[:100]),
    "truncated_png": user(image(data_url(encoded(picture(640, 480))[:2_000]))),
    "not_an_image": jpeg(b"hello world, not an image"),
    "stream_bad_image": jpeg(b"hello"),
    "zero_bytes": user(image("data:image/png;base64,")),
    "invalid_base64": user(image("data:image/png;base64,@@@@")),
    "data_url_no_comma": user(image("data:image/png;base64")),
    "svg": user(image(data_url(b'<svg xmlns="http://www.w3.org/2000/svg" width="10"/>', "image/svg+xml"))),
    "pdf": user(image(data_url(b"%PDF-1.4\n", "application/pdf"))),
    "raw_base64_no_scheme": user(image("/9j/4AAQSkZJRgABAQAAAQABAAD")),
    "aspect_ratio_201": user(image(data_url(encoded(Image.new("RGB", (201, 1)))))),
    "pixels_200MP_png": user(image(data_url(encoded(Image.new("1", (20_000, 10_000)))))),
    "n_2_images": user(text("hi"), image(PNG)),
    "mm_processor_kwargs_default": user(text("hi"), image(PNG)),
    "jpeg_scan_data_damaged": jpeg(JPEG[:20_000] + b"\x00" * 500 + JPEG[20_500:]),
}
BODIES = {
    "bad_utf8": b'{"model":"tiny","messages":[{"role":"user","content":"\xff"}]}',
    "gzip_body": b"\x1f\x8b\x08\x00B\xfc\x0ck\x02\xff",
}
# vLLM names every member of its union of message types; the emulator counts one error and names the first.
ONLY_THE_KIND_OF_MESSAGE = {"content_null"}


def send(client: httpx.Client, name: str, request: dict[str, Any]) -> httpx.Response:
    if "method" not in request:
        body = {**request, "messages": MESSAGES[name]} if name in MESSAGES else request
        return client.post("/v1/chat/completions", json=body, headers={"x-emulator-output-tokens": "3"})
    content = BODIES.get(name, request["content"].encode() if "content" in request else None)
    return client.request(
        request["method"], request["path"], content=content, json=request.get("json"), headers=request.get("headers")
    )


def beginning(message: str) -> str:
    """The words before pydantic's and Pillow's own details, which differ by version."""
    return message.partition(" [type=")[0].partition(" (61 bytes")[0]


@pytest.mark.parametrize("name", [name for name in CAPTURED if name not in NOT_EMULATED])
def test_answers_as_the_captured_vllm_did(client: httpx.Client, name: str) -> None:
    captured = CAPTURED[name]

    response = send(client, name, captured["request"])

    assert response.status_code == captured["status"], response.text
    assert response.headers.get("content-type") == captured["content_type"]
    for header, value in captured["extra_headers"].items():
        assert urlsplit(response.headers[header]).path == urlsplit(value).path
    if captured["status"] == 200:
        assert response.json().keys() == captured["body"].keys()
        assert response.json()["usage"]["prompt_tokens"] == captured["body"]["usage"]["prompt_tokens"]
    elif "error" in captured["body"]:
        assert_same_error(name, response.json()["error"], captured["body"]["error"])
    else:
        assert (response.text and response.json()) == captured["body"]


def assert_same_error(name: str, error: dict[str, Any], captured: dict[str, Any]) -> None:
    assert list(error) == list(captured)
    assert {key: error[key] for key in ("type", "param", "code")} == {
        key: captured[key] for key in ("type", "param", "code")
    }
    if name in ONLY_THE_KIND_OF_MESSAGE:
        assert "validation error" in error["message"]
    else:
        assert error["message"].startswith(beginning(captured["message"])[:120])


@pytest.mark.parametrize("name", ["ftp_scheme", "http_unresolvable", "file_scheme", "jpeg_scan_data_damaged"])
def test_answers_as_captured_about_addresses_and_damage(client: httpx.Client, name: str) -> None:
    captured = FETCHED[name]

    response = send(client, name, captured["request"])

    assert response.status_code == captured["status"]
    if captured["status"] != 200:
        assert response.json() == captured["body"]


def test_a_refused_connection_is_told_without_opening_one(client: httpx.Client) -> None:
    captured = CAPTURED["http_refused"]

    assert send(client, "http_refused", captured["request"]).json() == captured["body"]


def test_a_header_that_lies_about_the_size_is_believed(client: httpx.Client) -> None:
    small = encoded(picture(16, 16), "JPEG")
    place = small.index(b"\xff\xc0") + 5
    claim = small[:place] + (3000).to_bytes(2, "big") + (4000).to_bytes(2, "big") + small[place + 4 :]

    response = client.post("/v1/chat/completions", json={"messages": jpeg(claim), "max_tokens": 2})

    captured = FETCHED["jpeg_claims_4000x3000_but_16x16_data"]
    assert response.status_code == captured["status"]
    assert response.json()["usage"]["prompt_tokens"] == captured["body"]["usage"]["prompt_tokens"]
