import pytest

from gateway.domain.vision.base import ProcessorConfigError
from gateway.domain.vision.sources import CLASS_DEFAULT, Number, Source, Sources

STRONG = Source("strong", {"a": 1, "size": {"height": 5, "width": 5}})
WEAK = Source("weak", {"a": 2, "b": 3, "nested": {"deep": {"c": 4}}, "nothing": None})


def reader():
    return Sources(STRONG, WEAK)


def test_the_strongest_source_wins_and_then_the_first_key():
    read = reader()
    assert read.whole("a", default=9) == 1
    assert read.whole("b", "a", default=9) == 1  # the strong one has no b
    assert read.whole("nested.deep.c", default=9) == 4
    assert read.whole("nothing", default=9) == 9
    assert read.whole("nested.deep.c.d", default=9) == 9
    assert read.numbers == (
        Number("a", 1, "strong"),
        Number("nested.deep.c", 4, "weak"),
        Number("nothing", 9, CLASS_DEFAULT),
        Number("nested.deep.c.d", 9, CLASS_DEFAULT),
    )


def test_what_no_source_has_may_stay_unknown():
    read = reader()
    assert read.whole_or_none("x") is None
    assert read.numbers == ()


def of(value):
    return Sources(Source("file", {"key": value}))


@pytest.mark.parametrize(
    ("read", "value"),
    [
        (of(0).whole_or_none("key", least=0), 0),
        (of("text").value("key", default=1), "text"),
        (of(3).real("key", default=1.0), 3.0),
        (of(0.5).real("key", default=1.0), 0.5),
        (of(value=False).flag("key", default=True), False),
        (of(448).side("key", default=1), 448),
        (of({"height": 448, "width": 448}).side("key", default=1), 448),
        (of({"shortest_edge": 448}).side("key", default=1), 448),
        (of([[1, 2], [3, 4]]).pairs("key", default=()), ((1, 2), (3, 4))),
        (of(None).pairs("key", default=((5, 6),)), ((5, 6),)),
        (of([4, 5]).pair("key", default=(1, 1)), (4, 5)),
        (of(4).pair("key", default=(1, 1)), (4, 4)),
    ],
)
def test_values_of_each_kind(read, value):
    assert read == value


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (lambda: of("5").whole("key", default=1), "key must be a whole number above 0, not '5'"),
        (lambda: of(value=True).whole("key", default=1), "not True"),
        (lambda: of(0).whole("key", default=1), "above 0, not 0"),
        (lambda: of(-1).whole_or_none("key", least=0), "of at least 0, not -1"),
        (lambda: of(0).real("key", default=1.0), "key must be a number above 0, not 0"),
        (lambda: of(value=True).real("key", default=1.0), "not True"),
        (lambda: of("x").real("key", default=1.0), "not 'x'"),
        (lambda: of(1).flag("key", default=True), "key must be true or false, not 1"),
        (lambda: of({"height": 4, "width": 5}).side("key", default=1), "key must be a square"),
        (lambda: of({"other": 4}).side("key", default=1), r"key.height must be a whole number above 0, not None"),
        (lambda: of([]).pairs("key", default=()), "key must be a list"),
        (lambda: of("x").pairs("key", default=()), "key must be a list, not 'x'"),
        (lambda: of([[1, 2, 3]]).pairs("key", default=()), r"key must hold two numbers, not \[1, 2, 3\]"),
        (lambda: of([1]).pair("key", default=(1, 1)), "key must hold two numbers"),
        (lambda: of("ab").pair("key", default=(1, 1)), "key must hold two numbers, not 'ab'"),
    ],
)
def test_a_value_of_another_kind_is_named_by_its_key(read, text):
    with pytest.raises(ProcessorConfigError, match=text):
        read()
