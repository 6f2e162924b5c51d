"""`vlm-gateway check`: what the gateway would run with, and what it would find. Its parts are beside it."""

import asyncio
import json
from typing import Annotated

import typer

from gateway.cli.check.findings import LOOK_SECONDS, find
from gateway.cli.check.tables import print_findings
from gateway.cli.options import Assignments, ConfigFile, fail, read_settings
from gateway.ledger.host_memory import memory_limit_bytes
from gateway.models.configure import ModelSettingsError
from gateway.policies import models_of
from gateway.upstream.poll import discover
from gateway.upstream.state import UpstreamState


def check(
    config: ConfigFile = None,
    assignments: Assignments = None,
    upstream: Annotated[
        str | None, typer.Option("--upstream", help="Address of the vLLM server, e.g. http://127.0.0.1:8000.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="End with one line of JSON.")] = False,
) -> None:
    """Print every setting with its value and source, the limits that follow from it, and what vLLM says of itself.

    Every name here can be set in the file, as a flag (--set queue.requests=64) or in the environment
    (GATEWAY_QUEUE__REQUESTS=64); the flag wins, then the environment.

    For example:

      vlm-gateway check

      vlm-gateway check --config gateway.yaml --upstream http://vllm:8000

      vlm-gateway check --set images.max_pixels=20000000 --json | tail -1

    Exit code 0: fit to serve. 1: the upstream that was given does not answer. 2: mistakes, all of them named.
    """
    loaded = read_settings(config, assignments, {"upstream.url": upstream})
    try:
        models = models_of(loaded.settings)
    except ModelSettingsError as mistakes:
        fail(f"The models cannot be read:\n{mistakes}")
    server = loaded.settings.upstream
    key = server.api_key.get_secret_value() if server.api_key else None
    state: UpstreamState = asyncio.run(discover(str(server.url), upstream_key=key, timeout_seconds=LOOK_SECONDS))
    findings = find(loaded, models, state, memory_limit_bytes())
    print_findings(findings)
    if as_json:
        typer.echo(json.dumps(findings.as_json()))
    if findings.is_upstream_given and not state.is_up:
        fail(f"The upstream {findings.url} cannot be used: {state.trouble}", exit_code=1)
