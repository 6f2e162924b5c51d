"""`vlm-gateway doctor`: what a start-up log of vLLM says, or a running server. Its parts are beside it."""

import json
from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.doctor.comparing import Assumed, assume, compare_with_plan
from gateway.cli.doctor.live import ask_server
from gateway.cli.doctor.reading import read_file
from gateway.cli.doctor.report import as_json
from gateway.cli.doctor.tables import as_page, print_diagnosis
from gateway.cli.options import fail, wide_console
from gateway.domain.doctor.diagnosis import Diagnosis, Ending, diagnose


def doctor(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="The log, or a pasted `vllm serve` line; - reads standard input."),
    ] = None,
    upstream: Annotated[
        str | None,
        typer.Option("--upstream", metavar="URL", help="Ask a running vLLM instead, e.g. http://127.0.0.1:8000."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="The model, where the log names a folder or an alias: a name, or its folder.")
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option(help="The card, where the log does not tell its memory: L4, or its GiB."),
    ] = None,
    command: Annotated[
        str | None,
        typer.Option(metavar="'vllm serve ...'", help="How it was started, where the log or the server does not tell."),
    ] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write all of it as one HTML page too.")] = None,
    json_too: Annotated[bool, typer.Option("--json", help="End with one line of JSON.")] = False,
) -> None:
    """Read a start-up log of vLLM, from 0.6 to 0.32, and say what it measured, how far it came, what failed and why,
    and which flag to try next.

    Numbers stand beside those of a plan where the model is known. Flags that vLLM has not, or that do not do what they
    are given for, are named, and so are numbers that cannot all be true.

    For example:

      vlm-gateway doctor vllm.log

      vlm-gateway doctor vllm.log --model Qwen/Qwen2.5-VL-3B-Instruct --gpu L4

      vlm-gateway doctor vllm.log --json | tail -1

      vlm-gateway doctor --upstream http://127.0.0.1:8000 --gpu L4

    Exit code 0: it started, and its numbers can be true; or it is a command whose flags vLLM takes. 1: it did not
    start, it died, the log ends before it was ready, numbers contradict each other, or flags are refused. 2: there is
    nothing to read, no line of it is vLLM's, or --gpu names no card.
    """
    if (file is None) == (upstream is None):
        fail("Give a log (FILE, or - for standard input), or --upstream URL.")
    assumed = Assumed(model, gpu, command)
    diagnosis = _diagnosed(file, upstream, assumed)
    comparison = compare_with_plan(diagnosis.start, assumed)
    print_diagnosis(wide_console(), diagnosis, comparison)
    if html is not None:
        _write(html, as_page(diagnosis, comparison))
    if json_too:
        typer.echo(json.dumps(as_json(diagnosis, comparison)))
    if not diagnosis.is_well:
        raise typer.Exit(1)


def _diagnosed(file: Path | None, upstream: str | None, assumed: Assumed) -> Diagnosis:
    log = ask_server(upstream) if upstream is not None else read_file(str(file))
    try:
        assume(log.start, assumed)
    except ValueError as refused:
        fail(str(refused))
    diagnosis = diagnose(log)
    if diagnosis.ending is Ending.NOTHING:
        fail(f"{file}: no line in it is vLLM's, among {log.lines:,} that were read. Is it the output of `vllm serve`?")
    return diagnosis


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        fail(f"--html {path}: {error.strerror or error}")
