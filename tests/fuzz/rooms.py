"""What is fuzzed: for each room, how an input is made of a number, and what may come of it.

A room's `label` gives the known end of an input (a code, or `ok`); anything it raises is a finding.
"""

import base64
import json
import os
import random
import signal
from collections.abc import Callable
from copy import deepcopy

import pybase64

from gateway.domain.errors import GatewayError
from gateway.domain.geometry import Size
from gateway.domain.image import ImageFormat
from gateway.imaging.judge import judge
from gateway.imaging.limits import ACCEPTED_FORMATS, ImageLimits
from gateway.imaging.probe import glance, probe
from gateway.imaging.workers import examine, needs_examination
from gateway.wire.chat import parse_chat
from gateway.wire.completions import parse_completions
from gateway.wire.data_url import read_data_url
from gateway.wire.dialects.anthropic import parse_messages
from gateway.wire.dialects.batch import parse_batch
from gateway.wire.dialects.cohere_embed import parse_cohere_embed
from gateway.wire.dialects.pooling import parse_embeddings, parse_pooling
from gateway.wire.dialects.responses import parse_responses
from gateway.wire.dialects.scoring import parse_rerank, parse_score
from gateway.wire.encoded_file import EncodedFile
from gateway.wire.generic import parse_generic
from gateway.wire.messages import chat_of_messages
from tests.fuzz.answers import label_answers, some_answers
from tests.fuzz.damage import damaged
from tests.fuzz.ends import known
from tests.imaging.test_damaged_files import SOURCES
from tests.server.test_fuzz import damage_tree
from tests.support import icc
from tests.support.pictures import encoded, picture
from tests.wire.test_messages import IN_PLACE

LIMITS = ImageLimits(
    max_pixels=1_000_000,
    max_scaled_jpeg_pixels=1_000_000,
    formats=ACCEPTED_FORMATS | {ImageFormat.ICO, ImageFormat.HEIC},
)
FILES = [
    *SOURCES.values(),
    encoded(picture(60, 40), "JPEG", icc_profile=icc.display_p3()),
    encoded(picture(60, 40), "PNG", icc_profile=icc.display_p3(), compress_level=0),
    encoded(picture(40, 30, mode="RGBA"), "TIFF", compression="tiff_adobe_deflate"),
    encoded(picture(40, 30).convert("1"), "TIFF", compression="group4"),
    encoded(picture(40, 30), "TIFF", compression="jpeg"),
    encoded(picture(40, 30, mode="P"), "BMP"),
]
TARGETS = (None, Size(28, 28), Size(56, 28))
_URL = "data:image/png;base64," + base64.b64encode(SOURCES["png"]).decode()
_TEXT = {"type": "text", "text": "What is é\ud83d\ude00 this?"}
_BODIES = [
    {
        "model": "tiny",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [_TEXT, {"type": "image_url", "image_url": {"url": _URL, "detail": "low"}}]},
            {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]},
            {"role": "tool", "content": [{"type": "image_url", "image_url": "https://a.example/b.png"}, "text"]},
            {"role": "user", "content": [{"type": "input_image", "image_url": _URL, "detail": "auto", "uuid": "1"}]},
        ],
        "stream": True,
        "stream_options": {"include_usage": False},
        "max_tokens": 16,
        "n": 2,
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
        "response_format": {"type": "json_object"},
        "priority": -1,
    },
    {"model": "tiny", "prompt": ["a", [1, 2, 3]], "max_tokens": 5, "echo": False, "n": 1},
    {"model": "tiny", "input": [[1, 2], [3]], "encoding_format": "base64", "truncate_prompt_tokens": -1},
    {
        "model": "tiny",
        "max_tokens": 9,
        "system": [{"type": "text", "text": "Be brief."}],
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "What?"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": _URL[22:]}},
                ],
            },
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {"a": [1]}}]},
        ],
    },
]
_ENCODED_BODIES = [json.dumps(body).encode() for body in _BODIES] + [
    json.dumps(body, ensure_ascii=False).encode("utf-8", "replace") for body in _BODIES
]
_PIECES = [
    *_ENCODED_BODIES,
    *(b"\\u0000", b"\xff\xfe", b"\xef\xbb\xbf", b"NaN", b"-Infinity", b"1e999", b"[" * 3000, b'{"a":' * 3000, b"\\/"),
    *(b'"uuid":"x",', b'"image_embeds":"AAAA",', b'"type":"video_url",', b'"image_url":null,', b"\x00", b"\\ud800"),
]
_PARSERS: tuple[Callable[[bytes], object], ...] = (
    parse_chat,
    parse_completions,
    parse_embeddings,
    parse_pooling,
    parse_cohere_embed,
    parse_score,
    parse_rerank,
    parse_generic,
    parse_messages,
    parse_batch,
    parse_responses,
    lambda body: chat_of_messages(body, IN_PLACE),
)


