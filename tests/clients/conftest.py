"""One gateway process for all clients, one process for each client, and the table of what was seen."""

from collections.abc import Callable, Iterator

import pytest

from tests.clients.matrix import Matrix
from tests.clients.staging import Stage, narrow_stage, plain_stage, pooling_stage
from tests.clients.talking import CLIENTS, Client, client


@pytest.fixture(scope="session")
def clients() -> Iterator[dict[str, Client]]:
    every = {name: client(name).start() for name in CLIENTS}  # all at once: what they import takes seconds
    yield every
    for each in every.values():
        each.stop()


@pytest.fixture(scope="session")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with plain_stage(tmp_path_factory.mktemp("gateway")) as staged:
        yield staged


@pytest.fixture(scope="session")
def pooling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A server of vLLM either generates or pools."""
    with pooling_stage(tmp_path_factory.mktemp("pooling")) as staged:
        yield staged


@pytest.fixture
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """One for each client: of one that comes back without saying so, a place would stay promised for a while."""
    with narrow_stage(tmp_path_factory.mktemp("narrow")) as staged:
        yield staged


@pytest.fixture(scope="session")
def matrix(report_line: Callable[[str], None]) -> Iterator[Matrix]:
    """Printed below the run."""
    seen = Matrix()
    yield seen
    for line in seen.lines():
        report_line(line)
