"""Prompt sizes of a real vLLM: pictures of every format, spelling and place, text, templates."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

from tests.support.pictures import data_url, encoded

CAPTURES = Path(__file__).parents[1] / "data" / "vllm_captures"
CAPTURED: dict[str, Any] = json.loads((CAPTURES / "image_tokens_qwen2_5_vl.json").read_text())
TOKENIZED: dict[str, Any] = json.loads((CAPTURES / "tokenize_qwen2_5_vl.json").read_text())


def blank(file_format: str, mode: str = "RGB", size: tuple[int, int] = (640, 480), orientation: int = 1) -> str:
    return data_url(encoded(Image.new(mode, size), file_format, orientation=orientation))


def three_frames() -> str:
    frames = [Image.new("P", (320, 240), index) for index in range(3)]
    file = io.BytesIO()
    frames[0].save(file, "GIF", save_all=True, append_images=frames[1:])
    return data_url(file.getvalue())


PNG, SMALL, WIDE = blank("PNG"), blank("PNG", size=(100, 100)), blank("PNG", size=(1024, 768))
BASE64 = blank("JPEG").split(",")[1]
FORMATS: dict[str, Callable[[], str]] = {
    "png_rgba": lambda: blank("PNG", "RGBA"),
    "png_L": lambda: blank("PNG", "L"),
    "png_1bit": lambda: blank("PNG", "1"),
    "png_P": lambda: blank("PNG", "P"),
    "png_I16": lambda: blank("PNG", "I;16"),
    "jpeg": lambda: blank("JPEG"),
    "jpeg_cmyk": lambda: blank("JPEG", "CMYK"),
    "jpeg_exif_orientation6_800x200": lambda: blank("JPEG", size=(800, 200), orientation=6),
    "webp": lambda: blank("WEBP"),
    "bmp": lambda: blank("BMP"),
    "tiff": lambda: blank("TIFF"),
    "gif_3frames_320x240": three_frames,
    "ico": lambda: blank("ICO", size=(64, 64)),
    "avif": lambda: blank("AVIF"),
}
SPELLINGS = {
    "wrong_media_type": f"data:image/png;base64,{BASE64}",
    "octet_stream": f"data:application/octet-stream;base64,{BASE64}",
    "no_media_type": f"data:;base64,{BASE64}",
    "charset_param": f"data:image/jpeg;charset=utf-8;base64,{BASE64}",
    "upper_scheme": f"DATA:image/jpeg;base64,{BASE64}",
    "spaces_in_b64": f"data:image/jpeg;base64,{BASE64[:40]}\n{BASE64[40:]}",
    "no_padding": f"data:image/jpeg;base64,{BASE64.rstrip('=')}",
    "urlsafe_b64": f"data:image/jpeg;base64,{BASE64.replace('+', '-').replace('/', '_')}",
    "percent_encoded_plus": f"data:image/jpeg;base64,{BASE64.replace('+', '%2B').replace('/', '%2F')}",
    "not_base64_flag": f"data:image/jpeg,{BASE64}",
    "media_type_text": f"data:text/plain;base64,{BASE64}",
}


def text(content: str) -> dict[str, str]:
    return {"type": "text", "text": content}


def image(url: object, **more: object) -> dict[str, object]:
    return {"type": "image_url", "image_url": {"url": url, **more}}


def turn(role: str, *parts: object, **more: object) -> dict[str, object]:
    return {"role": role, "content": list(parts), **more}


def described(*parts: object) -> list[dict[str, object]]:
    return [turn("user", text("describe"), *parts)]


CONVERSATIONS: dict[str, list[dict[str, object]]] = {
    "two_images_640x480_100x100": described(image(PNG), image(SMALL)),
    "two_same_images_640x480": described(image(PNG), image(PNG)),
    "three_images": described(image(PNG), image(SMALL), image(WIDE)),
    "interleaved": [turn("user", image(PNG), text("desc"), image(SMALL), text("ribe"), image(WIDE))],
    "images_in_earlier_turn": [
        turn("user", text("one"), image(PNG)),
        {"role": "assistant", "content": "ok"},
        {"role": "user", "content": "more"},
    ],
    "same_turns_without_image": [
        turn("user", text("one")),
        {"role": "assistant", "content": "ok"},
        {"role": "user", "content": "more"},
    ],
    "images_in_two_turns": [
        turn("user", text("one"), image(PNG)),
        {"role": "assistant", "content": "ok"},
        turn("user", text("more"), image(SMALL)),
    ],
    "image_in_system_turn": [turn("system", text("sys"), image(PNG)), {"role": "user", "content": "more"}],
    "image_in_assistant_turn": [
        {"role": "user", "content": "hi"},
        turn("assistant", text("see"), image(PNG)),
        {"role": "user", "content": "more"},
    ],
    "image_in_tool_turn": [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "type": "function"}]},
        turn("tool", text("res"), image(PNG), tool_call_id="c1"),
        {"role": "user", "content": "more"},
    ],
}
PARTS: dict[str, object] = {
    "image_url_object": image(PNG),
    "image_url_string": {"type": "image_url", "image_url": PNG},
    "no_type_image_url": {"image_url": PNG},
    "input_image_string": {"type": "input_image", "image_url": PNG},
    "input_image_object": {"type": "input_image", "image_url": {"url": PNG}},
    "anthropic_style_in_chat": {"type": "image", "source": {"type": "base64", "data": "AAAA"}},
    "image_url_empty": image(""),
    "image_url_null": {"type": "image_url", "image_url": None},
    "image_with_uuid": {**image(PNG), "uuid": "abc1"},
    "image_uuid_only_unknown": {"type": "image_url", "image_url": None, "uuid": "zzz9"},
    "image_embeds_part": {"type": "image_embeds", "image_embeds": "AAAA"},
}


def assert_same(client: httpx.Client, messages: object, captured: dict[str, Any]) -> None:
    response = client.post("/v1/chat/completions", json={"messages": messages, "max_tokens": 1})
    assert response.status_code == captured["status"], response.text
    if response.status_code == 200:
        assert response.json()["usage"]["prompt_tokens"] == captured["prompt_tokens"]
        counted = client.post("/tokenize", json={"messages": messages}).json()
        assert counted["count"] == len(counted["tokens"]) == captured["prompt_tokens"]
    else:
        error, expected = response.json()["error"], captured["error"]
        assert (error["type"], error["param"], error["code"]) == (expected["type"], expected["param"], expected["code"])
        assert error["message"].startswith(expected["message"].partition(" [type=")[0])


def test_text_alone(client: httpx.Client) -> None:
    assert_same(client, described(), CAPTURED["text_only"])


@pytest.mark.parametrize("name", CAPTURED["multi"])
def test_images_add_up_wherever_they_stand(client: httpx.Client, name: str) -> None:
    assert_same(client, CONVERSATIONS[name], CAPTURED["multi"][name])


@pytest.mark.parametrize("name", CAPTURED["formats"])
def test_every_format(client: httpx.Client, name: str) -> None:
    assert_same(client, described(image(FORMATS[name]())), CAPTURED["formats"][name])


@pytest.mark.parametrize("name", CAPTURED["data_url_shapes"])
def test_every_spelling_of_a_data_url(client: httpx.Client, name: str) -> None:
    assert_same(client, described(image(SPELLINGS[name])), CAPTURED["data_url_shapes"][name])


@pytest.mark.parametrize("detail", CAPTURED["detail"])
def test_detail_changes_nothing(client: httpx.Client, detail: str) -> None:
    more = {} if detail == "null" else {"detail": detail}
    assert_same(client, described(image(PNG, **more)), CAPTURED["detail"][detail])


@pytest.mark.parametrize("name", PARTS)
def test_every_shape_of_an_image_part(client: httpx.Client, name: str) -> None:
    assert_same(client, described(PARTS[name]), CAPTURED["part_shapes"][name])


def test_a_uuid_alone_means_the_image_that_came_with_it_before(client: httpx.Client) -> None:
    client.post("/v1/chat/completions", json={"messages": described({**image(PNG), "uuid": "seen"}), "max_tokens": 1})

    alone = {"type": "image_url", "image_url": None, "uuid": "seen"}
    assert_same(client, described(alone), CAPTURED["part_shapes"]["image_uuid_only_cached"])


def test_a_uuid_serves_the_old_picture_even_when_another_comes_with_it(client: httpx.Client) -> None:
    for url in (PNG, WIDE):
        response = client.post(
            "/v1/chat/completions", json={"messages": described({**image(url), "uuid": "kept"}), "max_tokens": 1}
        )
    assert response.json()["usage"]["prompt_tokens"] == CAPTURED["formats"]["jpeg"]["prompt_tokens"]


def test_a_typed_placeholder_is_one_token(client: httpx.Client) -> None:
    typed = [{"role": "user", "content": "describe <|vision_start|><|image_pad|><|vision_end|>"}]
    assert_same(client, typed, CAPTURED["part_shapes"]["text_holding_placeholder_string"])
    both = [turn("user", text("describe <|image_pad|>"), image(PNG))]
    assert_same(client, both, CAPTURED["part_shapes"]["text_placeholder_plus_image"])


def a_captured_image() -> dict[str, object]:
    return image(blank("PNG", size=(280, 140)))


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("tokenize_chat_with_image", {}),
        ("tokenize_chat_with_image_strs", {"return_token_strs": True}),
        ("tokenize_chat_no_generation_prompt", {"add_generation_prompt": False}),
    ],
)
def test_tokenize_gives_the_captured_ids(client: httpx.Client, name: str, more: dict[str, object]) -> None:
    messages = [turn("user", text("hi"), a_captured_image())]

    assert client.post("/tokenize", json={"messages": messages, **more}).json() == TOKENIZED[name]["body"]


def test_tokenize_takes_a_prompt_and_refuses_nothing_for_its_length(client: httpx.Client) -> None:
    assert client.post("/tokenize", json={"prompt": "hello"}).json() == TOKENIZED["tokenize_prompt"]["body"]
    long = client.post("/tokenize", json={"messages": [{"role": "user", "content": "x" * 40_000}]})
    assert long.json()["count"] == TOKENIZED["tokenize_too_long"]["body"]["count"]


def test_tokenize_refuses_as_chat_does(client: httpx.Client) -> None:
    kwargs = {"messages": described(), "mm_processor_kwargs": {"max_pixels": 7840}}
    damaged = {"messages": described(image(data_url(b"hello")))}

    for body, name in ((kwargs, "tokenize_chat_mm_processor_kwargs"), (damaged, "tokenize_bad_image")):
        response = client.post("/tokenize", json=body)
        assert (response.status_code, response.json()) == (400, TOKENIZED[name]["body"])


def test_detokenize_gives_the_text_back(client: httpx.Client) -> None:
    tokens = client.post("/tokenize", json={"prompt": "héllo <|im_end|>"}).json()["tokens"]

    assert client.post("/detokenize", json={"tokens": tokens}).json() == {"prompt": "héllo <|im_end|>"}
    assert client.post("/detokenize", json={"tokens": [512]}).status_code == 400


def test_max_tokens_is_cut_to_what_the_context_leaves(client: httpx.Client) -> None:
    request = {"messages": [{"role": "user", "content": "x" * 32_700}], "max_tokens": 400}

    body = client.post("/v1/chat/completions", json=request).json()
    assert body["usage"]["total_tokens"] == 32_768
    assert body["choices"][0]["finish_reason"] == "length"
