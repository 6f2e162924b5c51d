from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.errors import Code, GatewayError
from gateway.domain.request import MessageOutline
from gateway.domain.trim import ContextRoom, TrimMode, TrimPlan, TrimPolicy, TrimReason, new_images, plan_trim


def conversation(script):
    """`"u1 a u2"`: a user message with one image, an answer, a user message with two images."""
    roles = {"s": "system", "u": "user", "a": "assistant", "t": "tool"}
    messages, ordinal = [], 0
    for word in script.split():
        images = tuple(range(ordinal, ordinal + int(word[1:] or 0)))
        ordinal += len(images)
        messages.append(MessageOutline(roles[word[0]], text_bytes=40, images=images))
    return messages


def turns(count):
    """One image per turn, the last one not answered yet."""
    return conversation(" a ".join(["u1"] * count))


def dropped(messages, *, tokens=100, context=None, **policy):
    images = sum(len(message.images) for message in messages)
    return plan_trim(messages, [tokens] * images, context, TrimPolicy(**policy))


def room_for(images, *, text=50):
    """A context that holds so many images of 100 tokens beside the text and 1,024 tokens of answer."""
    return ContextRoom(limit_tokens=100 * images + text + 1024, text_tokens=text)


def test_nothing_is_dropped_while_all_fits():
    assert dropped(turns(8), image_limit=8, context=room_for(8)) == TrimPlan((), None)


def test_without_limits_nothing_is_dropped():
    assert dropped(turns(50)) == TrimPlan((), None)


def test_one_image_over_the_limit_drops_a_whole_step():
    assert dropped(turns(9), image_limit=8) == TrimPlan((0, 1, 2, 3), TrimReason.IMAGE_LIMIT)


@pytest.mark.parametrize(("grid", "gone"), [(1, 1), (2, 2), (3, 3), (4, 4), (8, 8)])
def test_steps_are_multiples_of_the_grid(grid, gone):
    assert len(dropped(turns(9), image_limit=8, grid=grid).dropped) == gone


def test_keep_says_how_many_stay_once_the_limit_is_passed():
    assert len(dropped(turns(8), image_limit=8, keep=4).dropped) == 0
    assert len(dropped(turns(9), image_limit=8, keep=4).dropped) == 8


def test_a_keep_above_the_limit_is_bounded_by_it():
    assert len(dropped(turns(9), image_limit=8, keep=20).dropped) == 4


def test_always_trims_to_keep_without_any_limit():
    assert dropped(turns(9), mode=TrimMode.ALWAYS, keep=4) == TrimPlan(tuple(range(8)), TrimReason.KEEP)
    assert dropped(turns(4), mode=TrimMode.ALWAYS, keep=4) == TrimPlan((), None)
    assert dropped(turns(9), mode=TrimMode.ALWAYS) == TrimPlan((), None)


@pytest.mark.parametrize("mode", list(TrimMode))
def test_under_pressure_the_stricter_rule_holds_whatever_the_mode_is(mode):
    strict = TrimPolicy(mode=mode, grid=1).under_pressure(2)
    assert plan_trim(turns(5), [100] * 5, None, strict) == TrimPlan((0, 1, 2), TrimReason.PRESSURE)
    assert TrimPolicy(mode=mode, keep=1).under_pressure(2).most_kept == 1
    assert TrimPolicy(mode=mode, keep=9, image_limit=1).under_pressure(2).most_kept == 1


def test_a_rule_that_is_as_strict_already_stays_as_it_is():
    usual = TrimPolicy(mode=TrimMode.ALWAYS, keep=2)
    assert usual.under_pressure(2) is usual


def test_a_context_too_small_for_one_image_drops_a_step():
    assert dropped(turns(9), context=room_for(8)) == TrimPlan((0, 1, 2, 3), TrimReason.CONTEXT)
    assert len(dropped(turns(9), context=room_for(4)).dropped) == 8


def test_the_larger_of_both_rules_acts():
    assert dropped(turns(10), image_limit=9, context=room_for(5)) == TrimPlan(tuple(range(8)), TrimReason.CONTEXT)
    assert dropped(turns(10), image_limit=2, context=room_for(9)) == TrimPlan(tuple(range(8)), TrimReason.IMAGE_LIMIT)


@pytest.mark.parametrize(
    ("max_tokens", "answer_room"),
    [(None, 1024), (0, 1024), (100, 100), (1024, 1024), (8000, 1024)],
)
def test_room_for_the_answer_is_what_was_asked_up_to_1024(max_tokens, answer_room):
    assert ContextRoom(10_000, text_tokens=500, max_tokens=max_tokens).image_tokens == 9500 - answer_room


def test_markers_take_room_too():
    tight = ContextRoom(limit_tokens=800 + 50 + 1024, text_tokens=50, marker_tokens=80)
    assert len(dropped(turns(12), context=tight).dropped) == 11  # no step saves 400; all that can go goes
    assert len(dropped(turns(9), context=tight).dropped) == 8  # 4 x 20 saved are not enough


def test_images_after_the_last_answer_stay():
    assert dropped(conversation("u3 a u8"), image_limit=8).dropped == (0, 1, 2)


def test_where_no_step_helps_all_that_may_go_goes():
    assert dropped(conversation("u3 a u8"), context=room_for(2)).dropped == (0, 1, 2)


def test_results_of_tools_after_the_last_call_stay():
    assert dropped(conversation("u2 a t4 a t8"), image_limit=8).dropped == (0, 1, 2, 3, 4, 5)


