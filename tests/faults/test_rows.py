"""Every row has a script, every script a row, and the page shows them; and slopes that are known."""

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.faults.record import Record, grown
from tests.faults.rows import ROWS, table
from tests.faults.slopes import slope_of
from tests.support.markdown import ROOT


def test_every_row_has_a_script():
    text = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    scripted = set(re.findall(r'^@pytest\.mark\.fault\("([^"]+)"\)$', text, re.MULTILINE))
    assert scripted == {row.fault for row in ROWS}
    assert max(Counter(row.fault for row in ROWS).values()) == 1


def test_the_page_shows_every_row():
    assert table() in (ROOT / "docs" / "faults.md").read_text(), "python -m tests.faults.rows prints the table"


class TestWhatLeaks:
    def test_is_what_there_is_more_of_than_before(self):
        assert grown({"fds": 10, "tasks": 5}, {"fds": 12, "tasks": 4, "seats": 1}) == {"fds": 2, "seats": 1}

    async def test_fails_the_row(self):
        seen = iter([{"fds": 10}, {"fds": 11}])
        record = Record(ROWS[0].__class__("one", "two", seconds=0.0))

        async def look():
            return next(seen)

        with pytest.raises(AssertionError, match="did not come back"):
            async with record.all_comes_back(look):
                record.clients_saw("200", more_seconds=30)
        assert "{'fds': 1}" in record.line()


class TestSlopes:
    def test_what_grows_beyond_doubt(self):
        slope = slope_of([0, 60, 120, 180], [10, 12, 14, 16])
        assert (slope.per_minute, slope.error) == (pytest.approx(2), pytest.approx(0, abs=1e-6))
        assert slope.exceeds(1.0)
        assert not slope.exceeds(2.1)

    def test_noise_proves_nothing(self):
        slope = slope_of([0, 60, 120, 180], [10, 30, 8, 33])
        assert slope.per_minute > 1
        assert not slope.exceeds(1.0)


def test_what_is_told_late_fails_the_row():
    record = Record(ROWS[0].__class__("one", "two", seconds=-1.0))
    with pytest.raises(AssertionError, match="after 0 s"):
        record.clients_saw("200")
