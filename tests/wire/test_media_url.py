"""Addresses of videos and audio: what vLLM and the gateway are sure to read alike, and nothing else."""

import json

import pytest

from gateway.domain.errors import Code, GatewayError
from gateway.wire.media_url import MediaUrl, read_media_url

PATH = "messages[0].content[0].video_url.url"


def read(url, *, spelled=None):
    string = json.dumps(url) if spelled is None else spelled
    return read_media_url(memoryview(string.encode()), PATH)


@pytest.mark.parametrize(
    "url",
    [
        "data:video/mp4;base64,AAAA",
        "DATA:video/mp4;base64,AAAA",
        "data:;base64,AAAA",
        "data:video/mp4;codecs=avc1;base64,AAAA",
        "data:audio/wav;base64,AAAA",
        "data:video/mp4;base64,",
    ],
)
def test_data_is_asked_of_nobody(url):
    assert read(url) == MediaUrl()


def test_an_escaped_slash_is_a_slash():
    assert read("", spelled=r'"data:video\/mp4;base64,AAAA\/\/"') == MediaUrl()


@pytest.mark.parametrize(
    ("payload", "frames"),
    [("AAAA", 1), ("AAAA,BBBB", 2), ("A," * 70_000, 70_001), ("", 1)],
    ids=["1", "2", "many", "0"],
)
def test_a_list_of_pictures_has_as_many_frames_as_files(payload, frames):
    assert read(f"data:video/jpeg;base64,{payload}") == MediaUrl(frames=frames)
    assert read(f"data:Video/JPEG;x=1;base64,{payload}") == MediaUrl(frames=frames)


def test_commas_that_may_be_escaped_are_not_counted():
    assert read("", spelled=r'"data:video/jpeg;base64,AAAA\u002cBBBB"') == MediaUrl(frames=None)


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://videos.example.com/a.mp4", "videos.example.com"),
        ("HTTP://Videos.Example.com:8080/a.mp4?b=c#d", "videos.example.com"),
        ("http://10.0.0.7", "10.0.0.7"),
        ("http://videos.example.com.:81/", "videos.example.com."),
        ("http://a?b=http://other/", "a"),
        ("http://a#@other/", "a"),
        ("http://a/@other/", "a"),
    ],
)
def test_of_an_address_the_host_is_told(url, host):
    assert read(url) == MediaUrl(host=host)


@pytest.mark.parametrize(
    "url",
    [
        "",
        " data:video/mp4;base64,AAAA",
        "data:video/mp4;base64 ,AAAA",
        "data: video/mp4;base64,AAAA",
        "data:video/mp4,AAAA",
        "data:video/mp4;BASE64,AAAA",
        "data:video/mp4;base64",
        "data:vidéo/mp4;base64,AAAA",
        f"data:{'x' * 1100};base64,AAAA",
        "file:///etc/passwd",
        "ftp://videos.example.com/a.mp4",
        "//videos.example.com/a.mp4",
        "videos.example.com/a.mp4",
        "https://user@videos.example.com/a.mp4",
        "https://allowed.example.com:80@videos.example.com/",
        r"https://allowed.example.com\@videos.example.com/",
        r"https:\\videos.example.com",
        "https:///videos.example.com/",
        "https://[::1]/a.mp4",
        "https://videos.example.com /a.mp4",
        "https://videos.example.com/a b.mp4",
        "https://vidéos.example.com/a.mp4",
        "https://videos.example.com/\n",
        "https://videos.example.com:port/",
        "http://a/" + "x" * 9000,
    ],
)
def test_what_could_be_read_in_two_ways_is_refused(url):
    with pytest.raises(GatewayError) as refused:
        read(url)
    assert (refused.value.code, refused.value.param) == (Code.INVALID_CONTENT_PART, PATH)


@pytest.mark.parametrize(
    "spelled",
    [
        r'"\u0064ata:video/mp4;base64,AAAA"',  # data, but what is it to others?
        r'"data:video/jpeg;base64\u002cA;base64,AAAA"',  # an earlier comma than the first that is seen
        r'"data:' + "x" * 1021 + r'\u0020"',  # cut within an escape
    ],
)
def test_a_header_that_hides_in_escapes_is_refused(spelled):
    with pytest.raises(GatewayError):
        read("", spelled=spelled)
