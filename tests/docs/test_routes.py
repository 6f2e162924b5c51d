"""The matrix of routes in the documentation is the one that the tests try, cell by cell."""

from tests.conformance.doors import DOORS, matrix
from tests.support.markdown import ROOT

PAGE = (ROOT / "docs" / "routes.md").read_text(encoding="utf-8")


def test_the_matrix_is_the_tested_one():
    begin, end = "<!-- matrix: python -m tests.conformance.doors -->\n", "\n<!-- end of the matrix -->"
    assert PAGE.partition(begin)[2].partition(end)[0] == matrix(), "write there what the command prints"


def test_every_route_with_images_is_in_it():
    assert all(f"| `{door.path}` |" in PAGE for door in DOORS)
