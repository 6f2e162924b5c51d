"""What was done under pressure is done again in every later turn."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.remembered import (
    MOST_REMEMBERED,
    REMEMBERED_SECONDS,
    ImageKey,
    Remembered,
    Treatment,
    treat,
)
from gateway.domain.resize import Preset

SHRUNK, AS_IT_IS = Treatment(Preset.OCR), Treatment(None)


def key(content: str, tenant="", model="m") -> ImageKey:
    return ImageKey(tenant, model, content.encode(), "pillow")


def test_a_new_image_gets_the_preset_and_an_old_one_its_own_size():
    memory = Remembered[ImageKey, Treatment]()
    keys = {0: key("old"), 1: key("new")}
    assert treat(keys, {1}, Preset.OCR, memory, 0.0) == {0: AS_IT_IS, 1: SHRUNK}
    assert treat(keys, {1}, None, memory, 0.0) == {0: AS_IT_IS, 1: AS_IT_IS}
    assert len(memory) == 0, "nothing is kept before the request is let in"


def test_what_was_kept_counts_more_than_the_pressure_of_now():
    memory = Remembered[ImageKey, Treatment]()
    memory.keep(key("small"), SHRUNK, 0.0)
    memory.keep(key("whole"), AS_IT_IS, 0.0)
    keys = {0: key("small"), 1: key("whole"), 2: key("other")}
    for new in ((), (0, 1, 2)):
        assert treat(keys, new, None, memory, 1.0)[0] == SHRUNK
        assert treat(keys, new, Preset.THUMBNAIL, memory, 1.0)[1] == AS_IT_IS
    assert treat(keys, (2,), Preset.THUMBNAIL, memory, 1.0)[2] == Treatment(Preset.THUMBNAIL)


def test_an_image_that_stands_in_the_history_too_goes_as_it_goes_there():
    memory = Remembered[ImageKey, Treatment]()
    same = {0: key("same"), 1: key("same")}
    assert treat(same, {1}, Preset.OCR, memory, 0.0) == {0: AS_IT_IS, 1: AS_IT_IS}
    assert treat({1: key("same"), 0: key("same")}, {1}, Preset.OCR, memory, 0.0) == {0: AS_IT_IS, 1: AS_IT_IS}
    assert treat(same, {0, 1}, Preset.OCR, memory, 0.0) == {0: SHRUNK, 1: SHRUNK}


def test_tenants_and_models_do_not_see_each_other():
    memory = Remembered[ImageKey, Treatment]()
    memory.keep(key("photo", tenant="a"), SHRUNK, 0.0)
    for other in (key("photo", tenant="b"), key("photo", tenant="a", model="n")):
        assert treat({0: other}, (), None, memory, 0.0) == {0: AS_IT_IS}


def test_the_first_that_was_kept_stays():
    memory = Remembered[str, bool]()
    memory.keep("talk", False, 0.0)  # noqa: FBT003
    memory.keep("talk", True, 1.0)  # noqa: FBT003
    assert memory.recall("talk", 2.0) is False
    assert memory.recall("another", 2.0) is None


def test_a_day_after_it_was_needed_last_it_is_forgotten():
    memory = Remembered[str, int]()
    memory.keep("used", 1, 0.0)
    memory.keep("unused", 2, 0.0)
    memory.keep("used", 9, REMEMBERED_SECONDS - 1)
    assert memory.recall("used", REMEMBERED_SECONDS) == 1
    assert memory.recall("unused", REMEMBERED_SECONDS) is None
    memory.keep("unused", 3, REMEMBERED_SECONDS)
    assert memory.recall("unused", REMEMBERED_SECONDS) == 3
    memory.keep("later", 4, 3 * REMEMBERED_SECONDS)
    assert len(memory) == 1, "what is too old leaves its place"


def test_it_is_bounded_and_what_was_not_needed_for_longest_goes_first():
    memory = Remembered[int, int](most=3)
    for number in range(3):
        memory.keep(number, number, float(number))
    memory.keep(0, 0, 3.0)
    memory.keep(3, 3, 4.0)
    assert [memory.recall(number, 5.0) for number in range(4)] == [0, None, 2, 3]
    assert MOST_REMEMBERED >= 10_000


STEPS = st.tuples(st.integers(0, 8), st.integers(0, 3), st.sampled_from([0.0, 60.0, REMEMBERED_SECONDS / 2]))


@given(st.lists(STEPS, max_size=60), st.integers(1, 5))
def test_a_value_never_changes_while_it_is_remembered(steps, most):
    memory, now = Remembered[int, int](most), 0.0
    for name, value, pause in steps:
        now += pause
        before = memory.recall(name, now)
        memory.keep(name, value, now)
        assert memory.recall(name, now) == (value if before is None else before)
        assert 1 <= len(memory) <= most


@st.composite
def conversations(draw):
    """Turns of one conversation: the contents of each one's new images, and the preset of that moment."""
    contents = st.lists(st.sampled_from("abcdef"), max_size=3)
    presets = st.sampled_from([None, Preset.OCR, Preset.THUMBNAIL])
    return draw(st.lists(st.tuples(contents, presets), min_size=1, max_size=8))


@given(conversations())
def test_however_the_pressure_changes_what_was_sent_once_is_sent_so_in_every_later_turn(turns):
    memory = Remembered[ImageKey, Treatment]()
    sent: dict[str, Treatment] = {}
    history: list[str] = []
    for now, (contents, preset) in enumerate(turns):
        history += contents
        keys = {ordinal: key(content) for ordinal, content in enumerate(history)}
        new = range(len(history) - len(contents), len(history))
        treated = treat(keys, new, preset, memory, float(now))
        assert treated == treat(keys, new, preset, memory, float(now))
        for ordinal, content in enumerate(history):
            assert treated[ordinal] == sent.setdefault(content, treated[ordinal])
            memory.keep(keys[ordinal], treated[ordinal], float(now))
