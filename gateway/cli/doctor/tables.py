"""How `doctor` prints what it found: the verdict first, then why, then the numbers."""

from collections.abc import Iterator, Mapping
from io import StringIO

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gateway.cli.options import PIPE_WIDTH
from gateway.domain.doctor.diagnosis import Diagnosis, Ending, Finding
from gateway.domain.doctor.measured import Start, Term
from gateway.domain.doctor.planned import Comparison, Row
from gateway.domain.doctor.signs import Kind

_NAMES: Mapping[Term, str] = {
    Term.TOTAL_GIB: "memory of the card",
    Term.FREE_GIB: "free at the start",
    Term.UTILISATION: "gpu-memory-utilization",
    Term.BUDGET_GIB: "budget",
    Term.WEIGHTS_GIB: "weights",
    Term.LOAD_SECONDS: "loading",
    Term.NON_TORCH_GIB: "non-torch",
    Term.WEIGHTS_AND_NON_TORCH_GIB: "weights and non-torch",
    Term.TORCH_PEAK_GIB: "torch's peak, weights included",
    Term.ACTIVATION_GIB: "peak of the profile run",
    Term.PROFILE_SECONDS: "profile run",
    Term.ENCODER_BUDGET: "encoder budget",
    Term.ENCODER_ITEMS: "items profiled",
    Term.BATCHED_TOKENS: "max-num-batched-tokens",
    Term.CONTEXT: "max-model-len",
    Term.KV_GIB: "KV cache",
    Term.KV_TOKENS: "KV tokens",
    Term.KV_BLOCKS: "KV blocks",
    Term.BLOCK_TOKENS: "tokens in a block",
    Term.CONCURRENCY: "requests of the whole context",
    Term.CONCURRENCY_CONTEXT: "tokens in that context",
    Term.GRAPHS_GIB: "CUDA graphs",
    Term.GRAPHS_ESTIMATE_GIB: "CUDA graphs, estimated",
    Term.START_SECONDS: "start of the engine",
}


