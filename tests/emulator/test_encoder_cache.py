"""Embeddings stay until their room is needed; what a sequence refers to is never thrown out."""

from gateway.emulator.encoder_cache import EncoderCache


def test_an_unused_entry_stays_until_its_room_is_needed() -> None:
    cache = EncoderCache(10)
    cache.hold(b"a", 6)
    cache.release(b"a")

    assert b"a" in cache
    assert cache.held_tokens == 0
    cache.hold(b"b", 5)
    assert b"a" not in cache


def test_what_is_held_takes_room_once_however_many_hold_it() -> None:
    cache = EncoderCache(10)
    cache.hold(b"a", 6)
    cache.hold(b"a", 6)

    assert cache.held_tokens == 6
    assert cache.fits(4)
    assert not cache.fits(5)
    cache.release(b"a")
    assert not cache.fits(5)


def test_the_longest_unused_goes_first_and_no_more_than_needed() -> None:
    cache = EncoderCache(9)
    for name in (b"a", b"b", b"c"):
        cache.hold(name, 3)
        cache.release(name)
    cache.hold(b"a", 3)
    cache.hold(b"d", 3)

    assert [name for name in (b"a", b"b", b"c", b"d") if name in cache] == [b"a", b"c", b"d"]
