from ipaddress import ip_network

import pytest
from yarl import URL

from gateway.domain.errors import Code
from gateway.fetch.address import MOST_CHARACTERS, AddressRules
from gateway.fetch.errors import FetchError
from gateway.fetch.guard import AddressGuard

RULES = AddressRules(AddressGuard(), (80, 443))


def refusal(text: str, rules: AddressRules = RULES) -> str:
    with pytest.raises(FetchError) as caught:
        rules.read(text)
    assert caught.value.code is Code.INVALID_IMAGE_URL
    return caught.value.sentence


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("http://example.com/a.png", "http://example.com/a.png"),
        ("HTTPS://Example.COM:443/a%2Fb.png?x=%2f%C3%BC#part", "https://Example.COM/a%2Fb.png?x=%2f%C3%BC"),
        ("https://bücher.example/ü.png", "https://xn--bcher-kva.example/%C3%BC.png"),
        ("http://[2606:4700::1111]/a", "http://[2606:4700::1111]/a"),
        ("http://93.184.216.34:80", "http://93.184.216.34"),
    ],
)
def test_addresses_are_read_as_they_will_be_asked(text, read):
    assert str(RULES.read(text)) == read


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("file:///etc/passwd", "http and https"),
        ("ftp://example.com/a", "http and https"),
        ("gopher://example.com:80/_x", "http and https"),
        ("http:///x.png", "with a host"),
        ("http://", "with a host"),
        ("/etc/passwd", "http and https"),
        ("", "http and https"),
        ("http://user@example.com/", "user name"),
        ("http://user:word@example.com/", "user name"),
        ("http://:word@example.com/", "user name"),
        ("http://example.com:8080/a", "80, 443 (images.remote.allow_ports)"),
        ("http://example.com:0/a", "cannot be read"),
        ("http://127.0.0.1%00.example.com/", "cannot be read"),
        ("http://[fe80::1%25eth0]/", "cannot be read"),
        ("http://example.com:99999/a", "cannot be read"),
        ("http://exa mple.com/", "percent-encode"),
        ("http://example.com/\n", "percent-encode"),
        ("http://example.com\\@127.0.0.1/", "backslashes"),
        ("http://example.com/\x7f", "control characters"),
        ("http://[::1", "cannot be read"),
        ("http://[]@", "cannot be read"),
        ("http://]a[@", "cannot be read"),
        ("http://example.com/" + "a" * MOST_CHARACTERS, f"longer than {MOST_CHARACTERS}"),
    ],
)
def test_what_is_not_asked_is_told_why(text, hint):
    assert hint in refusal(text)


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "169.254.169.254",
        "10.0.0.5",
        "[fe80::1]",
        "127。0。0。1",
    ],
)
def test_literal_addresses_are_judged_at_once_and_all_in_the_same_words(host):
    assert refusal(f"http://{host}/x.png") == refusal("http://192.168.0.1/y.png")


def test_an_allowed_network_opens_its_literal_addresses():
    rules = AddressRules(AddressGuard([ip_network("10.0.0.0/8")]), (80,))
    assert rules.read("http://10.0.0.5/x.png") == URL("http://10.0.0.5/x.png")
    assert "public internet" in refusal("http://127.0.0.1/", rules)


def test_where_hosts_are_named_no_other_is_asked():
    rules = AddressRules(AddressGuard(), (443,), ["Pictures.example"])
    assert rules.read("https://PICTURES.example/a").host == "pictures.example"
    assert "allow_hosts" in refusal("https://more.pictures.example/a", rules)


@pytest.mark.parametrize(
    ("location", "where"),
    [
        ("/b.png", "https://example.com/b.png"),
        ("b.png?c#d", "https://example.com/a/b.png?c"),
        ("//other.example/b", "https://other.example/b"),
        ("http://other.example/b", "http://other.example/b"),
    ],
)
def test_a_redirect_leads_where_a_browser_would_go(location, where):
    assert str(RULES.redirected(URL("https://example.com/a/x.png"), location)) == where


@pytest.mark.parametrize(
    "location",
    [
        *("http://127.0.0.1/x", "file:///etc/passwd", "http://example.com:22/", "http://u@example.com/", "//[::1]/"),
        *("http://[]@", "/ a", "/\\a", "http://[::1", "/" + "a" * MOST_CHARACTERS),
    ],
)
def test_a_redirect_is_judged_like_an_address(location):
    with pytest.raises(FetchError) as caught:
        RULES.redirected(URL("https://example.com/"), location)
    assert caught.value.code is Code.INVALID_IMAGE_URL
