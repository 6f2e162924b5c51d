from gateway.domain.cost import EngineLimits, estimate
from gateway.domain.pace import REQUEST_TOKENS
from gateway.domain.priority import Priority
from gateway.domain.quantities import Amounts, Bounds, Resource
from gateway.domain.request import VisionRequest
from gateway.domain.ticket import Newcomer, Ticket


def cost_of(request, text_tokens, output_tokens):
    text = Bounds.exact(text_tokens)
    limits = EngineLimits()
    return estimate(request, (), (), text=text, output_tokens=output_tokens, limits=limits, body_bytes=3_000)


def test_what_a_ticket_takes_from_the_cost():
    cost = cost_of(VisionRequest("m", n=2, prompt_token_ids=100), text_tokens=20, output_tokens=16)
    cost = cost._replace(prefill_kv_blocks=3)
    made = Ticket.of(cost, arrived=5.0, wait_seconds=30.0, is_return=True)
    assert made.amounts == cost.amounts._replace(prefill_tokens=120 + 2 * REQUEST_TOKENS)
    assert (made.growth, made.prefill_kv_blocks) == (cost.growth, 3)
    assert (made.arrived, made.deadline, made.body_bytes, made.cost_tokens) == (5.0, 35.0, 3_000, 120 + 4 * 32)
    assert made.is_return
    assert (made.priority, made.tenant, made.weight) == (Priority.DEFAULT, "", 1.0)


def test_what_has_images_to_decode_takes_of_both_that_lie_before_a_first_token():
    image, text = (
        Ticket(Amounts(1, 1, 0, 50).with_prefill(600), 0.0, 9.0),
        Ticket(Amounts(1, 1).with_prefill(70), 0.0, 9.0),
    )
    assert (image.amounts, text.amounts) == (Amounts(1, 1, 0, 50, 0, 600), Amounts(1, 1, 0, 0, 70, 0))
    assert (image.prefill_tokens, text.prefill_tokens) == (600, 70)
    assert [image.takes(resource) for resource in Resource] == [True, True, False, True, True, True]
    assert [text.takes(resource) for resource in Resource] == [True, True, False, False, True, False]


def test_whose_it_is_and_how_urgent():
    cost = cost_of(VisionRequest("m"), text_tokens=20, output_tokens=16)
    made = Ticket.of(cost, 5.0, 30.0, priority=Priority.BATCH, tenant="lab", weight=2.0)
    assert (made.priority, made.tenant, made.weight) == (Priority.BATCH, "lab", 2.0)


def test_an_empty_prompt_costs_a_token():
    assert Ticket.of(cost_of(VisionRequest("m"), text_tokens=0, output_tokens=0), 0.0, 30.0).cost_tokens == 1


def test_equal_tickets_are_two_requests():
    assert Ticket(Amounts(1), 0.0, 30.0) != Ticket(Amounts(1), 0.0, 30.0)


def test_a_newcomer_is_taken_for_the_most_ordinary_ticket():
    ordinary, newcomer = Ticket(Amounts(), 0.0, 30.0), Newcomer()
    names = {*Newcomer._fields, "is_image"} - {"has_images"}
    assert all(getattr(ordinary, name) == getattr(newcomer, name) for name in names)
