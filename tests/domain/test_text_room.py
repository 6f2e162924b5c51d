from gateway.domain.quantities import Amounts
from gateway.domain.text_room import TextRoom

TEXT = Amounts(2, 1, prefill_tokens=600)
UNKNOWN = (None,) * len(TEXT)


def room(*came: float) -> TextRoom:
    one = TextRoom()
    for now in came:
        one.came(TEXT, now)
    return one


def test_no_room_without_texts_and_none_ten_seconds_after_the_last():
    assert not any(room().amounts(0.0, UNKNOWN))
    assert room(0.0).amounts(9.9, UNKNOWN) == TEXT
    assert not any(room(0.0).amounts(10.0, UNKNOWN))


def test_room_for_as_many_as_come_in_a_second():
    each_quarter = room(*[number / 4 for number in range(80)])
    assert each_quarter.amounts(20.0, UNKNOWN) == Amounts(8, 4, prefill_tokens=2_400)
    assert each_quarter.amounts(26.0, UNKNOWN) == TEXT


def test_each_as_large_as_the_last():
    one = room(0.0)
    one.came(Amounts(9, 1, prefill_tokens=5_000), 1.0)
    assert one.amounts(1.0, UNKNOWN) == Amounts(9, 1, prefill_tokens=5_000)


def test_never_more_than_a_quarter_of_what_there_is():
    one = room(0.0)
    one.came(Amounts(900, 1, prefill_tokens=9_000), 0.0)
    assert one.amounts(0.0, (100, 2, None, None, 8_000, None)) == Amounts(25, 1, prefill_tokens=2_000)
