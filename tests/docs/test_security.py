"""The guards of docs/security.md are there: their files, and the tests that hold them."""

import ast
import re
from functools import cache

import pytest

from tests.support.markdown import ROOT, Page

PAGE = Page(ROOT / "docs" / "security.md")
ROW = re.compile(r"^\| (?P<guard>[^|]+) \| (?P<code>[^|]+) \| (?P<tests>[^|]+::[^|]+) \|$", re.MULTILINE)
A_TEST = re.compile(r"tests/[\w/]+\.py(?:::\w+)+")
TESTS = sorted({code for code in PAGE.codes if A_TEST.fullmatch(code)})


def in_backquotes(text):
    return re.findall(r"`([^`]+)`", text)


def rows_of(text):
    """What stands in the tables of guards: words, files, tests."""
    return [(row["guard"], in_backquotes(row["code"]), in_backquotes(row["tests"])) for row in ROW.finditer(text)]


def listed_modules(text):
    _, _, section = text.partition("\n## Modules that only guard\n")
    return re.findall(r"^- `(.+)`$", section, re.MULTILINE)


@cache
def names_in(name):
    """Of a file, as pytest names them."""
    found = set()
    for node in ast.parse((ROOT / name).read_text()).body:
        if isinstance(node, ast.ClassDef):
            found |= {f"{name}::{node.name}::{each.name}" for each in node.body if is_test(each)}
        elif is_test(node):
            found.add(f"{name}::{node.name}")
    return found


def is_test(node):
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")


@cache
def imported_in_the_gateway():
    """Every module that another one imports, by its dotted name."""
    found = set()
    for path in (ROOT / "gateway").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                found |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
    return found


ROWS = rows_of(PAGE.text)
MODULES = listed_modules(PAGE.text)


def test_the_page_has_guards():
    assert len(ROWS) > 50
    assert len(TESTS) > 100
    assert len(MODULES) == len(set(MODULES)) > 20


@pytest.mark.parametrize("name", TESTS)
def test_a_test_that_is_named_is_there(name):
    path = name.partition("::")[0]
    assert (ROOT / path).is_file()
    assert name in names_in(path)


@pytest.mark.parametrize(("guard", "files", "tests"), ROWS, ids=[guard[:40] for guard, _, _ in ROWS])
def test_a_guard_has_its_code_and_its_tests(guard, files, tests):
    assert files
    assert tests
    assert [name for name in files if not (ROOT / name).is_file()] == []
    assert [name for name in tests if name not in TESTS] == [], "not spelled as a test"


def test_no_row_of_the_tables_of_guards_is_left_unread():
    _, _, guards = PAGE.text.partition("\n## Guards\n")
    guards, _, _ = guards.partition("\n## ")
    lines = [line for line in guards.splitlines() if line.startswith("| ") and line != "| guard | code | tests |"]
    assert len(lines) == len(ROWS)


@pytest.mark.parametrize("module", MODULES)
def test_a_module_that_only_guards_has_a_row_and_is_in_use(module):
    assert module in {name for _, files, _ in ROWS for name in files}
    assert module.removesuffix(".py").replace("/", ".") in imported_in_the_gateway()


def test_all_of_fetching_that_decides_is_in_the_tables():
    """A module that is added where clients' addresses are asked has to be looked at here."""
    folder = {path.relative_to(ROOT).as_posix() for path in (ROOT / "gateway" / "fetch").glob("[!_]*.py")}
    assert folder - {name for _, files, _ in ROWS for name in files} == {
        "gateway/fetch/cache.py",  # keeps what came
        "gateway/fetch/encode.py",  # writes it as base64
    }


def test_a_wrong_name_would_be_found():
    text = "| A guard | `gateway/a.py`<br>`gateway/b.py` | `tests/a.py::test_b` |\n"
    assert rows_of(text) == [("A guard", ["gateway/a.py", "gateway/b.py"], ["tests/a.py::test_b"])]
    assert listed_modules("\n## Modules that only guard\n\nWords:\n\n- `gateway/a.py`\n") == ["gateway/a.py"]
    own = "tests/docs/test_security.py"
    assert f"{own}::test_a_wrong_name_would_be_found" in names_in(own)
    assert f"{own}::rows_of" not in names_in(own)
