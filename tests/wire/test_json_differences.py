"""Nothing is read differently from vLLM and passed on: bodies are refused, or read as `json.loads` reads them.

The reference is Python's own reader, which vLLM uses, and a walker that lists media as vLLM's chat parser does. It
shares no code with the gateway.
"""

import json
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.domain.errors import Code, GatewayError
from gateway.wire.bulk import count_pieces
from gateway.wire.chat import parse_chat

URL = "data:image/png;base64,AAAA"
TEXT_TYPES = ("text", "input_text", "output_text", "refusal", "thinking", "tool_reference")
MEDIA_TYPES = [
    "image_url",
    "input_image",
    "image_pil",
    "image_embeds",
    "audio_embeds",
    "video_embeds",
    "prompt_embeds",
    "audio_url",
    "input_audio",
    "video_url",
]
KEY_ORDER = [
    "image_url",
    "image_pil",
    "image_embeds",
    "audio_embeds",
    "video_embeds",
    "prompt_embeds",
    "audio_url",
    "input_audio",
    "video_url",
]


def media_of_part(part):
    """(kind, value) of a media part, None for text; ValueError where vLLM refuses."""
    if isinstance(part, str):
        return None
    kind, uuid = part.get("type"), part.get("uuid")
    if uuid is None and kind in TEXT_TYPES:
        return None
    if uuid is None and kind in MEDIA_TYPES:
        value = part[kind if kind != "input_image" else "image_url"]
        return ("image" if "image" in kind else kind, _inside(kind, value))
    if uuid is None and kind is not None:
        raise ValueError(kind)
    for key in KEY_ORDER:
        if key in part:
            value = part[key]
            return ("image" if key == "image_url" else key, _inside(key, value))
    if "tool_reference" in part:
        return None
    raise ValueError("no type")


def _inside(key, value):
    """Of an object the string in it."""
    if not isinstance(value, dict):
        return value
    return value.get("data" if key == "input_audio" else "url")


def reference(body):
    """Media in order, images first, and the fields that decide the cost, as vLLM reads them."""
    parsed = json.loads(body)
    media = []
    for message in parsed["messages"]:
        content = message.get("content")
        for part in content if isinstance(content, list) else []:
            found = media_of_part(part)
            media += [found] if found else []
    media = [each for each in media if each[0] == "image"] + [each for each in media if each[0] != "image"]
    limit = parsed.get("max_completion_tokens")
    limit = parsed.get("max_tokens") if limit is None else limit
    n = parsed.get("n")
    return {
        "media": media,
        "max_tokens": None if limit is None else int(limit),
        "n": 1 if n is None else int(n),
        "stream": bool(parsed.get("stream")),
        "model": parsed.get("model"),
    }


def as_gateway_reads(body):
    """The same from parse_chat; None where it refuses."""
    try:
        request = parse_chat(body)
    except GatewayError as error:
        if error.status != 400:
            raise
        return None
    return {
        "media": [("image", json.loads(body[slice(*ref.url)])) for ref in request.images]
        + [_at(json.loads(body), ref) for ref in request.media],
        "max_tokens": request.max_tokens,
        "n": request.n,
        "stream": request.stream,
        "model": request.model,
    }


def _at(parsed, ref):
    """The key and what stands where the gateway says that it is."""
    value, key = parsed, ""
    for name in re.findall(r"\w+", ref.param):
        value = value[int(name) if name.isdigit() else name]
        key = name if name.startswith(ref.kind) or name == "input_audio" else key
    return key, value


def chat(part, fields=""):
    return f'{{"model":"m","messages":[{{"role":"user","content":[{part}]}}]{fields}}}'.encode()


IMAGE = f'{{"type":"image_url","image_url":{{"url":"{URL}"}}}}'
OTHER = URL.replace("AAAA", "BBBB")

