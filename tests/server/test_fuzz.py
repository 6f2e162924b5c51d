"""Whatever comes in, a client's mistake is the client's: no 5xx of the gateway's own, an error of the right shape,
nothing held.
"""

import json
import random
from copy import deepcopy
from http import HTTPStatus

import pytest

from tests.conformance import byte_model
from tests.support.live_gateway import CHAT, MODEL, chat, image, live_gateway
from tests.support.model_server import ANSWER, model_server
from tests.support.pictures import data_url, encoded, picture
from tests.support.raw_client import raw_client

ROUNDS = 400
COUNT = "/v1/messages/count_tokens"
PATHS = [
    *[CHAT] * 8,
    *["/gateway/preflight", "/v1/completions", "/v1/embeddings", "/tokenize", f"{CHAT}?a=\xe9%zz", COUNT, COUNT],
]
PICTURES = [
    data_url(encoded(picture(40, 30)), "image/png"),
    data_url(encoded(picture(40, 30), "JPEG", orientation=6), "image/jpeg"),
    data_url(encoded(picture(30, 40, mode="P"), "GIF"), "image/gif"),
    data_url(encoded(picture(33, 31, mode="RGBA"), "WEBP", lossless=True), "image/webp"),
]
ODD_VALUES = [
    None,
    True,
    -1,
    0,
    1e308,
    2**70,
    "",
    "x",
    "\ud800",
    "é\x00",
    [],
    {},
    [[]],
    {"url": {}},
    [None],
    "data:,",
    ",",
]
ODD_NAMES = ["name", "tool_calls", "reasoning", "chat_template_kwargs", "add_generation_prompt", "documents", "role"]
ODD_BYTES = [
    b"\xff",
    b"\x00",
    b"\\",
    b'"',
    b"{",
    b"}",
    b"[",
    b",",
    b"\\u",
    b"\xef\xbb\xbf",
    b"NaN",
    b"1e999",
    b"[" * 3000,
]
HEADERS = {
    "content-type": ["application/json", "application/json; charset=x", "text/json", "", "application/problem+json"],
    "content-encoding": ["", "identity", "gzip", "deflate", "br", "zstd", "GZIP", "gzip, gzip", "\xff"],
    "x-gateway-resize": ["off", "ocr", "", "\xe9", "thumbnail"],
    "x-gateway-priority": ["critical", "Batch", "", "\xe9"],
    "x-gateway-deadline-ms": ["1e9", "60000", "0.001", "-1", "\xb2"],
    "x-gateway-tokens": ["estimate", "Upstream", "", "\xe9"],
    "x-api-key": ["sk-1", "\xe9", ""],
    "x-request-id": ["a", "", "\xfc", "x" * 5000],
    "x-stainless-retry-count": ["1", "-1", "x"],
    "connection": ["close", "content-type", "keep-alive, x-request-id"],
    "authorization": ["Bearer \xe9", "\x7f", "Basic !"],
    "x-odd": ["\x80\xfe", "a\tb", ""],
    "cookie": ["a=b; c"],
}


def anthropic_image(url: str) -> dict:
    media_type, _, data = url.removeprefix("data:").partition(";base64,")
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}


