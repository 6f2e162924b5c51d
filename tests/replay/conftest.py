"""A day decided again: what became of each request, by the time at which it arrived."""

from collections.abc import Callable
from typing import Any

import pytest

from gateway.cli.replay.columns import Column, configuration_of
from gateway.cli.replay.files import Log
from gateway.policies import models_of
from gateway.replay.lines import Unusable
from gateway.replay.pace import recordings_of
from gateway.replay.simulation import Simulation
from gateway.settings import Settings


@pytest.fixture(scope="session")
def replay() -> Callable[..., dict[float, Any]]:
    """`replay(lines, **sections of the settings file)`. Asserts that every request ends exactly once."""
    return _replay


def _replay(lines, **sections):
    settings = Settings.model_validate(sections)
    lines = sorted(lines, key=lambda line: line.offered)
    column = Column("new", settings, models_of(settings))
    ended = {}

    def on_ended(line, how):
        assert line.arrived not in ended, "it ends once"
        ended[line.arrived] = how

    Simulation(configuration_of(column, Log("log", lines, Unusable())), recordings_of(lines), on_ended).run(lines)
    return ended