_MOST_RELIEFS = 4
_HELPED_BY_A_LARGER_POOL = frozenset({Kind.NO_CACHE_BLOCKS, Kind.CONTEXT_LARGER_THAN_POOL})


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>vLLM's start</title>
<style>
body {{ color: {foreground}; background: {background}; margin: 2rem 1rem }}
pre {{ font: 13px/1.4 monospace; white-space: pre-wrap; overflow-wrap: anywhere; min-width: 110ch; max-width: 150ch }}
</style></head><body><pre>{code}</pre></body></html>
"""
"""Sentences are as wide as the window, and never narrower than the tables."""


def as_page(diagnosis: Diagnosis, comparison: Comparison) -> str:
    """What is printed as one HTML file that needs nothing else."""
    console = Console(record=True, file=StringIO(), width=PIPE_WIDTH, highlight=False)
    print_diagnosis(console, diagnosis, comparison)
    return console.export_html(inline_styles=True, code_format=_PAGE)


def print_diagnosis(console: Console, diagnosis: Diagnosis, comparison: Comparison) -> None:
    for line in _heading(diagnosis):
        say(console, line)
    for found in diagnosis.findings:
        _print_finding(console, found)
    if diagnosis.start.readings:
        console.print(_numbers_table(diagnosis.start))
    print_comparison(console, comparison)
    if any(found.kind in _HELPED_BY_A_LARGER_POOL for found in diagnosis.findings):
        reliefs = [
            f"{each.flag}: KV pool {each.pool_gib:+.2f} GiB, at the cost of {each.loss}" for each in comparison.reliefs
        ]
        _print_list(console, "By the plan, one flag alone would change", reliefs[:_MOST_RELIEFS])
    contradictions = (*diagnosis.contradictions, *comparison.contradictions)
    _print_list(console, "Numbers", [f"{each.certainty}: {each.text}" for each in contradictions])
    flags = [f"{note.flag}{_given(note.value)}: {note.verdict}. {note.text}" for note in diagnosis.flag_notes]
    _print_list(console, "Flags", flags)
    _print_list(console, "Notes", diagnosis.notes)


def print_comparison(console: Console, comparison: Comparison) -> None:
    """The table, as far as there is a plan, and why there is no more of it."""
    if comparison.rows:
        console.print(_comparison_table(comparison))
    if comparison.why_not is not None:
        say(console, f"Not compared{' further' if comparison.rows else ' with a plan'}: {comparison.why_not}")
    if comparison.verdict is not None:
        say(console, f"A plan of the same start says: {comparison.verdict}.")


def _heading(diagnosis: Diagnosis) -> Iterator[str]:
    start = diagnosis.start
    engine = "" if start.engine is None else f", engine {start.engine}"
    model = start.model or start.architecture
    yield f"vLLM {start.version or 'of unknown version'}{engine}: {model or 'model not named'}"
    if diagnosis.ending is Ending.STARTED:
        yield "Verdict: it started."
    elif diagnosis.ending is Ending.COMMAND:
        yield "Verdict: a command, not a log; its flags are judged."
    else:
        unknown = ", cause not known here" if diagnosis.is_unexplained else ""
        yield f"Verdict: {diagnosis.ending}{unknown}; it was at: {start.stage.words}."


def _print_finding(console: Console, found: Finding) -> None:
    times = "" if found.count == 1 else f", {found.count} times"
    kind = "Refused requests" if found.is_of_a_request else "Failed"
    say(console, f"\n{kind}: {found.advice.title} (line {found.line}{times})")
    say(console, f"  {found.text.strip()[:200]}")
    say(console, f"  Why: {found.advice.cause}")
    for cure in found.advice.cures:
        say(console, f"  - {cure}")
    for flag in found.advice.flags:
        say(console, f"  Try: {flag}")


def _numbers_table(start: Start) -> Table:
    table = _table("Measured", "what", "value", "other ranks", "line")
    for term, name in _NAMES.items():
        reading = start.readings.get(term)
        if reading is not None:
            other = "" if reading.other == reading.value else shown(term, reading.other)
            table.add_row(name, shown(term, reading.value), other, str(reading.line or ""))
    if start.profiled_modality is not None:
        table.add_row("modality profiled", Text(start.profiled_modality), "", "")
    return table


def shown(term: Term, value: float) -> str:
    """With the unit that the name of the term ends in."""
    if term.endswith("_gib"):
        return f"{value:,.2f} GiB"
    if term.endswith("_seconds"):
        return f"{value:,.1f} s"
    return f"{value:,.0f}" if value == int(value) and term is not Term.CONCURRENCY else f"{value:,.2f}"


def _comparison_table(comparison: Comparison) -> Table:
    table = _table("Measured against planned", "what", "measured", "planned", "between", "difference")
    for row in comparison.rows:
        between = (
            ""
            if row.planned.low == row.planned.high
            else f"{_amount(row, row.planned.low)} to {_amount(row, row.planned.high)}"
        )
        sign = "" if row.is_within else " !"
        difference = f"{row.difference:+,.2f}" if row.unit == "GiB" else f"{row.difference:+,.0f}"
        cells = (_amount(row, row.measured), _amount(row, row.planned.expected), between, difference + sign)
        table.add_row(row.what, *cells)
    return table


def _amount(row: Row, value: float) -> str:
    return f"{value:,.2f} GiB" if row.unit == "GiB" else f"{value:,.1f}" if row.unit == "requests" else f"{value:,.0f}"


def _given(value: str | None) -> str:
    return "" if value is None else f" {value}"


def _print_list(console: Console, title: str, sentences: tuple[str, ...] | list[str]) -> None:
    if sentences:
        say(console, f"\n{title}:")
    for sentence in sentences:
        say(console, f"- {sentence}")


def say(console: Console, line: str) -> None:
    """Words of a log may look like markup, and may hold what moves a cursor."""
    safe = "".join(character if character.isprintable() or character == "\n" else "?" for character in line)
    console.print(safe, markup=False, soft_wrap=True)


def _table(title: str, *columns: str) -> Table:
    table = Table(title=f"\n{title}", title_justify="left", box=box.SIMPLE_HEAD)
    for column in columns:
        table.add_column(column, justify="left" if column in {"what", "between"} else "right")
    return table
