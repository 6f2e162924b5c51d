"""How `check` prints what it found."""

import json

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gateway.cli.check.calibration import print_calibrations
from gateway.cli.check.findings import Effective, Findings, UpstreamFound
from gateway.cli.check.numbers import numbers_tables
from gateway.cli.options import wide_console

_MIB = 1 << 20
_OFF = (
    "slo.",
    "keys.",
    "tenants_from.",
    "server.tls.",
    "upstream.tls.certificate",
    "upstream.tls.key",
    "upstream.api_key",
)


def print_findings(findings: Findings) -> None:
    """Settings, limits, upstream, and what is not enforced."""
    console = wide_console()
    console.print(_settings_table(findings))
    if findings.is_shadow:
        console.print("Shadow mode: nothing is queued, refused or changed; what would be decided is only told.\n")
    _print_listening(console, findings)
    console.print(_memory_table(findings))
    console.print(_pixels_table(findings))
    if findings.ladder:
        console.print(_ladder_table(findings))
    if findings.levels:
        console.print(_levels_table(findings))
    for upstream in findings.upstreams:
        _print_upstream(console, upstream)
    _print_list(console, "Hardly meant", findings.doubts)
    _print_list(console, "Not known, and what that means", findings.unknown)


def _print_listening(console: Console, findings: Findings) -> None:
    host, why = findings.listening
    console.print(f"Listens on {host}: {why}.\n", markup=False, soft_wrap=True)


def _print_list(console: Console, title: str, sentences: list[str]) -> None:
    if sentences:
        console.print(f"\n{title}:")
    for sentence in sentences:
        console.print(f"- {sentence}", markup=False, soft_wrap=True)


def _settings_table(findings: Findings) -> Table:
    table = _table("Settings", "name", "value", "from")
    for each in findings.settings:
        style = None if each.origin == "default" else "bold"
        table.add_row(each.name, Text(_shown(each)), Text(each.origin), style=style)
    return table


def _shown(each: Effective) -> str:
    if each.value is None:
        # These are the operator's to say: nobody finds them out for him.
        return "(off)" if each.name.startswith(_OFF) else "(automatic)"
    return each.value if isinstance(each.value, str) else json.dumps(each.value)


def _memory_table(findings: Findings) -> Table:
    budgets = findings.budgets
    rows = {
        "memory limit of this process": budgets.limit_bytes,
        "bodies of requests (budget.body_bytes)": budgets.body_bytes,
        "decoding images (budget.decode_bytes)": budgets.decode_bytes,
        "caches of images": budgets.cache_bytes,
        "largest body": findings.max_body_bytes,
    }
    table = _table("Memory", "what", "MiB")
    for name, byte_count in rows.items():
        table.add_row(name, f"{byte_count / _MIB:,.0f}")
    return table


def _pixels_table(findings: Findings) -> Table:
    table = _table("Largest image", "format", "megapixels", "bound by")
    for limit in findings.pixels:
        table.add_row(limit.name, f"{limit.pixels / 1e6:,.1f}", limit.bound_by)
    return table


def _levels_table(findings: Findings) -> Table:
    table = _table("Levels of service, in seconds from arrival", "tenant", "priority", "first token", "whole answer")
    for each in findings.levels:
        dues = ("-" if due is None else f"{due:g}" for due in (each.first_token_seconds, each.total_seconds))
        table.add_row(Text(each.tenant), each.priority, *dues)
    return table


def _ladder_table(findings: Findings) -> Table:
    table = _table("Under pressure", "rung", "from", "until below", "what happens")
    for rung in findings.ladder:
        table.add_row(rung.rung, f"{rung.enter:g}", f"{rung.leave:g}", rung.what)
    return table


def _print_upstream(console: Console, upstream: UpstreamFound) -> None:
    state, engine = upstream.state, upstream.engine
    where = upstream.url if upstream.name is None else f"{upstream.name} ({upstream.url})"
    if state.is_up:
        console.print(f"\nUpstream {where}: vLLM {state.version or 'of unknown version'}", markup=False)
        if state.trouble:
            console.print(f"Trouble: {state.trouble}", markup=False)
    else:
        given = "" if upstream.is_given else " (the default; give --upstream)"
        console.print(f"\nUpstream {where}{given} does not answer: {state.trouble}", markup=False)
    if engine.kv_blocks is not None:
        tokens = engine.kv_blocks * engine.kv_block_tokens
        has_groups = any((model.kv_groups or 1) > 1 for model in upstream.models)
        whole = ", shared by the KV groups of a model" if has_groups else f" = {tokens:,} tokens"
        console.print(f"KV pool: {engine.kv_blocks:,} blocks of {engine.kv_block_tokens} tokens{whole}")
    if upstream.planned is not None:
        console.print(upstream.planned.sentence, soft_wrap=True)
    if state.report is not None:
        console.print(f"Prefix caching: {'on' if engine.prefix_caching else 'off'}")
    if upstream.models:
        console.print(_models_table(upstream))
        for table in numbers_tables(upstream.models):
            console.print(table)
    print_calibrations(console, upstream.calibrations, upstream.calibrated_families)


def _models_table(upstream: UpstreamFound) -> Table:
    columns = (
        *("name", "context", "family", "found by", "KV groups", "text"),
        *("tokens of the largest image", "most of a video", "price"),
    )
    table = _table("Models", *columns)
    for model in upstream.models:
        table.add_row(
            Text(model.name if model.is_served else f"{model.name} (not listed by the upstream)"),
            "unknown" if model.max_model_len is None else f"{model.max_model_len:,}",
            model.family,
            model.family_source,
            "unknown layout" if model.kv_groups is None else f"{model.kv_groups} (by {model.kv_groups_source})",
            "exact" if model.is_text_exact else "estimated",
            f"{model.max_image_tokens:,}",
            "no bound" if model.max_video_tokens is None else f"{model.max_video_tokens:,}",
            model.price,
        )
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for column in columns:
        table.add_column(
            column, justify="right" if column in {"MiB", "megapixels"} else "left", no_wrap=column == "name"
        )
    return table
