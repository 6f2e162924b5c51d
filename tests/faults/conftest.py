"""The suite's table, and how its gateways differ from users': connections to the upstream idle for a moment only, so
that descriptors come back while a test looks.
"""

from collections.abc import Iterator

import pytest

from gateway.emulator.config import EmulatorConfig, StepCost
from gateway.emulator.serve import RunningEmulator, running_emulator
from tests.faults.record import Record
from tests.faults.rows import BY_NAME

HEAD = f"{'fault':44} {'told':>7}   {'back':>7}    leaked  clients saw"


@pytest.fixture(scope="session")
def fault_table(report_line) -> list[str]:
    report_line(HEAD)
    return []


@pytest.fixture
def fault(request, fault_table, report_line) -> Iterator[Record]:
    """The record of the row that the test is marked with; its line is told, however the test ends."""
    mark = request.node.get_closest_marker("fault")
    record = Record(BY_NAME[mark.args[0]])
    yield record
    report_line(record.line())


@pytest.fixture
def short_pools(monkeypatch) -> None:
    monkeypatch.setattr("gateway.upstream.call._KEEP_ALIVE_SECONDS", 0.2)


@pytest.fixture
def slow_emulator() -> Iterator[RunningEmulator]:
    """A token each hundredth of a second."""
    with running_emulator(EmulatorConfig.fast(step_cost=StepCost(0.01, 0.0, 0.0, 0.0))) as running:
        yield running