READ_AS_VLLM_DOES = {
    "duplicate url": chat(f'{{"type":"image_url","image_url":{{"url":"{OTHER}","url":"{URL}"}}}}'),
    "duplicate image_url": chat(
        f'{{"image_url":{{"url":"{OTHER}"}},"type":"image_url","image_url":{{"url":"{URL}"}}}}'
    ),
    "duplicate type, text last": chat(f'{{"type":"image_url","image_url":{{"url":"{URL}"}},"text":"a","type":"text"}}'),
    "duplicate type, image last": chat(f'{{"type":"text","image_url":{{"url":"{URL}"}},"text":"","type":"image_url"}}'),
    "duplicate uuid, null last": chat(f'{{"type":"image_url","image_url":{{"url":"{URL}"}},"uuid":"u","uuid":null}}'),
    "duplicate content": b'{"messages":[{"role":"user","content":[' + IMAGE.encode() + b'],"content":"text"}]}',
    "duplicate messages": b'{"messages":[{"role":"user","content":[' + IMAGE.encode() + b']}],"messages":'
    b'[{"role":"user","content":"text"}]}',
    "duplicate limits": chat(IMAGE, ',"max_tokens":5,"max_tokens":6,"n":2,"n":3'),
    "escaped keys": chat(
        f'{{"t\\u0079pe":"image_url","im\\u0061ge_url":{{"\\u0075rl":"{URL}"}}}}', ',"\\u006d\\u0061x_tokens":5'
    ),
    "escaped type": chat(f'{{"type":"image\\u005furl","image_url":{{"url":"{URL}"}}}}'),
    "escaped duplicate": chat(
        f'{{"type":"image_url","image_url":{{"url":"{URL}"}},"im\\u0061ge_url":{{"url":"{OTHER}"}}}}'
    ),
    "escaped slashes": chat(IMAGE.replace("/", "\\/")),
    "escapes in the url": chat(IMAGE.replace("data:", "d\\u0061ta\\u003a")),
    "surrogate pair": chat(IMAGE, ',"model":"\\ud83d\\ude00"'),
    "blanks everywhere": b' \r\n\t{ "messages" : [ { "role" : "user" , "content" : [ '
    + IMAGE.encode()
    + b" ] } ] } \n",
    "whole numbers as floats": chat(IMAGE, ',"max_tokens":16.0,"n":2e0'),
    "a large number": chat(IMAGE, ',"max_tokens":9223372036854775807'),
    "minus zero elsewhere": chat(IMAGE, ',"temperature":-0.0,"seed":-0'),
    "out of range elsewhere": chat(IMAGE, ',"temperature":1e999'),
    "nested elsewhere": chat(IMAGE, f',"x":{"[" * 50}{"]" * 50}'),
    "text like an image": chat(json.dumps({"type": "text", "text": IMAGE})),
    "no type": chat(f'{{"image_url":"{URL}"}}'),
    "a key nobody knows": chat(IMAGE, ',"":{"image_url":1}'),
    "escaped control characters": chat('{"type":"text","text":"a\\u0000\\n\\b"}'),
}


@pytest.mark.parametrize("name", READ_AS_VLLM_DOES)
def test_odd_bodies_are_read_as_vllm_reads_them(name):
    body = READ_AS_VLLM_DOES[name]
    assert as_gateway_reads(body) == reference(body)


PLAIN = chat(IMAGE).decode()
VLLM_READS_BUT_WE_REFUSE = {
    "byte order mark": PLAIN.encode("utf-8-sig"),
    "utf-16 with mark": PLAIN.encode("utf-16"),
    "utf-16-le": PLAIN.encode("utf-16-le"),
    "utf-16-be": PLAIN.encode("utf-16-be"),
    "utf-32": PLAIN.encode("utf-32"),
    "utf-32-le": PLAIN.encode("utf-32-le"),
    "NaN": chat(IMAGE, ',"temperature":NaN'),
    "Infinity": chat(IMAGE, ',"x":{"y":[-Infinity]}'),
    "lone high surrogate": chat('{"type":"text","text":"\\ud800 and more"}'),
    "lone low surrogate": chat(IMAGE, ',"user":"\\udc00 and more"'),
    "high surrogate twice": chat('{"type":"text","text":"\\ud800\\ud800 and more"}'),
    "surrogate as bytes": chat('{"type":"text","text":"@"}').replace(b"@", b"\xed\xa0\x80"),
    "out of range where it is read": chat('{"type":"text","text":"a","name":1e999}'),
    "a huge limit": chat(IMAGE, ',"max_tokens":9223372036854775808'),
    "thousands of digits": chat(IMAGE, f',"n":{"9" * 2000}'),
    "a wrong type that a duplicate repairs": b'{"messages":5,"messages":[{"role":"user","content":"a"}]}',
    "a number as text": chat(IMAGE, ',"max_tokens":"16"'),
    "a boolean as number": chat(IMAGE, ',"n":true'),
    "a number as boolean": chat(IMAGE, ',"stream":1'),
    "too many lists": chat(IMAGE, f',"x":[{"[]," * 100_000}1]'),
    "text as boolean": chat(IMAGE, ',"stream":"yes"'),
}


@pytest.mark.parametrize("name", VLLM_READS_BUT_WE_REFUSE)
def test_the_documented_refusals(name):
    body = VLLM_READS_BUT_WE_REFUSE[name]
    json.loads(body)

    with pytest.raises(GatewayError) as refused:
        _ = count_pieces(body) and parse_chat(body)
    assert refused.value.code in {Code.INVALID_JSON, Code.INVALID_REQUEST, Code.INVALID_CONTENT_PART}


