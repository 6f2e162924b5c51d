"""From settings to who may come: the address to listen on, what stays here, classes, and settings that contradict."""

import pytest

from gateway.access import contradictions_about_keys, listening_of, tenancy_of, tenant_classes_of, withheld_of
from gateway.domain.quota import QuotaLimits
from gateway.settings import Settings
from tests.support.settings_mistakes import mistakes

ONE = "1" * 64
KEYED = {"tenants": [{"name": "gold", "key_sha256": [ONE]}]}
CREDENTIALS = {b"authorization", b"x-api-key"}


def settings_of(**sections):
    return Settings.model_validate(sections)


@pytest.mark.parametrize(
    ("sections", "host", "why"),
    [
        ({}, "127.0.0.1", "no keys are configured"),
        (KEYED, "0.0.0.0", "keys are configured"),
        ({"keys": {"file": "keys.yaml"}}, "0.0.0.0", "keys are configured"),
        ({"server": {"host": "10.0.0.1"}}, "10.0.0.1", "server.host says so"),
        (KEYED | {"server": {"host": "127.0.0.1"}}, "127.0.0.1", "server.host says so"),
        ({"tenants": [{"name": "default"}]}, "127.0.0.1", "no keys are configured"),
    ],
)
def test_only_with_keys_or_by_the_operators_word_others_reach_it(sections, host, why):
    listening = listening_of(settings_of(**sections))
    assert listening.host == host
    assert why in listening.why


FORWARD = {"upstream": {"forward_client_key": True}}


@pytest.mark.parametrize(
    ("sections", "key", "withheld"),
    [
        ({}, None, CREDENTIALS),
        (FORWARD, None, set()),
        (FORWARD, "sk-engine", CREDENTIALS),
        (FORWARD | KEYED, None, CREDENTIALS),
        (
            FORWARD | {"tenants_from": {"header": "x-tenant", "networks": ["10.0.0.0/8"]}},
            None,
            {b"x-tenant"},
        ),
    ],
)
def test_what_clients_show_themselves_by_stays_here(sections, key, withheld):
    assert withheld_of(settings_of(**sections), key) == withheld


def test_keys_of_this_gateway_are_never_forwarded():
    assert contradictions_about_keys(settings_of(**FORWARD)) == contradictions_about_keys(settings_of(**KEYED)) == []
    (told,) = contradictions_about_keys(settings_of(**FORWARD | KEYED))
    assert "upstream.forward_client_key" in told


def test_tenants_have_their_class_models_and_quota():
    settings = settings_of(
        tenants=[
            {"name": "a", "tenant_class": "paying", "key_sha256": [ONE], "models": ["m"]},
            {"name": "b", "tenant_class": "paying", "key_sha256": ["2" * 64], "quota": {"images_per_minute": 5}},
            {"name": "default"},
        ]
    )
    assert tenant_classes_of(settings) == ["paying", "default"]
    named = tenancy_of(settings).named
    assert (named["a"].tenant_class, named["a"].models, named["a"].quota) == ("paying", {"m"}, None)
    assert named["b"].quota.limits == QuotaLimits(images=5)


class TestMistakes:
    def test_header_and_networks_go_together(self):
        for text in ("{header: x-tenant}", "{networks: [10.0.0.0/8]}"):
            (line,) = mistakes(file_text=f"tenants_from: {text}")
            assert "header and networks go together" in line

    def test_a_header_is_written_in_lower_case(self):
        assert mistakes(file_text="tenants_from: {header: X-Tenant, networks: [10.0.0.0/8]}")

    def test_tenants_without_keys_are_reached_by_a_keys_file_or_a_header(self):
        tenants = "tenants: [{name: gold}]\n"
        (line,) = mistakes(file_text=tenants)
        assert "need a key" in line
        Settings.model_validate({"tenants": [{"name": "gold"}], "keys": {"file": "k"}})
        tenants_from = {"header": "x-t", "networks": ["::/0"]}
        Settings.model_validate({"tenants": [{"name": "gold"}], "tenants_from": tenants_from})

    def test_everyone_else_has_no_other_class(self):
        (line,) = mistakes(file_text="tenants: [{name: default, tenant_class: gold}]")
        assert line.endswith("that of the tenant `default` is `default`")

    def test_many_tenants_may_share_few_classes(self):
        many = [{"name": f"t{n}", "key_sha256": [f"{n:064x}"], "tenant_class": f"c{n % 16}"} for n in range(99)]
        assert len(settings_of(tenants=many).tenants) == 99
