"""Lists and dictionaries as Python prints them."""

import pytest

from gateway.domain.doctor.fields import fields, value_of


def test_a_list_of_fields_is_cut_outside_of_brackets_and_quotes():
    text = "model='a, b', config=C(x=1, y=[1, 2]), at=<f at 0x1>, quoted='it\\'s', last=None"
    assert fields(text) == {
        "model": "'a, b'", "config": "C(x=1, y=[1, 2])", "at": "<f at 0x1>", "quoted": "'it\\'s'", "last": "None",
    }  # fmt: skip


def test_a_dictionary_is_cut_at_its_colons():
    assert fields("'a': 1, \"b\": {'c': 2}, 'url': 'http://x'", ":") == {"a": "1", "b": "{'c': 2}", "url": "'http://x'"}


def test_what_is_no_field_is_left_out():
    assert fields("a, b=1, , c") == {"b": "1"}
    assert fields("") == {}


def test_a_list_that_ends_within_a_value_gives_what_was_whole():
    assert fields("a=1, b={'x': [1, 2")["a"] == "1"
    assert fields("a=1)), b=2") == {"a": "1))", "b": "2"}


def test_there_are_only_so_many_fields():
    assert len(fields(",".join(f"n{each}=1" for each in range(5000)))) == 2000


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("None", None),
        ("null", None),
        (" True ", True),
        ("false", False),
        ("12", 12),
        ("0.9", 0.9),
        ("'x'", "x"),
        ('"x"', "x"),
        ("{'image': 2, 'video': 0}", {"image": 2, "video": 0}),
        ("[1, 'a', ]", [1, "a"]),
        ("{}", {}),
        ("<enum: 1>", "<enum: 1>"),
        ("", ""),
        ("'", "'"),
        ("nan", "nan"),
        ("inf", "inf"),
        ("1e400", "1e400"),
        ("9" * 5000, "9" * 5000),
    ],
)
def test_plain_values_are_understood_and_others_stay_text(text, value):
    assert value_of(text) == value


def test_nesting_ends_somewhere():
    assert value_of("[" * 50 + "]" * 50) == [[[["[" * 46 + "]" * 46]]]]
