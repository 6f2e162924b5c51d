"""`vlm-gateway replay`: a recorded day decided once more under other settings. Its parts are beside it."""

from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.options import Assignments, fail
from gateway.cli.replay.columns import columns_of, replay_all
from gateway.cli.replay.files import read_log, write_log
from gateway.cli.replay.tables import print_as_json, print_replay
from gateway.cli.replay.traffic import (
    Asked,
    Bursts,
    Hours,
    KvBlocks,
    MixShares,
    ModelName,
    Rate,
    Seed,
    TenantShares,
    Turns,
    read_traffic,
)

_FOR_TRAFFIC = ("seed", "hours", "rate", "mix", "bursts", "tenants", "turns", "model", "kv_blocks")


LogFile = Annotated[
    Path | None, typer.Argument(help="The request log: JSON lines, also in gzip (.gz); - reads standard input.")
]


def replay(
    context: typer.Context,
    log: LogFile = None,
    configs: Annotated[
        list[Path] | None, typer.Option("--config", help="YAML file with settings: one column. May be repeated.")
    ] = None,
    assignments: Assignments = None,
    as_json: Annotated[bool, typer.Option("--json", help="End with one line of JSON.")] = False,
    generate: Annotated[
        Path | None, typer.Option(metavar="OUT", help="Make traffic that nobody sent, write it there, then replay it.")
    ] = None,
    seed: Seed = 0,
    hours: Hours = 1.0,
    rate: Rate = 1.0,
    mix: MixShares = "text=0.6,image=0.25,session=0.15",
    bursts: Bursts = "4x30/600",
    tenants: TenantShares = "default=1",
    turns: Turns = 6.0,
    model: ModelName = "Qwen/Qwen2.5-VL-7B-Instruct",
    kv_blocks: KvBlocks = 8192,
) -> None:
    """Decide a recorded day once more: what would have been admitted, queued (and for how long), refused (and why),
    shrunk and left out under other settings, beside what was. Nothing is sent anywhere.

    The log is what `vlm-gateway serve` writes to standard output. Each --config is a column; --set changes all of them.
    What the settings leave open, such as the KV pool, is as large as it was, and the engine as fast as the log shows
    it. A bigger GPU is --set budget.kv_blocks=N, and budget.sequences where seats were short.

    For example:

      vlm-gateway replay requests.jsonl.gz --config now.yaml --config next.yaml

      vlm-gateway replay requests.jsonl --config now.yaml --set budget.kv_blocks=40000 --json | tail -1

      vlm-gateway replay --generate day.jsonl --hours 24 --rate 0.8 --tenants team-a=3,team-b=1

      vlm-gateway replay --generate busy.jsonl --rate 4 --mix image=1,session=2 --bursts 6x60/300 --config next.yaml

    What it cannot know: clients that would not have come back, or would have, had they been served or refused; answers
    of those who were refused (they get the length of another's); which images of a batch are of one conversation (all
    are taken for one's, so limits on images are stricter there); preemption and others at the same engine; what was
    learned before the log begins.

    Exit code 2: the command line, the settings or the log cannot be used.
    """
    if (log is None) == (generate is None):
        fail("Name the log to replay, or make one with --generate OUT; `vlm-gateway replay --help` has examples.")
    columns = columns_of(configs, assignments)
    if generate is not None:
        write_log(generate, read_traffic(Asked(seed, hours, rate, mix, bursts, tenants, turns, model, kv_blocks)))
        if not columns:
            return
    else:
        _refuse_traffic_options(context)
    read = read_log(generate or log or Path("-"))
    replayed = replay_all(read, columns)
    print_replay(read, replayed)
    if as_json:
        print_as_json(read, replayed)


def _refuse_traffic_options(context: typer.Context) -> None:
    given = [
        name
        for name in _FOR_TRAFFIC
        if (source := context.get_parameter_source(name)) is not None and source.name != "DEFAULT"
    ]
    if given:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        fail(f"A log that is there already has its traffic: leave out {options}, or add --generate OUT.")
