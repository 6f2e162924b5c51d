"""What leaves for a shared server under one tenant's word is never what leaves under another's."""

from hypothesis import assume, given
from hypothesis import strategies as st

from gateway.domain.isolation import Isolation, may_name_images
from gateway.domain.tenancy import CROWD

HERE = Isolation.of(b"of this deployment", salts_prefixes=True)
WORDS = st.text(max_size=12)
FILES = st.binary(max_size=8)
NAMED = st.tuples(WORDS, WORDS, FILES, WORDS)


@given(NAMED, NAMED)
def test_two_pictures_never_have_one_name(one, other):
    assume(one != other)
    assert HERE.image_name(*one) != HERE.image_name(*other)


@given(NAMED)
def test_the_same_picture_of_the_same_tenant_always_has_the_same_name(named):
    assert HERE.image_name(*named) == HERE.image_name(*named)
    assert HERE.image_name(*named) != Isolation.of(b"another", salts_prefixes=True).image_name(*named)


def test_a_picture_that_is_changed_has_another_name():
    as_it_came = HERE.image_name("a", "1", b"digest", "")
    smaller = HERE.image_name("a", "1", b"digest", "pillow-12|640x480")
    assert len({as_it_came, smaller, HERE.image_name("a", "1", b"digest", "pillow-13|640x480")}) == 3


def test_parts_do_not_run_into_each_other():
    assert HERE.image_name("ab", "c", b"", "") != HERE.image_name("a", "bc", b"", "")
    assert HERE.salt("ab", "c", "") != HERE.salt("a", "bc", "")


SALTED = st.tuples(WORDS, st.none() | WORDS)


@given(SALTED, SALTED)
def test_two_tenants_never_share_a_salt_whatever_they_ask_for(one, other):
    assume(one != other)
    assert HERE.salt(*one, "r") != HERE.salt(*other, "r")
    assert HERE.salt(*one, "r1") == HERE.salt(*one, "r2")


@given(SALTED)
def test_a_client_cannot_name_the_salt_that_another_one_gets(salted):
    assert HERE.salt("victim", None, "r") != HERE.salt("attacker", HERE.salt("victim", None, "r"), "r")
    assert HERE.salt(*salted, "r") not in salted


def test_vllm_takes_what_is_made():
    for text in (HERE.salt("t", None, "r"), HERE.image_name("t", "u", b"", "")):
        assert len(text) <= 128
        assert not set(text) & set("@/\\\0")


def test_those_that_could_not_be_told_apart_share_nothing():
    assert not may_name_images(CROWD)
    assert may_name_images("")
    assert HERE.salt(CROWD, None, "r1") != HERE.salt(CROWD, None, "r2")
    assert HERE.salt(CROWD, "own", "r1") != HERE.salt(CROWD, "own", "r2")


def test_the_secret_is_not_printed():
    assert "key" not in repr(HERE)