def an_image(chance: random.Random) -> bytes:
    return damaged(chance.choice(FILES), FILES, chance)


def label_image(file: bytes) -> str:
    """Its whole way: glance, probe, the look at the whole file, decoding at its own size and at another."""
    payload = EncodedFile(pybase64.b64encode(file))
    try:
        glanced = glance(payload, LIMITS, "p")
        info = probe(payload, LIMITS, "p")
        assert glanced in {None, info}, "both read the same header"
        target = TARGETS[len(file) % len(TARGETS)]
        looked_at = examine(payload, info) if needs_examination(info, target) else info
        verdict = judge(payload, looked_at, target) if not hasattr(looked_at, "damage") else looked_at
        verdict.answer("p")
    except GatewayError as error:
        return known(error)
    if verdict.prepared is not None:
        assert probe(EncodedFile(verdict.prepared.base64), LIMITS, "p").size == (target or info.size)
    return "ok"


def a_url(chance: random.Random) -> bytes:
    url = bytearray(chance.choice(_ENCODED_BODIES[:1]))
    start = url.index(b"data:")
    end = url.index(b'"', start)
    broken = damaged(bytes(url[start:end]), [b"data:;base64,", b"\\/", b"  ", b"%3D", b"=", b",", b"\\u0041"], chance)
    return bytes(url[:start]) + broken + bytes(url[end:])


def label_url(body: bytes) -> str:
    """Each image's URL is read, to its size."""
    try:
        request = parse_chat(body)
        for ref in request.images:
            if not ref.is_remote:
                probe(read_data_url(body, ref).file, LIMITS, ref.param)
    except GatewayError as error:
        return known(error)
    return "ok"


def a_body(chance: random.Random) -> bytes:
    """Mostly JSON still, of another meaning; else damaged letters."""
    if chance.random() < 0.3:
        return damaged(chance.choice(_ENCODED_BODIES), _PIECES, chance)
    body = deepcopy(chance.choice(_BODIES))
    for _ in range(chance.choice((1, 1, 2, 3))):
        damage_tree(chance, body)
    try:
        encoded_body = json.dumps(body, ensure_ascii=chance.random() < 0.8).encode()
    except UnicodeEncodeError:
        encoded_body = json.dumps(body).encode()
    return damaged(encoded_body, _PIECES, chance) if chance.random() < 0.1 else encoded_body


def label_body(body: bytes) -> str:
    """By every dialect."""
    labels = set()
    for parse in _PARSERS:
        try:
            parse(body)
        except GatewayError as error:
            labels.add(known(error))
        else:
            labels.add("ok")
    return "ok" if "ok" in labels else min(labels)


def a_planted_fault(chance: random.Random) -> bytes:
    """Few are a fault or a death, all others are sound."""
    return bytes([chance.randrange(30)])


def label_planted(data: bytes) -> str:
    """What a run must find."""
    if data == b"\x00":
        raise ZeroDivisionError("planted")
    if data == b"\x01":
        os.kill(os.getpid(), signal.SIGKILL)
    return "ok"


Room = tuple[Callable[[random.Random], bytes], Callable[[bytes], str]]
ROOMS: dict[str, Room] = {
    "images": (an_image, label_image),
    "urls": (a_url, label_url),
    "bodies": (a_body, label_body),
    "answers": (some_answers, label_answers),
}
PLANTED = "planted"
ALL_ROOMS = ROOMS | {PLANTED: (a_planted_fault, label_planted)}
