"""What the settings make of fields of requests, and of tenants apart."""

from hashlib import sha256

import pytest
from pydantic import ValidationError

from gateway.domain.fields import FIELDS, RULES, FieldRule, Treatment
from gateway.policies import ByteBudgets, policies_of
from gateway.settings import Settings
from gateway.settings.isolation import IsolationSettings, isolation_of
from gateway.settings_sources import load

KEYS = {"tenants": [{"name": "a", "key_sha256": [sha256(b"k").hexdigest()]}]}


def policies(**sections):
    settings = Settings.model_validate({"upstream": {"url": "http://a"}} | sections)
    return policies_of(settings, ByteBudgets.of(settings.budget, 1 << 33))


def test_without_a_word_the_table_holds():
    assert policies().fields == RULES


def test_each_part_of_a_rule_may_be_said_by_itself():
    rules = policies(
        fields={
            "n": {"most": 16},
            "best_of": {"policy": "refuse"},
            "structured_outputs_regex": {"policy": "allow"},
            "top_logprobs": {"policy": "clamp", "most": 5},
        }
    ).fields
    assert rules["n"] == FieldRule(Treatment.REFUSE, 16)
    assert rules["best_of"] == FieldRule(Treatment.REFUSE, 1)
    assert rules["structured_outputs.regex"].treatment is Treatment.ALLOW
    assert rules["top_logprobs"] == FieldRule(Treatment.CLAMP, 5)


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.name)
def test_every_field_has_a_section(field):
    rules = policies(fields={field.setting.removeprefix("fields."): {"policy": "allow"}}).fields
    assert rules[field.name].treatment is Treatment.ALLOW


MISTAKES = [
    {"logit_bais": {"policy": "allow"}},
    {"chat_template": {"policy": "clamp"}},
    {"chat_template": {"most": 1}},
    {"stop": {"policy": "clamp"}},
    {"n": {"policy": "off"}},
    {"n": {"most": -1}},
]


@pytest.mark.parametrize("fields", MISTAKES, ids=str)
def test_mistakes(fields):
    with pytest.raises(ValidationError, match="fields"):
        policies(fields=fields)


def test_they_can_be_set_by_the_environment_and_flags():
    environment = {"GATEWAY_FIELDS__N__MOST": "16", "GATEWAY_ISOLATION__SECRET": "a secret that is long"}
    loaded = load(flags={"fields.stop.policy": "allow"}, environment=environment)
    rules = policies_of(loaded.settings, ByteBudgets.of(loaded.settings.budget, 1 << 33)).fields
    assert rules["n"].most == 16
    assert rules["stop"].treatment is Treatment.ALLOW


@pytest.mark.parametrize(
    ("word", "tells_apart", "is_salted"),
    [
        ("auto", True, True),
        ("auto", False, False),
        ("tenant", False, True),
        ("none", True, False),
    ],
)
def test_who_has_prefixes_of_its_own(word, tells_apart, is_salted):
    section = {"isolation": {"prefix_cache": word}} | (KEYS if tells_apart else {})
    assert policies(**section).isolation.salts_prefixes is is_salted


@pytest.mark.parametrize(
    "section", [{"keys": {"file": "k"}}, {"tenants_from": {"header": "x-tenant", "networks": ["10.0.0.0/8"]}}]
)
def test_keys_of_a_file_and_a_proxy_tell_tenants_apart_too(section):
    assert policies(**section).isolation.salts_prefixes


def test_a_secret_makes_the_same_names_everywhere_and_chance_makes_others_at_each_start():
    said = IsolationSettings(secret="the same secret for all")
    drawn = IsolationSettings()
    assert isolation_of(said, tells_apart=False) == isolation_of(said, tells_apart=False)
    assert isolation_of(drawn, tells_apart=False) != isolation_of(drawn, tells_apart=False)
    assert isolation_of(drawn, tells_apart=False, random_bytes=bytes) == isolation_of(
        drawn, tells_apart=False, random_bytes=bytes
    )


def test_a_secret_that_can_be_guessed_is_refused_and_none_is_shown():
    with pytest.raises(ValidationError):
        policies(isolation={"secret": "short"})
    assert "the same secret for all" not in repr(IsolationSettings(secret="the same secret for all"))
