"""Whose a request is, and how urgent it may be."""

import hmac
from hashlib import sha256

import pytest

from gateway.domain import keys
from gateway.domain.errors import Code
from gateway.domain.keys import Key, KeyTable
from gateway.domain.outcome import Reason
from gateway.domain.priority import Priority
from gateway.domain.quota import Quota, QuotaLimits
from gateway.domain.tenancy import Tenancy, Tenant, identity_of_name, unauthorised

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


def table(**keys):
    return KeyTable(Key(digest(key.encode()), tenant) for key, tenant in keys.items())


class TestConfiguredKeys:
    def test_every_key_of_a_tenant_finds_it_and_nobody_else_gets_in(self):
        tenancy = Tenancy(table(one=GOLD, two=GOLD), refuses_strangers=True)
        assert tenancy.tenant_of(b"one", 0.0) is tenancy.tenant_of(b"two", 0.0) is GOLD
        told = {}
        for key in (b"three", b""):
            stranger = tenancy.tenant_of(key, 0.0)
            assert stranger.is_refused
            refusal = unauthorised(stranger)
            assert (refusal.code, refusal.status, refusal.reason) == (Code.INVALID_API_KEY, 401, Reason.UNAUTHORISED)
            told[key] = refusal.message
        assert "has no API key" in told[b""]
        assert "not known" in told[b"three"]

    def test_an_empty_table_lets_nobody_in(self):
        assert Tenancy(KeyTable(), refuses_strangers=True).tenant_of(b"one", 0.0).is_refused

    def test_a_key_ends_when_it_expires(self):
        tenancy = Tenancy(KeyTable([Key(digest(b"one"), GOLD, expires=10.0)]), refuses_strangers=True)
        assert tenancy.tenant_of(b"one", 9.9) is GOLD
        late = tenancy.tenant_of(b"one", 10.0)
        assert late.is_refused
        assert "expired" in unauthorised(late).message

    def test_keys_may_only_tell_who_is_who(self):
        slow = Tenant(weight=0.5, priority=Priority.BATCH, most_urgent=Priority.BATCH)
        tenancy = Tenancy(table(one=GOLD), slow)
        assert tenancy.tenant_of(b"", 0.0) is tenancy.tenant_of(b"three", 0.0) is slow
        assert len(tenancy) == 0, "strangers are not remembered"

    def test_other_keys_take_the_place_of_these_at_once(self):
        tenancy = Tenancy(table(one=GOLD), refuses_strangers=True)
        tenancy.use(table(two=GOLD))
        assert tenancy.tenant_of(b"one", 0.0).is_refused
        assert tenancy.tenant_of(b"two", 0.0) is GOLD
        assert tenancy.known_keys == 1

    def test_whole_digests_are_compared_in_constant_time_and_nothing_else(self, monkeypatch):
        compared = []

        def noting(one, other):
            compared.append((one, other))
            return hmac.compare_digest(one, other)

        monkeypatch.setattr(keys, "compare_digest", noting)
        like_one = digest(b"one")[:8] + bytes(24)
        tenancy = Tenancy(KeyTable([Key(like_one, Tenant("other")), Key(digest(b"one"), GOLD)]))
        assert tenancy.tenant_of(b"one", 0.0) is GOLD
        assert compared == [(like_one, digest(b"one")), (digest(b"one"), digest(b"one"))]


class TestTenantsOfAKeysFile:
    def test_those_of_the_settings_are_these_and_others_are_like_everyone_else(self):
        stranger = Tenant("default", weight=2.0, quota=Quota(QuotaLimits(requests=5)), is_named=True)
        tenancy = Tenancy(KeyTable(), stranger, {"gold": GOLD})
        found = tenancy.tenants_named(["gold", "new", "default"])
        assert found["gold"] is GOLD
        assert found["default"] is stranger
        new = found["new"]
        assert (new.name, new.tenant_class, new.weight, new.shown_name) == ("new", "default", 2.0, "new")
        assert new.quota is not stranger.quota
        assert new.quota.limits == stranger.quota.limits
        assert tenancy.with_quota() == [stranger, new]

    def test_who_stays_keeps_what_it_has_used(self):
        tenancy = Tenancy(KeyTable(), Tenant(quota=Quota(QuotaLimits(requests=5))))
        before = tenancy.tenants_named(["a", "b"])
        after = tenancy.tenants_named(["b", "c"])
        assert after["b"] is before["b"]
        assert tenancy.tenants_named(["a"])["a"] is not before["a"]


class TestNamesFromAProxy:
    def test_a_name_of_the_settings_is_that_tenant(self):
        tenancy = Tenancy(None, None, {"gold": GOLD})
        assert tenancy.tenant_by_name(b"gold", 0.0) is GOLD
        assert tenancy.tenant_by_name(b"default", 0.0).tenant_class == "default"

    def test_other_names_are_told_apart_and_are_nobodys_key(self):
        tenancy = Tenancy()
        one, other = tenancy.tenant_by_name(b"one", 0.0), tenancy.tenant_by_name(b"\xff", 0.0)
        assert len({one.name, other.name, tenancy.tenant_of(b"one", 0.0).name}) == 3
        assert {one.tenant_class, other.tenant_class} == {"default"}

    def test_no_key_that_a_header_can_hold_is_taken_for_a_name(self):
        tenancy = Tenancy()
        named = tenancy.tenant_by_name(b"one", 0.0)
        for key in (b"one", b"name one", b"name  one"):
            assert tenancy.tenant_of(key, 0.0).name != named.name
        assert b"\0" in identity_of_name(b"one"), "which the server refuses in any header"


class TestModels:
    def test_without_a_list_all_may_be_asked_for(self):
        assert Tenant().may_use("any")
        assert Tenant(models=frozenset({"a"})).may_use("a")
        assert not Tenant(models=frozenset({"a"})).may_use("b")


class TestWithoutKeys:
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

    def test_they_share_its_quota_and_their_names_may_not_be_told(self):
        tenancy = Tenancy(stranger=Tenant("default", quota=Quota(QuotaLimits(requests=5)), is_named=True))
        one, other = tenancy.tenant_of(b"one", 0.0), tenancy.tenant_of(b"other", 0.0)
        assert one.quota is other.quota is tenancy.tenant_of(b"", 0.0).quota
        assert not one.is_named
        assert one.shown_name == "default"
        assert tenancy.known_keys == 0

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