def anthropic_chat(*content: dict) -> dict:
    call = {"type": "tool_use", "id": "t", "name": "f", "input": {"x": [1]}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "so"}, *content]}
    turns = [{"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}, call]}]
    turns.append({"role": "user", "content": [result, *content]})
    tools = [{"name": "f", "input_schema": {}}]
    return {"model": MODEL, "system": "Be brief.", "tools": tools, "messages": turns}


def a_body(chance: random.Random, path: str) -> bytes:
    urls = [chance.choice(PICTURES) for _ in range(chance.randrange(3))]
    if path == COUNT:
        body = anthropic_chat(*map(anthropic_image, urls))
    else:
        parts = [image(url) for url in urls]
        body = chat("Look.", *parts, max_tokens=chance.choice([1, 16, 10**9]), stream=chance.random() < 0.2)
    for _ in range(chance.choice([0, 1, 1, 2])):
        damage_tree(chance, body)
    try:
        data = bytearray(json.dumps(body).encode())
    except ValueError:
        data = bytearray(b"{}")
    for _ in range(chance.choice([0, 0, 0, 0, 1, 2])):
        damage_bytes(chance, data)
    return bytes(data)


def damage_tree(chance: random.Random, body: dict) -> None:
    """One value somewhere becomes another, or a key goes or comes."""
    node = body
    while True:
        key = chance.choice(list(node) if isinstance(node, dict) else range(len(node))) if node else None
        if key is None:
            return
        below = node[key]
        if isinstance(below, dict | list) and below and chance.random() < 0.75:
            node = below
            continue
        what = chance.randrange(3)
        if what == 0:
            node[key] = deepcopy(chance.choice(ODD_VALUES))
        elif what == 1:
            del node[key]
        elif isinstance(node, dict) and chance.random() < 0.3:
            node[chance.choice(ODD_NAMES)] = deepcopy(chance.choice(ODD_VALUES))
        elif isinstance(node, dict):
            node[
                chance.choice(
                    [
                        "uuid",
                        "type",
                        "detail",
                        "n",
                        "stop",
                        "tools",
                        "image_url",
                        "mm_processor_kwargs",
                        "source",
                        "prompt",
                    ]
                )
            ] = deepcopy(chance.choice(ODD_VALUES))
        return


def damage_bytes(chance: random.Random, data: bytearray) -> None:
    at = chance.randrange(len(data) + 1)
    what = chance.randrange(3)
    if what == 0:
        data[at:at] = chance.choice(ODD_BYTES)
    elif what == 1:
        del data[at : at + chance.choice([1, 7, 500])]
    else:
        data[at : at + 1] = bytes([chance.randrange(256)])


def a_head(chance: random.Random) -> list[str]:
    names = chance.sample(list(HEADERS), chance.choice([0, 0, 0, 0, 1, 3]))
    chosen = {"content-type": "application/json"} | {name: chance.choice(HEADERS[name]) for name in names}
    return [f"{name}: {value}" for name, value in chosen.items()]


@pytest.fixture(params=["estimated", "counted"])
def model(request, tmp_path):
    """A model whose text is estimated, and one whose own tokenizer and template count it."""
    if request.param == "estimated":
        return {"name": MODEL, "family": "qwen2_5_vl"}
    byte_model.write(tmp_path)
    return {"name": MODEL, "folder": str(tmp_path)}


async def test_no_input_is_the_gateways_fault(model):
    async def answer_anything(visit):
        await visit.answer("200 OK", ANSWER, "content-type: application/json")

    chance = random.Random(20_261_130)
    statuses: dict[int, int] = {}
    sections = {"models": [model], "tokens": {"answer": "estimate"}}
    async with model_server(answer_anything) as upstream, live_gateway(upstream.base_url, **sections) as gateway:
        await gateway.until_up()
        for number in range(ROUNDS):
            path = chance.choice(PATHS)
            body, lines = a_body(chance, path), a_head(chance)
            async with raw_client(gateway.host, gateway.port) as client:
                length = f"content-length: {len(body)}"
                request_line = f"POST {path} HTTP/1.1"
                head = "\r\n".join([request_line, "host: gateway", length, *lines, "", ""])
                client.send(head.encode("latin-1") + body)
                status, headers, answer = await client.answer()
            statuses[status] = statuses.get(status, 0) + 1
            assert status < HTTPStatus.INTERNAL_SERVER_ERROR, (number, path, lines, body[:3000], answer)
            if status != HTTPStatus.OK and answer != b"Invalid HTTP request received.":
                assert headers["content-type"] == "application/json"
                # What is no HTTP is refused before there is a path.
                assert_error_is_shaped(answer, is_anthropic=path == COUNT and b"Invalid HTTP" not in answer)
        await gateway.until_released()
        assert gateway.ended().keys() <= {"finished", "refused"}
    assert statuses[200] > ROUNDS / 10
    assert statuses[400] > ROUNDS / 10


def assert_error_is_shaped(answer: bytes, *, is_anthropic: bool) -> None:
    body = json.loads(answer)
    assert body.get("type", "") == ("error" if is_anthropic else "")
    assert set(body["error"]) == ({"type", "message"} if is_anthropic else {"message", "type", "param", "code"})