def test_a_prefilled_answer_is_no_last_answer():
    assert dropped(conversation("u4 a u8 a"), image_limit=8).dropped == (0, 1, 2, 3)
    assert dropped(conversation("s1 u1 a a"), context=room_for(0)) == TrimPlan((), None)


@pytest.mark.parametrize(
    ("script", "new"),
    [
        ("u2", {0, 1}),
        ("s u1 a u1", {1}),
        ("u1 a1 t1 u1", {2, 3}),
        ("u1 a", {0}),  # the start of an answer that is still to come
        ("u1 a u a", set()),
        ("a1 u1", {1}),
        ("", set()),
    ],
)
def test_new_images_are_those_after_the_last_answer(script, new):
    assert new_images([conversation(script)]) == new


def test_where_nobody_answers_nothing_is_history():
    messages = conversation("u1 a u")
    policy = TrimPolicy(TrimMode.ALWAYS, keep=1, grid=1, image_limit=1).without_history("input")
    assert plan_trim(messages, [100], None, policy) == TrimPlan()
    two = (MessageOutline("user", 1, (0, 1)), MessageOutline("assistant", 1), MessageOutline("user", 1))
    with pytest.raises(GatewayError, match="One prompt has 2 images and the limit is 1") as refused:
        plan_trim(two, [100, 100], None, policy)
    assert (refused.value.code, refused.value.param) == (Code.TOO_MANY_IMAGES, "input")


def test_thirteen_images_in_one_turn_are_refused_with_both_numbers():
    with pytest.raises(GatewayError, match="has 13 images and the limit is 8") as refused:
        dropped(conversation("u13"), image_limit=8)
    assert (refused.value.code, refused.value.status, refused.value.param) == (Code.TOO_MANY_IMAGES, 400, "messages")


def test_what_was_left_out_before_the_refusal_is_said():
    with pytest.raises(GatewayError, match="has 13 images after 2 older ones were left out and the limit is 8"):
        dropped(conversation("u2 a u13"), image_limit=8)


def test_switched_off_nothing_is_dropped_and_the_setting_is_named():
    assert dropped(turns(9), mode=TrimMode.OFF, context=room_for(1)) == TrimPlan((), None)
    with pytest.raises(GatewayError, match=r"has 9 images and the limit is 8.*history.mode is 'when_needed'"):
        dropped(turns(9), mode=TrimMode.OFF, image_limit=8)


limits = st.fixed_dictionaries(
    {
        "mode": st.sampled_from([TrimMode.WHEN_NEEDED, TrimMode.ALWAYS]),
        "keep": st.none() | st.integers(1, 12),
        "grid": st.integers(1, 6),
    }
)
rooms = st.none() | st.builds(room_for, st.integers(0, 20))
scripts = st.lists(st.builds("{}{}".format, st.sampled_from("suat"), st.integers(0, 3)), max_size=14).map(" ".join)


@given(st.integers(1, 40), st.integers(1, 6), st.integers(6, 12), st.sampled_from(["count", "context"]))
def test_the_kept_prefix_stays_for_a_whole_grid_of_turns(start, grid, kept, rule):
    by = {"image_limit": kept} if rule == "count" else {"context": room_for(kept)}
    gone = [len(dropped(turns(start + turn), grid=grid, **by).dropped) for turn in range(grid)]
    changes = [now for before, now in pairwise(gone) if now != before]
    assert len(changes) <= 1
    assert all(count % grid == 0 for count in gone)


@given(scripts, scripts, limits, rooms)
def test_a_longer_conversation_never_brings_an_image_back(script, more, policy, context):
    shorter = dropped(conversation(script), context=context, **policy).dropped
    longer = dropped(conversation(f"{script} {more}"), context=context, **policy).dropped
    assert longer[: len(shorter)] == shorter


@given(scripts, limits, rooms)
def test_a_trimmed_conversation_needs_no_more_trimming(script, policy, context):
    messages = conversation(script)
    gone = set(dropped(messages, context=context, **policy).dropped)
    rest = [MessageOutline(m.role, m.text_bytes, tuple(i for i in m.images if i not in gone)) for m in messages]
    tokens = [100] * sum(len(message.images) for message in messages)
    assert plan_trim(rest, tokens, context, TrimPolicy(**policy)) == TrimPlan((), None)


@given(scripts, st.integers(0, 3), limits, rooms)
def test_the_last_turn_is_never_touched(script, images, policy, context):
    messages = conversation(f"{script} a u{images}")
    assert set(dropped(messages, context=context, **policy).dropped).isdisjoint(messages[-1].images)


def test_what_was_left_out_when_the_others_were_priced_stays_out():
    prices = [0, 0, 0, 0, *[100] * 8]
    policy = TrimPolicy(grid=4)
    assert plan_trim(turns(12), prices, room_for(8), policy, least=4).dropped == (0, 1, 2, 3)
    assert plan_trim(turns(12), prices, room_for(5), policy, least=4).dropped == tuple(range(8))
    assert plan_trim(turns(6), [0] * 6, room_for(0), policy, least=5).dropped == (0, 1, 2, 3, 4)


def test_markers_of_those_that_the_count_leaves_out_take_room_too():
    room = ContextRoom(limit_tokens=1024 + 850, text_tokens=50, marker_tokens=30)
    assert len(dropped(turns(12), image_limit=8, context=room).dropped) == 8
