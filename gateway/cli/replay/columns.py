"""Columns of the table: what was, and what each configuration would have made of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gateway.access import tenants_of
from gateway.cli.log_files import progress
from gateway.cli.options import fail, read_settings
from gateway.cli.replay.files import Log
from gateway.ledger.host_memory import memory_limit_bytes
from gateway.models.configure import ModelSettingsError
from gateway.models.served import ModelTable, ServedModel
from gateway.policies import (
    ByteBudgets,
    UpstreamPolicy,
    engine_of,
    models_of,
    policies_of,
    preprocess_backlog_seconds_of,
    pressure_policy_of,
    queue_policy_of,
    soonest_level,
    upstreams_of,
)
from gateway.replay.pace import Pace, recordings_of
from gateway.replay.pricing import EngineSettings
from gateway.replay.simulation import PROGRESS_LINES, Configuration, Simulation
from gateway.replay.tally import Day, as_recorded
from gateway.settings import Settings

_ONLY_FLAGS = "settings"


@dataclass(frozen=True, slots=True)
class Column:
    """Settings, and the models that they name."""

    name: str
    settings: Settings
    models: list[ServedModel]


@dataclass(frozen=True, slots=True)
class Replayed:
    """`paces` are of the log's model servers, by name; `days` begin with the recorded one."""

    paces: dict[str | None, Pace]
    days: list[Day]


def columns_of(configs: Sequence[Path] | None, assignments: list[str] | None) -> list[Column]:
    """One for each file, or one where there are only --set. Mistakes end the command with exit code 2."""
    paths: list[Path | None] = list(configs or ())
    if not paths and assignments:
        paths = [None]
    names = [_ONLY_FLAGS if path is None else path.stem for path in paths]
    if len(set(names)) < len(names):
        names = [str(path) for path in paths]
    return [_column(name, path, assignments) for name, path in zip(names, paths, strict=True)]


def _column(name: str, path: Path | None, assignments: list[str] | None) -> Column:
    settings = read_settings(path, assignments, {}).settings
    try:
        return Column(name, settings, models_of(settings))
    except ModelSettingsError as mistakes:
        fail(f"{name}: the models cannot be read:\n{mistakes}")


def replay_all(log: Log, columns: Sequence[Column]) -> Replayed:
    recordings = recordings_of(log.lines)
    recorded = Day("recorded")
    for line in log.lines:
        if (ended := as_recorded(line)) is not None:
            recorded.add(line, ended)
    days = [recorded]
    with progress() as bar:
        for column in columns:
            task, day = bar.add_task(column.name, total=len(log.lines)), Day(column.name)
            simulation = Simulation(configuration_of(column, log), recordings, day.add)
            simulation.run(log.lines, partial(bar.advance, task, PROGRESS_LINES))
            days.append(day)
    return Replayed({name: recording.pace for name, recording in recordings.items()}, days)


def configuration_of(column: Column, log: Log) -> Configuration:
    """What the gateway would be made of, if its model servers listed all models that the log names.

    A server that the settings do not name is like the first that they do.
    """
    settings = column.settings
    budgets = ByteBudgets.of(settings.budget, memory_limit_bytes())
    upstreams = {upstream.name: upstream for upstream in upstreams_of(settings)}
    names = dict.fromkeys(sorted({line.model for line in log.lines if line.model}))

    def upstream_of(name: str | None) -> UpstreamPolicy:
        return upstreams.get(name or "") or next(iter(upstreams.values()))

    def engine_settings(name: str | None) -> EngineSettings:
        return EngineSettings(upstream_of(name).kv_blocks, upstream_of(name).sequences, settings.budget.encoder_tokens)

    def models_at(name: str | None) -> ModelTable:
        table = ModelTable([model.at_one_upstream() for model in column.models], engine_of(settings, upstream_of(name)))
        table.listed(names)
        return table

    return Configuration(
        policies=policies_of(settings, budgets),
        engine_of=engine_settings,
        models_of=models_at,
        queue=queue_policy_of(settings, budgets.body_bytes),
        preprocess_backlog_seconds=preprocess_backlog_seconds_of(settings),
        soonest=soonest_level(settings),
        tenants=tenants_of(settings),
        pressure=pressure_policy_of(settings),
    )