NOBODY_READS = {
    "control character": chat('{"type":"text","text":"a\x01"}'),
    "line break": chat('{"type":"text","text":"a\n"}'),
    "bad escape": chat('{"type":"text","text":"\\q"}'),
    "latin-1": chat('{"type":"text","text":"ä"}').decode().encode("latin-1"),
    "trailing comma": PLAIN[:-1].encode() + b",}",
    "two bodies": PLAIN.encode() * 2,
    "trailing nul": PLAIN.encode() + b"\0",
    "cut off": PLAIN[:-5].encode(),
    "single quotes": PLAIN.replace('"', "'").encode(),
    "comment": PLAIN.encode() + b"// x",
    "leading zero": chat(IMAGE, ',"max_tokens":016'),
    "too deep": chat(IMAGE, f',"x":{"[" * 40_000}{"]" * 40_000}'),
    "too deep where it is read": chat(f'{{"type":{"[" * 40_000}{"]" * 40_000}}}'),
}


@pytest.mark.parametrize("name", NOBODY_READS)
def test_what_neither_reads(name):
    body = NOBODY_READS[name]
    with pytest.raises((ValueError, RecursionError)):
        json.loads(body)

    with pytest.raises(GatewayError) as refused:
        parse_chat(body)
    assert refused.value.code is Code.INVALID_JSON


json_values = st.sampled_from(
    [
        *(None, True, 0, 5, "", "u", URL, OTHER, "https://h/i.png", {"url": URL}, {"url": None}, {"url": 7}, {}, [URL]),
        *({"url": "https://h/v.mp4"}, {"data": "AAAA"}, {"url": "file:///etc/passwd"}),
    ]
)
part_keys = st.sampled_from(
    [
        "type",
        "type",
        "type",
        "image_url",
        "image_url",
        "uuid",
        "text",
        "detail",
        "name",
        "tool_reference",
        "refusal",
        "thinking",
        "video_url",
        "video_url",
        "audio_url",
        "image_embeds",
        "input_audio",
        "prompt_embeds",
        "image_pil",
        "source",
        "extra",
    ]
)
part_types = st.sampled_from([*TEXT_TYPES, *MEDIA_TYPES, "image_url", "image_url", "text", "image", "file", None, 5])


@st.composite
def spelled(draw, value):
    """JSON of a value in one of its spellings."""
    text = json.dumps(value, ensure_ascii=draw(st.booleans()))
    if draw(st.integers(0, 4)) == 0:
        text = text.replace("/", "\\/").replace("e", "\\u0065") if isinstance(value, str) else text
    return text


@st.composite
def spelled_parts(draw):
    """A part as text, with duplicate and escaped keys."""
    if draw(st.integers(0, 9)) == 0:
        return draw(spelled("bare"))
    members = []
    for _ in range(draw(st.integers(1, 5))):
        key = draw(part_keys)
        value = draw(part_types if key == "type" else json_values)
        members.append(f"{draw(spelled(key))}:{draw(spelled(value))}")
    return "{" + ",".join(members) + "}"


@st.composite
def valid_parts(draw):
    kind = draw(st.sampled_from(["text", "image", "bare image", "untyped", "video", "audio"]))
    url = draw(spelled(draw(st.sampled_from([URL, OTHER]))))
    uuid = draw(st.sampled_from(["", ',"uuid":"u"', ',"uuid":null']))
    return {
        "text": f'{{"type":"text","text":{draw(spelled("see"))}}}',
        "image": f'{{{draw(spelled("type"))}:"image_url",{draw(spelled("image_url"))}:{{"url":{url}}}{uuid}}}',
        "bare image": f'{{"type":"image_url","image_url":{url}{uuid}}}',
        "untyped": f'{{"image_url":{url}{uuid}}}',
        "video": f'{{{draw(spelled("type"))}:"video_url",{draw(spelled("video_url"))}:{{"url":{url}}}{uuid}}}',
        "audio": f'{{"type":"input_audio","input_audio":{{"data":{url},"format":"wav"}}{uuid}}}',
    }[kind]


@st.composite
def bodies(draw):
    messages = [
        f'{{"role":{draw(spelled(draw(st.sampled_from(["user", "system", "tool"]))))},"content":[{",".join(parts)}]}}'
        for parts in draw(st.lists(st.lists(spelled_parts() | valid_parts(), min_size=1, max_size=3), max_size=2))
    ]
    fields = draw(
        st.sampled_from(["", ',"n":2', ',"max_tokens":4.0', ',"stream":true', ',"max_tokens":3,"max_tokens":9'])
    )
    return f'{{"messages":[{",".join(messages)}]{fields}}}'.encode()


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(bodies())
def test_any_body_is_refused_or_read_as_vllm_reads_it(body):
    found = as_gateway_reads(body)
    assert found is None or found == reference(body)
