"""Every key by which vLLM 0.32 finds media, in every spelling, in every kind of message: counted or refused."""

import ast
import itertools
import json
import os
from pathlib import Path

import pytest

from gateway.domain.errors import Code, GatewayError
from gateway.wire.chat import parse_chat

URL = "data:image/png;base64,AAAA"
TEXT_TYPES = ("text", "input_text", "output_text", "refusal", "thinking", "tool_reference")
MEDIA_TYPES = (
    "image_url", "input_image", "image_pil", "image_embeds", "audio_embeds", "video_embeds", "prompt_embeds",
    "audio_url", "input_audio", "video_url",
)  # fmt: skip
"""`MM_PARSER_MAP` of renderers/chat_utils.py."""

KEYS = (
    "image_url", "image_pil", "image_embeds", "audio_embeds", "video_embeds", "prompt_embeds", "audio_url",
    "input_audio", "video_url",
)  # fmt: skip
"""What `_parse_chat_message_content_mm_part` looks for where there is no type, or a uuid."""

VALUES = (URL, {"url": URL}, {"data": "AAAA", "format": "wav"}, {"image_embeds": "AAAA"}, "", {}, None)
ROLES = ("user", "system", "developer", "assistant", "tool")

ABSENT = object()
TYPES = (ABSENT, None, "text", "hologram", *MEDIA_TYPES)
UUIDS = (ABSENT, None, "u", "", 0)


def parts():
    """Each key with each value, whatever the part calls itself and whether it has a uuid."""
    for key, value, kind, uuid in itertools.product(KEYS, VALUES, TYPES, UUIDS):
        named = {"type": kind, "uuid": uuid, "text": "hello"}
        yield {key: value, "detail": "auto"} | {name: each for name, each in named.items() if each is not ABSENT}


def reads_as_media(part):
    """vLLM's own dispatch, as its source has it."""
    kind, uuid = part.get("type"), part.get("uuid")
    if isinstance(kind, str) and kind in (*TEXT_TYPES, *MEDIA_TYPES) and uuid is None:
        return kind in MEDIA_TYPES
    return kind is None or uuid is not None


def body_of(role, part):
    return json.dumps({"messages": [{"role": "user", "content": "Hm?"}, {"role": role, "content": [part]}]}).encode()


@pytest.mark.parametrize("role", ROLES)
def test_media_is_counted_or_refused_by_its_place(role):
    counted = refused = 0
    for part in parts():
        try:
            request = parse_chat(body_of(role, part))
        except GatewayError as error:
            refusal = error
        else:
            found = len(request.images) + len(request.media)
            assert found == reads_as_media(part), part
            assert found or request.messages[1].text_bytes == len("hello"), part
            counted += found
            continue
        assert (refusal.status, (refusal.param or "")[:22]) == (400, "messages[1].content[0]"), part
        refused += 1
    assert counted > 30
    assert refused > 1000


def test_a_string_beside_parts_is_text():
    request = parse_chat(json.dumps({"messages": [{"role": "user", "content": ["video_url", "data:"]}]}).encode())
    assert (request.media, request.messages[0].text_bytes) == ((), len("video_urldata:"))


def test_of_two_equal_keys_the_last_counts_as_in_vllm():
    urls = '"video_url":{"url":"x"},"video_url":{"url":"data:video/mp4;base64,AAAA"}'
    part = f'{{"type":"text","text":"a","type":"video_url",{urls}}}'
    twice = f'{{"messages":[{{"role":"user","content":[{part}]}}]}}'
    [video] = parse_chat(twice.encode()).media
    assert (video.part, video.param) == ("messages[0].content[0]", "messages[0].content[0].video_url.url")


def test_more_parts_than_any_body_needs_are_refused():
    video = {"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AAAA"}}
    with pytest.raises(GatewayError) as refused:
        parse_chat(json.dumps({"messages": [{"role": "user", "content": [video] * 4097}]}).encode())
    assert refused.value.code == Code.TOO_MANY_IMAGES


@pytest.mark.real
def test_vllm_has_no_other_keys(report_line):
    """Of the version that is tested with; its source is read and not run."""
    root = Path(os.environ["VLLM_PYTHON"]).parents[1]
    [source] = root.glob("lib/python*/site-packages/vllm/renderers/chat_utils.py")
    tree = ast.parse(source.read_text())
    [table] = [
        each.value
        for each in ast.walk(tree)
        if isinstance(each, ast.AnnAssign) and getattr(each.target, "id", "") == "MM_PARSER_MAP"
    ]
    [reader] = [each for each in ast.walk(tree) if getattr(each, "name", "") == "_parse_chat_message_content_mm_part"]
    asked = [
        each.left.value
        for each in ast.walk(reader)
        if isinstance(each, ast.Compare) and isinstance(each.ops[0], ast.In) and isinstance(each.left, ast.Constant)
    ]
    assert {key.value for key in table.keys} == {*TEXT_TYPES, *MEDIA_TYPES}
    assert set(asked) == {*KEYS, "tool_reference"}
    report_line(f"kinds of content parts in vLLM's own source: {len(table.keys)}, all of them read here")
