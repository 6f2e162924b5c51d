"""Edited bodies equal the edited JSON: every case is checked through `json.loads`."""

import base64
import itertools
import json

import pytest

from gateway.wire.chat import parse_chat
from gateway.wire.data_url import read_data_url
from gateway.wire.edits import edit_image_url, locate_parts, remove_uuid, replace_part_by_text
from gateway.wire.splice import splice

PAYLOAD = "ABCDEFGHIJI="
URL = f"data:image/png;base64,{PAYLOAD}"
NEW = base64.b64encode(b"new file")
NEW_URL = f"data:image/webp;base64,{NEW.decode()}"


def chat(*parts):
    """A body with fields that nobody knows, odd spacing and content around the parts, spelled as given."""
    return (
        b'{ "unknown": {"a": [1, 2.50, "\\u00e4"]}, "messages": [{"role": "system", "content": "s"},\n'
        b'{"role": "user", "x": 1, "content": [' + b" , ".join(parts) + b' ]}], "model" :"m", "after": null}'
    )


def part_of(*, url=URL, **keys):
    return json.dumps({"type": "image_url", "image_url": {"url": url}, **keys}).encode()


def edited(body, splices):
    return json.loads(b"".join(splice(body, splices)))


def with_parts(body, parts):
    expected = json.loads(body)
    expected["messages"][1]["content"] = parts
    return expected


def edit(body, media_type, encoded=None, ordinal=0):
    ref = parse_chat(body).images[ordinal]
    return edit_image_url(ref, read_data_url(body, ref), media_type, encoded)


def test_a_right_url_needs_no_edit():
    assert edit(chat(part_of()), "image/png") == ()
    assert edit(chat(part_of(url=URL.replace("/png", "/png;charset=utf-8"))), "image/png") == ()
    assert edit(chat(part_of().replace(b"/", b"\\/")), "image/png") == ()


@pytest.mark.parametrize(
    "url",
    [URL.replace("png", "jpeg"), URL.replace("image/png", ""), URL.replace("data", "DATA"), URL.replace("64", " 64")],
)
@pytest.mark.parametrize("is_escaped", [False, True])
def test_headers_are_made_true(url, is_escaped):
    url = url.replace(" 64", "64").replace("base", "BASE") if " 64" in url else url
    part = part_of(url=url, extra=1)
    body = chat(part.replace(b"/", b"\\/") if is_escaped else part)

    splices = edit(body, "image/png")

    assert edited(body, splices) == with_parts(body, [json.loads(part_of(extra=1))])
    if not is_escaped:
        (only,) = splices
        assert only.span.end - only.span.start == url.index(",") + 1


@pytest.mark.parametrize("url", [URL.replace("EFGH", "\nEFGH"), f" {URL}\t", URL.replace(",", ", "), URL.rstrip("=")])
def test_payloads_are_spelled_anew(url):
    body = chat(b'"text"', part_of(url=url))
    assert edited(body, edit(body, "image/png")) == with_parts(body, ["text", json.loads(part_of())])


@pytest.mark.parametrize("url", [URL, f" {URL}", URL.rstrip("="), URL.replace("base64", "BASE64")])
def test_another_file_takes_the_place(url):
    body = chat(part_of(url=url, detail=1))
    assert edited(body, edit(body, "image/webp", NEW)) == with_parts(body, [json.loads(part_of(url=NEW_URL, detail=1))])


@pytest.mark.parametrize(("media_type", "encoded", "url"), [("image/png", None, URL), ("image/webp", NEW, NEW_URL)])
def test_a_bare_string_becomes_an_object(media_type, encoded, url):
    body = chat(json.dumps({"type": "image_url", "image_url": URL, "k": [1]}).encode())
    assert edited(body, edit(body, media_type, encoded)) == with_parts(body, [json.loads(part_of(url=url, k=[1]))])


def test_where_vllm_takes_a_string_it_stays_one():
    parts = [{"image_url": URL}, {"type": "input_image", "image_url": URL, "detail": "auto"}]
    body = chat(*(json.dumps(part).encode() for part in parts))

    splices = [item for ordinal in (0, 1) for item in edit(body, "image/webp", NEW, ordinal)]

    assert edited(body, splices) == with_parts(body, [{**part, "image_url": NEW_URL} for part in parts])


def test_of_duplicate_keys_the_one_that_counts_is_edited():
    old = "data:image/png;base64,////"
    body = chat(
        f'{{"image_url":{{"url":"{old}"}},"type":"image_url","image_url":{{"url":"{old}","\\u0075rl":"{URL}"}}}}'.encode()
    )
    assert edited(body, edit(body, "image/webp", NEW)) == with_parts(body, [json.loads(part_of(url=NEW_URL))])


