"""docs/clients.md has the clients, their locked versions and what is tried with each."""

from tests.clients.matrix import Matrix, documented, expected, table, versions
from tests.clients.talking import CLIENTS, ROOT


def test_the_page_has_the_table_of_the_locks():
    assert documented(ROOT / "docs" / "clients.md")[: len(CLIENTS) + 2] == table(
        {name: expected(name) for name in CLIENTS}
    )


def test_each_version_is_one():
    assert all(version[0].isdigit() for name, version in versions().items() if name != "curl")


def test_a_run_shows_what_it_saw():
    matrix = Matrix()
    matrix.note("curl", "chat")
    assert matrix.lines()[-1] == "| curl | Debian's | yes | - | - | - | - | - | - | - | - |"
