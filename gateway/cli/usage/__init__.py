"""`vlm-gateway usage`: who took how many tokens, from the request log. Its parts are beside it."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.options import fail
from gateway.cli.usage.files import read_logs
from gateway.cli.usage.sums import GROUPS, Span, Sums
from gateway.cli.usage.tables import print_as_csv, print_as_json, print_table, print_unusable


def usage(
    logs: Annotated[
        list[Path],
        typer.Argument(metavar="LOG...", help="Request logs: JSON lines, also in gzip; - reads standard input."),
    ],
    by: Annotated[
        list[str] | None,
        typer.Option("--by", metavar="WHAT", help=f"{', '.join(GROUPS)}; several: repeat it. Default: day and tenant."),
    ] = None,
    since: Annotated[
        str | None, typer.Option(help="A day or time, e.g. 2026-11-01: what ended before is left out (UTC).")
    ] = None,
    until: Annotated[
        str | None, typer.Option(help="A day or time: what ended then or later is left out, the day itself too (UTC).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One line of JSON in place of the table.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="CSV with a header in place of the table.")] = False,
) -> None:
    """Sum up the tokens that requests took of the engine: text, images, videos and audio, answers, and what of the
    prompt was cached, for each day and tenant.

    LOG is what `vlm-gateway serve` writes to standard output; rotated files are named together, in any order. They are
    read as they stream by, so that they may be as long as they like. What the engine reported is exact; what had to be
    estimated, as when the client left, is part of the sums and shown apart.

    For example:

      vlm-gateway usage requests.jsonl requests.jsonl.1.gz

      vlm-gateway usage requests.jsonl --by tenant --by model --since 2026-11-01 --until 2026-12-01 --csv

      kubectl logs deploy/vlm-gateway | vlm-gateway usage - --json

    Days are those of UTC, and a request is of the day in which it ended.

    Exit code 2: the command line cannot be used, or none of the lines.
    """
    if as_json and as_csv:
        fail("Choose one of --json and --csv.")
    groups = tuple(by or ("day", "tenant"))
    if unknown := [each for each in groups if each not in GROUPS]:
        fail(f"--by {unknown[0]}: write one of {', '.join(GROUPS)}")
    sums = Sums(groups, Span(_time("--since", since), _time("--until", until)))
    unusable = read_logs(logs, sums)
    print_unusable(unusable)
    if not sums.lines:
        fail("No line is of a request log of this gateway.")
    (print_as_json if as_json else print_as_csv if as_csv else print_table)(sums)


def _time(option: str, text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        fail(f"{option} {text}: write a day as 2026-11-01, or a time as 2026-11-01T06:00")
    return time if time.tzinfo else time.replace(tzinfo=UTC)
