"""A tenant's names and salts are written in place of the client's, and nothing else is."""

import json

import pytest

from gateway.domain.request import Span
from gateway.wire.chat import parse_chat
from gateway.wire.edits import locate_parts
from gateway.wire.isolated import rename_image, salt_prefixes
from gateway.wire.splice import Splice, splice

CHAT = {"messages": [{"role": "user", "content": "é"}], "n": 1}


def salted(body, *others):
    splices = [salt_prefixes(body, parse_chat(body).salt, "s1"), *others]
    return b"".join(splice(body, splices))


def test_a_salt_is_written_before_all_else():
    body = b" " + json.dumps(CHAT).encode()
    assert salted(body) == body.replace(b" {", b' {"cache_salt":"s1",', 1)
    assert json.loads(salted(body)) == CHAT | {"cache_salt": "s1"}


@pytest.mark.parametrize("own", ['"mine"', "null", '"a", "cache_salt": "b"', '"a", "\\u0063ache_salt" : "b" '])
def test_the_clients_own_is_written_over_where_vllm_reads_it(own):
    body = b'{"messages": [{"role": "user", "content": "hi"}], "cache_salt": %s}' % own.encode()
    assert json.loads(salted(body))["cache_salt"] == "s1"


def test_it_goes_along_with_what_is_written_before_the_first_member():
    body = json.dumps(CHAT).encode()
    start = body.index(b"{") + 1
    both = salted(body, Splice(Span(start, start), b'"max_tokens":5,'))
    assert json.loads(both) == CHAT | {"cache_salt": "s1", "max_tokens": 5}


PARTS = {
    "with an image": '{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}, "uuid": "u", "k": [1]}',
    "alone": '{"type":"image_url","image_url":null,"uuid":"u"}',
    "twice": '{"uuid": "t", "image_url": null, "\\u0075uid" : "u" }',
}


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
def test_an_image_is_renamed_in_its_place(part):
    body = b'{"messages": [{"role": "user", "content": [%s]}]}' % part.encode()
    spans = locate_parts(body, parse_chat(body))[0]
    renamed = json.loads(b"".join(splice(body, [rename_image(spans, "other")])))
    expected = json.loads(body)
    expected["messages"][0]["content"][0]["uuid"] = "other"
    assert renamed == expected
