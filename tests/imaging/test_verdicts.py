import pytest

from gateway.domain.errors import Code, GatewayError
from gateway.domain.geometry import Size
from gateway.imaging.verdicts import Damage, Prepared, Verdict, VerdictCache, VerdictKey


def key(name: str) -> VerdictKey:
    return VerdictKey(name.encode(), Size(28, 28), "encoder")


def verdict(byte_count: int) -> Verdict:
    """One that holds `byte_count` bytes in the cache."""
    return Verdict(prepared=Prepared(bytes(byte_count - 512), "image/jpeg", byte_count, frozenset()))


def test_the_least_recently_used_leaves_first():
    cache = VerdictCache(3000)
    for name in ("a", "b", "c"):
        cache.put(key(name), verdict(1000))
    cache.get(key("a"))

    cache.put(key("d"), verdict(1000))

    assert [name for name in "abcd" if cache.get(key(name))] == ["a", "c", "d"]
    assert cache.currsize == 3000
    assert len(cache) == 3


def test_one_large_entry_pushes_out_several():
    cache = VerdictCache(3000)
    for name in ("a", "b", "c"):
        cache.put(key(name), verdict(1000))

    cache.put(key("d"), verdict(2500))

    assert len(cache) == 1
    assert cache.currsize == 2500


def test_what_is_larger_than_the_cache_is_not_kept():
    cache = VerdictCache(3000)
    cache.put(key("a"), verdict(1000))
    cache.put(key("b"), verdict(3001))

    assert cache.get(key("a"))
    assert cache.get(key("b")) is None


def test_an_entry_put_again_is_counted_once():
    cache = VerdictCache(3000)
    cache.put(key("a"), verdict(1000))
    cache.put(key("a"), verdict(2000))

    assert cache.currsize == 2000


def test_target_and_encoder_are_part_of_the_key():
    cache = VerdictCache(10_000)
    cache.put(key("a"), verdict(1000))

    assert cache.get(key("a")._replace(target=None)) is None
    assert cache.get(key("a")._replace(encoder_id="another")) is None


def test_damage_is_told_about_the_part_of_today():
    damaged = Verdict(damage=Damage(Code.IMAGE_PARSE_ERROR, "It is broken."))
    with pytest.raises(GatewayError, match=r"^It is broken\.$") as caught:
        damaged.answer("messages[7].content[0].image_url.url")
    assert caught.value.param == "messages[7].content[0].image_url.url"


def test_a_sound_picture_has_no_answer():
    assert Verdict().answer("image") is None
    assert Verdict().held_bytes > 0
