import pytest
from multidict import CIMultiDict

from gateway.fetch.cache import FetchCache, Kept, renewed, worth_keeping

SOURCE = "https://pictures.example/a.png"
NOW = 1000.0


def keeping(**headers: str) -> Kept | None:
    named = CIMultiDict({name.replace("_", "-"): value for name, value in headers.items()})
    return worth_keeping(memoryview(b"AAAA"), SOURCE, named, NOW)


@pytest.mark.parametrize(
    ("control", "seconds"),
    [
        ("max-age=60", 60),
        ("public, MAX-AGE=60", 60),
        ('max-age="60"', 60),
        ("max-age = 60, must-revalidate", 60),
        ("max-age=99999999", 3600),
        ("s-maxage=60, max-age=5", 5),
        ("max-age=60, no-cache", 0),
        ("no-cache", 0),
        ("max-age=0", 0),
        ("max-age=-5", 0),
        ("max-age=soon", 0),
        ("x-max-age=60", 0),
        ("", 0),
    ],
)
def test_a_picture_is_fresh_for_as_long_as_its_host_says(control, seconds):
    kept = keeping(cache_control=control, etag='"1"')
    assert kept is not None
    assert kept.fresh_until == NOW + seconds


@pytest.mark.parametrize(("age", "seconds"), [("45", 15), ("90", 0), ("old", 60), ("-1", 60), ("²", 60)])
def test_what_it_has_spent_in_other_caches_counts(age, seconds):
    kept = keeping(cache_control="max-age=60", age=age, etag='"1"')
    assert kept is not None
    assert kept.fresh_until == NOW + seconds


def test_nothing_is_kept_that_the_host_forbids_or_that_nobody_could_ask_about():
    assert keeping(cache_control="no-store, max-age=60", etag='"1"') is None
    assert keeping() is None
    assert keeping(cache_control="max-age=0") is None
    assert keeping(cache_control="max-age=1") is not None


def test_the_question_names_the_strongest_validator_and_only_to_its_own_source():
    both = keeping(etag='"1"', last_modified="Tue, 01 Dec 2026 00:00:00 GMT")
    dated = keeping(last_modified="Tue, 01 Dec 2026 00:00:00 GMT")
    fresh = keeping(cache_control="max-age=60")
    assert both is not None
    assert dated is not None
    assert fresh is not None
    assert both.question(SOURCE) == {"If-None-Match": '"1"'}
    assert both.question("https://elsewhere.example/") == {}
    assert dated.question(SOURCE) == {"If-Modified-Since": "Tue, 01 Dec 2026 00:00:00 GMT"}
    assert fresh.question(SOURCE) == {}


def test_a_renewed_picture_is_fresh_from_then_on():
    kept = keeping(cache_control="max-age=60", etag='"1"')
    assert kept is not None
    again = renewed(kept, CIMultiDict({"Cache-Control": "max-age=10"}), NOW + 100)
    assert again is not None
    assert (again.fresh_until, again.etag, again.base64) == (NOW + 110, '"1"', kept.base64)
    assert renewed(kept, CIMultiDict({"Cache-Control": "no-store"}), NOW + 100) is None


def test_every_line_of_cache_control_counts():
    lines = CIMultiDict([("Cache-Control", "max-age=600"), ("cache-control", "no-store"), ("ETag", '"1"')])
    assert worth_keeping(memoryview(b"AAAA"), SOURCE, lines, NOW) is None


@pytest.mark.parametrize("etag", ['"\x01"', '"é"', '"' + "a" * 300 + '"', ""])
def test_a_validator_that_cannot_be_sent_back_is_none(etag):
    assert keeping(etag=etag) is None


def test_words_count_as_well_as_pictures():
    kept = Kept(memoryview(b"AAAA"), "x" * 8000, '"1"', None, NOW)
    assert kept.held_bytes >= 2 * 8000


def picture(letters: int) -> Kept:
    return Kept(memoryview(b"A" * letters), SOURCE, '"1"', None, NOW)


def test_the_one_not_used_for_longest_goes_first_and_bytes_are_the_bound():
    cache = FetchCache(3 * picture(1000).held_bytes)
    for name in "abc":
        cache.put(name, picture(1000))
    assert cache.get("a") is not None
    cache.put("d", picture(1000))
    assert [name for name in "abcd" if cache.get(name)] == ["a", "c", "d"]
    assert (len(cache), cache.currsize) == (3, 3 * picture(1000).held_bytes)
    cache.put("a", picture(10_000))
    assert cache.get("a") is None
    cache.put("c", None)
    cache.put("gone", None)
    assert (len(cache), cache.currsize) == (1, picture(1000).held_bytes)
