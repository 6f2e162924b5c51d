"""Whose a request is, and how urgent it may be."""

from hashlib import sha256

import pytest

from gateway.domain.priority import Priority
from gateway.domain.tenancy import Tenancy, Tenant

GOLD = Tenant("gold", "gold", weight=3.0, priority=Priority.INTERACTIVE, most_urgent=Priority.CRITICAL)


def digest(key):
    return sha256(key).digest()


class TestPriority:
    @pytest.mark.parametrize("asked", Priority)
    def test_nobody_without_more_rights_gets_beyond_interactive(self, asked):
        assert Tenant().priority_of(asked) is max(asked, Priority.INTERACTIVE)

    def test_who_asks_for_nothing_gets_the_tenant_s_own(self):
        assert Tenant().priority_of(None) is Priority.DEFAULT
        assert GOLD.priority_of(None) is Priority.INTERACTIVE

    def test_less_urgent_than_the_default_can_always_be_had(self):
        assert GOLD.priority_of(Priority.BATCH) is Priority.BATCH
        assert GOLD.priority_of(Priority.CRITICAL) is Priority.CRITICAL


class TestModels:
    def test_who_is_given_no_list_may_use_them_all(self):
        assert Tenant().may_use("any")

    def test_who_is_given_one_may_use_those(self):
        tenant = Tenant(models=frozenset({"small"}))
        assert tenant.may_use("small")
        assert not tenant.may_use("large")
        assert not Tenant(models=frozenset()).may_use("small")


class TestNamedKeys:
    def test_every_key_of_a_tenant_finds_it_and_all_others_are_one(self):
        tenancy = Tenancy({digest(b"one"): GOLD, digest(b"two"): GOLD})
        assert tenancy.tenant_of(b"one", 0.0) is tenancy.tenant_of(b"two", 0.0) is GOLD
        assert tenancy.tenant_of(b"three", 0.0) is tenancy.tenant_of(b"four", 0.0) is tenancy.tenant_of(b"", 0.0)
        assert tenancy.tenant_of(b"three", 0.0).tenant_class == "default"

    def test_keys_that_are_not_named_are_not_remembered(self):
        tenancy = Tenancy({digest(b"one"): GOLD})
        tenancy.tenant_of(b"three", 0.0)
        assert len(tenancy) == 0

    def test_the_operator_says_what_strangers_get(self):
        slow = Tenant(weight=0.5, priority=Priority.BATCH, most_urgent=Priority.BATCH)
        tenancy = Tenancy({digest(b"one"): GOLD}, slow)
        assert tenancy.tenant_of(b"", 0.0) is tenancy.tenant_of(b"three", 0.0) is slow


class TestWithoutNamedKeys:
    def test_each_key_is_a_tenant_whose_name_does_not_tell_it(self):
        tenancy = Tenancy()
        one, other, nobody = (tenancy.tenant_of(key, 0.0) for key in (b"one", b"other", b""))
        assert len({one.name, other.name, nobody.name}) == 3
        assert tenancy.tenant_of(b"one", 1.0) == one
        assert one.name == digest(b"one").hex()[:16]
        assert {one.tenant_class, other.tenant_class, nobody.tenant_class} == {"default"}

    def test_they_are_all_like_the_operator_s_stranger(self):
        tenancy = Tenancy(stranger=Tenant(weight=2.0, priority=Priority.BATCH))
        assert tenancy.tenant_of(b"one", 0.0).weight == 2.0
        assert tenancy.tenant_of(b"one", 0.0).priority is Priority.BATCH

    def test_a_thousand_are_told_apart_and_the_rest_is_one(self):
        tenancy = Tenancy()
        names = {tenancy.tenant_of(b"%d" % number, 0.0).name for number in range(5000)}
        assert len(names) == 1024 + 1
        assert len(tenancy) == 1024
        assert tenancy.tenant_of(b"0", 0.0).name == digest(b"0").hex()[:16]

    def test_who_stays_away_for_long_makes_room(self):
        tenancy = Tenancy()
        for number in range(1024):
            tenancy.tenant_of(b"%d" % number, 0.0)
        assert tenancy.tenant_of(b"new", 599.0).name == "crowd"
        assert tenancy.tenant_of(b"0", 601.0).name == digest(b"0").hex()[:16]
        assert tenancy.tenant_of(b"new", 602.0).name == "crowd"
        assert tenancy.tenant_of(b"new", 1202.0).name == digest(b"new").hex()[:16]
        assert tenancy.tenant_of(b"0", 1203.0).name == digest(b"0").hex()[:16]
        assert len(tenancy) == 2
