"""Who may ask for a stored answer."""

from hashlib import sha256

import pytest

from gateway.domain.errors import Code, GatewayError
from gateway.domain.stored_answers import StoredAnswer, StoredAnswers, StoringPolicy, owner_of, refuse_by_policy
from gateway.domain.tenancy import Tenancy, Tenant
from gateway.server.door import Arrival

ANNAS = StoredAnswer("anna", "first")


def answers_of(**kept):
    answers = StoredAnswers(most=2)
    for name, owner in kept.items():
        answers.keep(name, StoredAnswer(owner, "first"))
    return answers


def test_its_owner_finds_it_and_where_it_is():
    assert answers_of(a="anna").find("a", "anna") == ANNAS


@pytest.mark.parametrize("asked", ["a", "b"])
def test_anothers_is_not_found_just_as_one_that_never_was(asked):
    with pytest.raises(GatewayError) as caught:
        answers_of(a="anna").find(asked, "bert")
    error = caught.value
    assert (error.code, error.status, error.message) == (
        Code.NOT_FOUND, 404, f"Response with id '{asked}' not found.",
    )  # fmt: skip


def test_an_id_stays_whose_it_was():
    answers = answers_of(a="anna")
    answers.keep("a", StoredAnswer("bert", "first"))
    assert answers.find("a", "anna") == ANNAS


def test_the_oldest_is_forgotten():
    answers = answers_of(a="anna", b="anna", c="anna")
    assert len(answers) == 2
    with pytest.raises(GatewayError):
        answers.find("a", "anna")
    assert answers.find("c", "anna") == ANNAS


class TestOwners:
    def test_a_tenants_keys_are_one_owner(self):
        tenant = Tenant("one", is_named=True)
        assert owner_of(tenant, b"k1") == owner_of(tenant, b"k2") == "tenant one"

    def test_strangers_are_owners_by_their_keys_however_crowded_it_is(self):
        digest = sha256(b"k").hexdigest()
        everyone_else = Tenant("default", is_named=True)  # as the settings may name it
        tenants = [Tenant(), Tenant("crowd"), Tenancy().tenant_of(b"k", 0.0), everyone_else]
        assert {owner_of(tenant, b"k") for tenant in tenants} == {f"key {digest}"}
        assert owner_of(Tenant(), b"other") != owner_of(Tenant(), b"k")

    def test_those_whom_a_proxy_names_are_owners_by_their_names_however_crowded_it_is(self):
        one, other = (Arrival(named_as=name).identity for name in (b"one", b"other"))
        assert owner_of(Tenant("crowd"), one) == owner_of(Tenancy().tenant_by_name(b"one", 0.0), one)
        assert len({owner_of(Tenant("crowd"), each) for each in (one, other, b"one", b"")}) == 4
        assert owner_of(Tenant("gold", is_named=True), one) == "tenant gold"

    def test_who_has_no_key_shares_with_all_who_have_none(self):
        assert owner_of(Tenant(), b"") == owner_of(Tenant(), b"")

    def test_no_tenants_name_is_anybodys_key(self):
        digest = sha256(b"k").hexdigest()
        assert owner_of(Tenant(f"key {digest}", is_named=True), b"x") != owner_of(Tenant(), b"k")


class TestThePolicy:
    def test_lets_nothing_in_at_first(self):
        for fields in ({"previous_id": "a", "is_background": False}, {"previous_id": None, "is_background": True}):
            with pytest.raises(GatewayError) as caught:
                refuse_by_policy(StoringPolicy(), **fields)
            assert caught.value.status == 400
            assert "The setting responses.allow_" in caught.value.message

    def test_lets_in_what_the_operator_allows(self):
        refuse_by_policy(StoringPolicy(previous=True, background=True), "a", is_background=True)
