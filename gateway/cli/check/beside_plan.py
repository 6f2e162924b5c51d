"""`check` beside a plan: what each running server says of its KV pool, and what a plan of the same start gives."""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from gateway.cli.doctor.comparing import Assumed, assume, compare_with_plan
from gateway.cli.doctor.live import look_at_server
from gateway.cli.doctor.report import comparison_as_json
from gateway.cli.doctor.tables import print_comparison
from gateway.cli.options import wide_console
from gateway.domain.doctor.planned import Comparison
from gateway.policies import UpstreamPolicy
from gateway.upstream.pages import PageError


class Compared(NamedTuple):
    url: str
    comparison: Comparison

    def as_json(self) -> dict[str, object]:
        return {"url": self.url, **comparison_as_json(self.comparison)}


def compare_servers(upstreams: Sequence[UpstreamPolicy], assumed: Assumed) -> list[Compared]:
    """Asks each once more: its cache configuration is nothing that the poller reads."""
    return asyncio.run(_compare_all(upstreams, assumed))


async def _compare_all(upstreams: Sequence[UpstreamPolicy], assumed: Assumed) -> list[Compared]:
    return list(await asyncio.gather(*(_compare(each, assumed) for each in upstreams)))


async def _compare(upstream: UpstreamPolicy, assumed: Assumed) -> Compared:
    try:
        log = await look_at_server(upstream.url, upstream.key)
    except (PageError, ValueError) as error:
        return Compared(upstream.url, Comparison(why_not=f"{error}."))
    assume(log.start, assumed)
    return Compared(upstream.url, compare_with_plan(log.start, assumed))


def print_compared(compared: Sequence[Compared]) -> None:
    console = wide_console()
    for each in compared:
        console.print(f"\nPlan for {each.url}", markup=False)
        print_comparison(console, each.comparison)
