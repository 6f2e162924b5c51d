"""A plan as one HTML file that needs nothing else: no script, no style sheet, no font, no picture from anywhere."""

import shlex
from collections.abc import Iterable, Sequence
from html import escape

from gateway.cli.plan.tables import segments, term_rows
from gateway.domain.memory.advice import reliefs
from gateway.domain.memory.holding import Held
from gateway.domain.memory.plan import Plan, Span
from gateway.domain.memory.planning import OUT_OF_SCOPE
from gateway.domain.memory.serve_line import write_command

_COLOURS = {
    "F": "#8a8a8a",
    "W": "#3b6fb6",
    "B": "#3aa3a3",
    "N": "#9b59b6",
    "P": "#c0392b",
    "G": "#d4a017",
    "K": "#2e8b57",
    ".": "#dddddd",
}
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; color: #1b1b1b }
h1 { font-size: 1.4rem } h2 { font-size: 1.1rem; margin-top: 2rem }
table { border-collapse: collapse; width: 100%; display: block; overflow-x: auto }
th, td { padding: .25rem .6rem; text-align: left }
tr { border-bottom: 1px solid #ddd } .n { text-align: right; font-variant-numeric: tabular-nums }
.bar { display: flex; height: 2rem; border: 1px solid #888 } .key { display: inline-block; width: .8em; height: .8em }
code { background: #f3f3f3; padding: .1rem .3rem; overflow-wrap: anywhere }
@media (prefers-color-scheme: dark) { body { background: #161616; color: #e8e8e8 } code { background: #2a2a2a } }
"""


def plan_page(plans: Sequence[Plan], held: Sequence[Sequence[Held]]) -> str:
    """One section a plan."""
    body = "".join(_section(plan, images) for plan, images in zip(plans, held, strict=True))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width"><title>Memory plan</title>'
        f"<style>{_STYLE}</style></head><body>{body}<p>{escape(OUT_OF_SCOPE)}</p></body></html>\n"
    )


def _section(plan: Plan, held: Sequence[Held]) -> str:
    cards = f"{plan.flags.tensor_parallel_size} x {plan.gpu.name}"
    command = shlex.join(write_command(plan.model.name, plan.flags))
    rows = [(name, *_amount(amount), remark) for name, amount, remark in term_rows(plan)]
    found = [(each.flag, f"{each.pool_gib:+.2f}", each.loss) for each in reliefs(plan)]
    images = [(each.size, each.tokens, each.pool_low, each.pool_expected, each.per_request) for each in held]
    phases = [
        (each.phase, f"{each.needed.expected:.2f}", f"{each.available.expected:.2f}", f"{each.slack.expected:+.2f}")
        for each in plan.checks
    ]
    return "".join(
        (
            f"<h1>{escape(plan.model.name)} on {escape(cards)}, vLLM {escape(str(plan.version))}</h1>",
            f"<p><strong>{escape(str(plan.verdict))}</strong>: {escape(plan.verdict.why)}.</p>",
            f"<p><code>{escape(command)}</code></p>",
            _bar(plan),
            _table("Memory of each card", ("term", "GiB", "between", "what it is"), rows),
            _table("Start-up, phase by phase", ("phase", "needs", "has", "left"), phases),
            _table("Images that the KV pool holds", ("size", "tokens", "at least", "expected", "in a request"), images),
            _table("What one flag would change", ("flag", "KV pool, GiB", "what is lost"), found),
            "".join(f"<p>{escape(note)}</p>" for note in plan.notes),
        )
    )


def _amount(amount: float | Span) -> tuple[str, str]:
    if isinstance(amount, Span):
        return f"{amount.expected:.2f}", f"{amount.low:.2f} and {amount.high:.2f}"
    return f"{amount:.2f}", ""


def _bar(plan: Plan) -> str:
    parts = segments(plan)
    whole = sum(part.gib for part in parts)
    blocks = "".join(
        f'<span title="{escape(part.name)}" style="background:{_COLOURS[part.letter]};'
        f'width:{100 * part.gib / whole:.2f}%"></span>'
        for part in parts
    )
    keys = " ".join(
        f'<span class="key" style="background:{_COLOURS[part.letter]}"></span> {escape(part.name)} {part.gib:.2f}'
        for part in parts
    )
    return f'<div class="bar">{blocks}</div><p>{keys}</p>'


def _table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    shown = "".join("<tr>" + "".join(_cell(str(value)) for value in row) + "</tr>" for row in rows)
    if not shown:
        return ""
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    return f"<h2>{escape(title)}</h2><table><thead><tr>{head}</tr></thead><tbody>{shown}</tbody></table>"


def _cell(value: str) -> str:
    is_number = value.lstrip("+-").replace(".", "").replace(",", "").isdigit()
    return f'<td class="n">{escape(value)}</td>' if is_number else f"<td>{escape(value)}</td>"
