from hypothesis import given
from hypothesis import strategies as st

from gateway.imaging.strikes import MOST_STRIKES, Strikes


@given(st.lists(st.sampled_from([b"a", b"b", b"c"])))
def test_a_picture_is_out_when_it_struck_twice(struck):
    strikes = Strikes()
    for digest in struck:
        strikes.add(digest, 0.0)
    assert {digest for digest in (b"a", b"b", b"c") if strikes.is_out(digest)} == {
        digest for digest in struck if struck.count(digest) >= MOST_STRIKES
    }


def test_so_many_are_remembered_and_the_one_that_struck_longest_ago_goes():
    strikes = Strikes(most_pictures=2)
    for digest in (b"a", b"b", b"a", b"c"):
        strikes.add(digest, 0.0)
    assert len(strikes) == 2
    assert strikes.is_out(b"a")
    strikes.add(b"b", 0.0)
    assert not strikes.is_out(b"b")


def test_a_single_strike_is_forgotten_after_an_hour_and_two_never():
    strikes = Strikes()
    strikes.add(b"a", 0.0)
    strikes.add(b"a", 3600.0)
    assert not strikes.is_out(b"a")
    strikes.add(b"a", 7199.0)
    assert strikes.is_out(b"a")
    strikes.add(b"a", 1e9)
    assert strikes.is_out(b"a")
