"""`vlm-gateway check`: what the gateway would run with, and what it would find. Its parts are beside it."""

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from gateway.certificates import certificates_of
from gateway.cli.check.beside_plan import compare_servers, print_compared
from gateway.cli.check.calibration import calibrate
from gateway.cli.check.findings import LOOK_SECONDS, Asked, find, table_of
from gateway.cli.check.models import look_for_files
from gateway.cli.check.surroundings import look_around
from gateway.cli.check.tables import print_findings
from gateway.cli.doctor.comparing import Assumed
from gateway.cli.options import (
    Assignments,
    ConfigFile,
    UpstreamAddresses,
    fail,
    mistakes_told,
    read_settings,
    refuse_bad_keys,
    upstream_flags,
)
from gateway.ledger.host_memory import memory_limit_bytes
from gateway.model_files import places_of
from gateway.models.places import Places
from gateway.models.served import ServedModel
from gateway.policies import UpstreamPolicy, calibration_ways_of, models_of, upstreams_of
from gateway.settings import Settings
from gateway.upstream.poll import discover
from gateway.upstream.tls import UpstreamTls


def check(
    config: ConfigFile = None,
    assignments: Assignments = None,
    upstream: UpstreamAddresses = None,
    gpu: Annotated[
        str | None,
        typer.Option(help="Compare each running vLLM with a plan for this card: L4, or its GiB as torch sees them."),
    ] = None,
    command: Annotated[
        str | None, typer.Option(metavar="'vllm serve ...'", help="With --gpu: how that vLLM was started.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="End with one line of JSON.")] = False,
) -> None:
    """Print every setting with its value and source, the limits that follow from it, what vLLM says of itself, and of
    each model the numbers that its images' prices depend on, each with its source. What can hardly be meant is told
    too: keys and certificates that expire, files that others may read, names that nobody serves.

    Every name here can be set in the file, as a flag (--set queue.requests=64) or in the environment
    (GATEWAY_QUEUE__REQUESTS=64); the flag wins, then the environment.

    For example:

      vlm-gateway check

      vlm-gateway check --config gateway.yaml --upstream http://vllm:8000

      vlm-gateway check --set images.max_pixels=20000000 --json | tail -1

      vlm-gateway check --upstream http://vllm:8000 --gpu L4 --command 'vllm serve MODEL --max-model-len 8192'

    A server that is idle is asked what a few small pictures cost (calibration), and told where it disagrees.

    Exit code 0: fit to serve. 1: an upstream that was given does not answer. 2: mistakes, all of them named.
    """
    loaded = read_settings(config, assignments, upstream_flags(upstream))
    refuse_bad_keys(loaded.settings)
    with mistakes_told():
        models = models_of(loaded.settings)
        tls = certificates_of(loaded.settings).upstreams
    with places_of(loaded.settings, os.environ) as places:
        asked = asyncio.run(_ask_all(loaded.settings, models, places, tls))
    findings = find(loaded, asked, memory_limit_bytes(), look_around(loaded.settings, os.environ))
    print_findings(findings)
    compared = [] if gpu is None else compare_servers(upstreams_of(loaded.settings), Assumed(gpu=gpu, command=command))
    print_compared(compared)
    if as_json:
        typer.echo(json.dumps(findings.as_json() | {"compared": [each.as_json() for each in compared]}))
    absent = [each for each in findings.upstreams if each.is_given and not each.state.is_up]
    if absent:
        sentences = [f"The upstream {each.url} cannot be used: {each.state.trouble}" for each in absent]
        fail("\n".join(sentences), exit_code=1)


async def _ask_all(
    settings: Settings, models: Sequence[ServedModel], places: Places, tls: Mapping[str, UpstreamTls]
) -> list[Asked]:
    """One look at each upstream, its models' files, and what one that is idle says of their prices."""
    return await asyncio.gather(
        *(_ask(settings, each, models, places, tls.get(each.url)) for each in upstreams_of(settings))
    )


async def _ask(
    settings: Settings,
    upstream: UpstreamPolicy,
    models: Sequence[ServedModel],
    places: Places,
    tls: UpstreamTls | None,
) -> Asked:
    state = await discover(upstream.url, upstream_key=upstream.key, timeout_seconds=LOOK_SECONDS, tls=tls)
    table = table_of(settings, upstream, models, state)
    troubles = await asyncio.to_thread(look_for_files, table, places)
    return Asked(state, table, troubles, await calibrate(upstream, table, state, calibration_ways_of(settings), tls))
