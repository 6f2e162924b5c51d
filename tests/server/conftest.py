"""Upstreams of three kinds before which a gateway can be put: the emulator, one that obeys a script, none at all."""

from collections.abc import Iterator

import pytest

from gateway.emulator.config import EmulatorConfig, StepCost
from gateway.emulator.serve import RunningEmulator, running_emulator


@pytest.fixture(scope="session")
def emulator() -> Iterator[RunningEmulator]:
    """Answers at once."""
    with running_emulator(EmulatorConfig.fast()) as running:
        yield running


@pytest.fixture
def slow_emulator() -> Iterator[RunningEmulator]:
    """A token each hundredth of a second."""
    with running_emulator(EmulatorConfig.fast(step_cost=StepCost(0.01, 0.0, 0.0, 0.0))) as running:
        yield running
