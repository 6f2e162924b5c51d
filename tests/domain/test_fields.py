"""Which fields of a request go on, are brought down, or end it."""

import pytest

from gateway.domain.errors import GatewayError
from gateway.domain.fields import EVERYTHING, FIELDS, RULES, Clamp, FieldRule, Measure, Treatment, judge
from gateway.domain.request import FieldUse, Span

PLACE = Span(10, 12)
NUMBERS = [field for field in FIELDS if field.measure.is_number]
BOUNDED = [field for field in FIELDS if field.measure.is_bounded]
SWITCHES = [field for field in FIELDS if not field.measure.is_bounded]


def by_name(field):
    return field.name


def use(name, amount=1, **more):
    return FieldUse(name, amount, PLACE, **more)


def with_rule(name, treatment, most=None):
    return RULES | {name: FieldRule(treatment, most)}


def refusal(*uses, rules=RULES):
    with pytest.raises(GatewayError) as caught:
        judge(uses, rules)
    assert caught.value.code == "invalid_request"
    return caught.value


def test_the_table_names_each_field_once_and_explains_it():
    assert len({field.setting for field in FIELDS}) == len(FIELDS)
    assert all(field.why and field.vllm.endswith(".") for field in FIELDS)


@pytest.mark.parametrize("field", SWITCHES, ids=by_name)
def test_what_is_there_or_not_is_refused_and_may_be_allowed(field):
    assert field.rule == FieldRule(Treatment.REFUSE)
    error = refusal(use(field.name))
    assert error.param == field.name
    assert error.message.startswith(f"`{field.name}` {field.why}. Leave it out.")
    assert field.setting in error.message
    assert judge([use(field.name)], with_rule(field.name, Treatment.ALLOW)) == ()


@pytest.mark.parametrize("field", BOUNDED, ids=by_name)
def test_what_has_a_bound_goes_on_up_to_it(field):
    assert judge([use(field.name, field.rule.most)], RULES) == ()
    above = use(field.name, field.rule.most + 1)
    strict = with_rule(field.name, Treatment.REFUSE, field.rule.most)
    error = refusal(above, rules=strict)
    assert f"the most is {field.rule.most} ({field.setting})" in error.message
    assert judge([above], with_rule(field.name, Treatment.ALLOW, field.rule.most)) == ()
    assert judge([above], with_rule(field.name, Treatment.REFUSE, field.rule.most + 1)) == ()


@pytest.mark.parametrize("field", NUMBERS, ids=by_name)
def test_a_number_may_be_brought_down_in_its_place(field):
    (clamp,) = judge([use(field.name, 9)], with_rule(field.name, Treatment.CLAMP, 4))
    assert clamp == Clamp(field.name, PLACE, -4 if field.measure is Measure.URGENCY else 4)
    assert judge([use(field.name, 4)], with_rule(field.name, Treatment.CLAMP, 4)) == ()


def test_amounts_are_said_as_the_client_wrote_them():
    assert refusal(use("n", 500)).message == (
        "`n` is 500, and the most is 128 (fields.n): it makes a sequence in the engine for each answer. Ask for less."
    )
    assert "`stop` has 9000 bytes" in refusal(use("stop", 9000)).message
    assert "`top_logprobs` asks for the whole vocabulary" in refusal(use("top_logprobs", EVERYTHING)).message
    urgent = with_rule("priority", Treatment.REFUSE, 0)
    assert "`priority` is -5" in refusal(use("priority", 5), rules=urgent).message


def test_the_field_that_asked_is_the_one_that_is_named():
    error = refusal(use("prompt_logprobs", asked_by="echo"))
    assert error.param == "echo"
    assert error.message.startswith("`echo` makes the engine compute logits")
    assert "fields.prompt_logprobs" in error.message


def test_several_are_judged_in_turn():
    uses = [use("best_of", 5), use("priority", 7), use("n", 3)]
    assert [clamp.number for clamp in judge(uses, RULES)] == [1, 0]
    assert refusal(*uses, use("n", 129)).param == "n"
    assert judge([], RULES) == ()