UUID_PARTS = {
    "last": f'{{"type": "image_url", "image_url": {{"url": "{URL}"}}, "uuid": "u"}}',
    "first": f'{{"uuid": "u", "type": "image_url", "image_url": {{"url": "{URL}"}}}}',
    "between": f'{{ "type": "image_url" ,\n "uuid" : {{"a": [1]}} , "image_url": {{"url": "{URL}"}} , "x" : 1 }}',
    "twice": f'{{"uuid": null, "type": "image_url", "uuid": "u", "image_url": {{"url": "{URL}"}}, "\\u0075uid": "v"}}',
    "with other duplicates": f'{{"type": "text", "uuid": "u", "image_url": {{"url": "{URL}"}}, "type": "image_url"}}',
    "beside odd keys": f'{{"\\"k,": {{}}, "uuid": 1, "type": "image_url", "image_url": {{"url": "{URL}"}}, "": "é"}}',
    "beside a bare string": f'{{"type": "image_url", "image_url": "{URL}", "uuid": "u"}}',
    "beside a bare string at the end": f'{{"uuid": "u", "type": "image_url", "image_url": "{URL}"}}',
    "beside a bare string before more": f'{{"uuid": "u", "type": "image_url", "image_url": "{URL}", "k": 1}}',
}


@pytest.mark.parametrize("name", UUID_PARTS)
@pytest.mark.parametrize("is_changed", [False, True])
def test_a_uuid_is_taken_out_however_it_stands_there(name, is_changed):
    part = UUID_PARTS[name].encode()
    body = chat(part_of(), part, b'"end"')
    request = parse_chat(body)
    assert [ref.has_uuid for ref in request.images] == [False, True]
    spans = locate_parts(body, request)
    assert body[slice(*spans[1].part)] == part

    splices = list(remove_uuid(spans[1]))
    expected = json.loads(part)
    del expected["uuid"]
    if is_changed or "bare" in name:
        splices += edit(body, "image/webp", NEW, ordinal=1)
        expected["image_url"] = {"url": NEW_URL}

    assert edited(body, splices) == with_parts(body, [json.loads(part_of()), expected, "end"])


def test_a_part_of_nothing_but_uuid_and_image_keeps_the_image():
    body = chat(f'{{"uuid":"u","image_url":"{URL}","uuid":"v"}}'.encode())
    (spans,) = locate_parts(body, parse_chat(body)).values()
    assert edited(body, remove_uuid(spans)) == with_parts(body, [{"image_url": URL}])


@pytest.mark.parametrize("dropped", list(itertools.product([False, True], repeat=3)))
def test_trimmed_parts_become_text(dropped):
    parts = [part_of(), json.dumps({"type": "image_url", "image_url": URL, "uuid": "u"}).encode(), part_of(k=1)]
    body = chat(b'{"type": "text", "text": "a"}', *parts)
    spans = locate_parts(body, parse_chat(body))
    marker = 'gone "for" room \N{EM DASH}'

    splices = [replace_part_by_text(spans[i].part, marker) for i in range(3) if dropped[i]]

    text = {"type": "text", "text": marker}
    kept = [text if dropped[i] else json.loads(parts[i]) for i in range(3)]
    assert edited(body, splices) == with_parts(body, [{"type": "text", "text": "a"}, *kept])


def test_a_message_of_one_trimmed_image_keeps_its_list():
    body = chat(part_of())
    (spans,) = locate_parts(body, parse_chat(body)).values()
    assert edited(body, [replace_part_by_text(spans.part, "gone")]) == with_parts(
        body, [{"type": "text", "text": "gone"}]
    )


def test_many_edits_at_once_leave_the_rest_byte_for_byte():
    parts = [part_of(), part_of(uuid="u"), part_of(url=URL.replace("png", "jpg"))]
    body = chat(*parts)
    spans = locate_parts(body, parse_chat(body))

    splices = [
        replace_part_by_text(spans[0].part, "gone"),
        *remove_uuid(spans[1]),
        *edit(body, "image/webp", NEW, ordinal=1),
        *edit(body, "image/png", ordinal=2),
    ]
    new_body = b"".join(splice(body, splices))

    assert json.loads(new_body) == with_parts(
        body, [{"type": "text", "text": "gone"}, json.loads(part_of(url=NEW_URL)), json.loads(part_of())]
    )
    assert new_body.startswith(body[: spans[0].part.start])
    assert new_body.endswith(body[spans[2].part.end :])
