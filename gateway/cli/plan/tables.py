"""A plan in the terminal: the verdict, the card as a bar, each term, what the pool holds, what would help."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gateway.domain.memory.advice import best_for_top_term, peak_term, reliefs, shares, top_term
from gateway.domain.memory.holding import Held
from gateway.domain.memory.plan import Outcome, Plan, Span
from gateway.domain.memory.planning import OUT_OF_SCOPE

_BAR_WIDTH = 96
STYLES = {Outcome.FITS: "bold green", Outcome.TOO_CLOSE: "bold yellow", Outcome.DOES_NOT_FIT: "bold red"}


class Segment(NamedTuple):
    """A part of the card, `letter` in the bar."""

    letter: str
    name: str
    gib: float
    style: str


def print_plan(console: Console, plan: Plan, held: Sequence[Held]) -> None:
    """All of one plan."""
    flags, gpu = plan.flags, plan.gpu
    cards = f"{flags.tensor_parallel_size} x {gpu.name}" if flags.tensor_parallel_size > 1 else gpu.name
    console.print(f"{plan.model.name} on {cards}, vLLM {plan.version}", markup=False, style="bold")
    console.print(f"Numbers of the model: {plan.model.source}", markup=False, soft_wrap=True)
    verdict = plan.verdict
    console.print(Text.assemble("Verdict: ", (str(verdict), STYLES[verdict.outcome]), f". {verdict.why}."))
    console.print(_bar(plan))
    console.print(_terms_table(plan))
    console.print(_phases_table(plan))
    if held:
        console.print(_held_table(held))
    for line in _advice(plan):
        console.print(line, markup=False, soft_wrap=True)
    if found := reliefs(plan):
        table = table_of("What one flag would change", "flag", "KV pool, GiB", "what is lost")
        for each in found:
            table.add_row(Text(each.flag), f"{each.pool_gib:+.2f}", each.loss)
        console.print(table)
    for note in (*plan.notes, OUT_OF_SCOPE):
        console.print(f"- {note}", markup=False, soft_wrap=True)


def segments(plan: Plan) -> list[Segment]:
    """The card from end to end; a pool below nothing is left out, as what does not fit has no place in it."""
    terms, pool = plan.terms, max(0.0, plan.kv_pool.expected)
    parts = [
        Segment("F", "held by others", plan.gpu.foreign_gib, "grey50"),
        Segment("W", "weights", terms.weights, "blue"),
        Segment("B", "rotary tables, buffers, rounding", terms.loaded - terms.weights, "cyan"),
        Segment("N", "non-torch", terms.non_torch.expected, "magenta"),
        Segment("P", peak_term(plan), plan.peak.expected, "red"),
        Segment("G", "CUDA graphs", terms.graphs.expected, "yellow"),
        Segment("K", "KV pool", pool, "green"),
    ]
    rest = plan.gpu.total_gib - sum(part.gib for part in parts)
    return [*(part for part in parts if part.gib > 0), Segment(".", "left", max(0.0, rest), "grey30")]


def _bar(plan: Plan) -> Text:
    parts = segments(plan)
    whole = max(plan.gpu.total_gib, sum(part.gib for part in parts))
    bar = Text()
    for part in parts:
        bar.append(part.letter * max(1 if part.gib >= 0.01 else 0, round(part.gib / whole * _BAR_WIDTH)), part.style)
    bar.append(f"\n{plan.gpu.total_gib:.2f} GiB: ")
    bar.append(", ".join(f"{part.letter} {part.name} {part.gib:.2f}" for part in parts))
    return bar


def _terms_table(plan: Plan) -> Table:
    table = table_of("Memory of each card", "term", "GiB", "between", "what it is")
    for name, amount, remark in term_rows(plan):
        if isinstance(amount, Span):
            table.add_row(name, f"{amount.expected:.2f}", f"{amount.low:.2f} and {amount.high:.2f}", remark)
        else:
            table.add_row(name, f"{amount:.2f}", "", remark)
    return table


def term_rows(plan: Plan) -> Iterator[tuple[str, float | Span, str]]:
    """Each term: its name, how much it is, and a remark."""
    terms, flags, layout = plan.terms, plan.flags, plan.kv_layout
    yield "weights", terms.weights, "" if flags.tensor_parallel_size == 1 else "the share of one rank"
    yield "rotary tables", terms.rotary, "whole on every rank, sized by the model and not by --max-model-len"
    yield "multimodal buffers", terms.buffers, "with --max-num-batched-tokens"
    yield "allocator rounding", terms.rounding, ""
    loaded = Span.around(terms.loaded, terms.loaded_margin)
    yield "= loaded", loaded, 'vLLM: "Model loading took"'
    yield "non-torch", terms.non_torch, "CUDA, NCCL"
    yield "encoder peak", terms.encoder, _profiled(plan)
    yield (
        "encoder cache",
        terms.encoder_cache,
        f"{plan.encoder_profile.budget_tokens:,} embeddings, kept",
    )
    yield "language model peak", terms.language_model, f"{flags.max_num_batched_tokens:,} batched tokens"
    yield "sampler peak", terms.sampler, f"{flags.max_num_seqs:,} sequences x {plan.model.text.vocab:,} logits"
    yield "= profile peak", plan.peak, f"the larger of two: {peak_term(plan)}"
    where = "off the KV pool" if plan.graphs_in_budget else "out of what is left beside the pool"
    yield "CUDA graphs", terms.graphs, "" if flags.enforce_eager else where
    yield "budget", plan.budget, f"{flags.gpu_memory_utilization:g} of {plan.gpu.total_gib:.2f}"
    yield "KV pool", plan.kv_pool, f"{layout.bytes_per_token:,} bytes a token, {layout.groups} page group(s)"
    tokens = plan.kv_tokens
    held = f"the pool holds {plan.concurrency:.2f}: {tokens.expected:,} tokens ({tokens.low:,} to {tokens.high:,})"
    yield "one full request", plan.kv_needed, f"of {flags.max_model_len:,} tokens; {held}"


def _profiled(plan: Plan) -> str:
    profile = plan.encoder_profile
    if profile.modality is None:
        return "no tower runs"
    sizes = ", ".join(f"{modality} {tokens:,}" for modality, tokens in sorted(profile.max_tokens.items()))
    return f"{profile.items} {profile.modality} item(s), {profile.patches:,} patches; largest item in tokens: {sizes}"


def _phases_table(plan: Plan) -> Table:
    table = table_of("Start-up, phase by phase", "phase", "needs, GiB", "has, GiB", "left, GiB", "")
    for check in plan.checks:
        slack = check.slack
        state = "fails" if slack.high < 0 else "may fail" if slack.low < 0 else "holds"
        left = f"{slack.expected:+.2f} ({slack.low:+.2f} to {slack.high:+.2f})"
        table.add_row(check.phase, f"{check.needed.expected:.2f}", f"{check.available.expected:.2f}", left, state)
    return table


def _held_table(held: Sequence[Held]) -> Table:
    table = table_of("Images that the KV pool holds", "size", "tokens each", "at least", "expected", "in one request")
    for each in held:
        counts = (each.tokens, each.pool_low, each.pool_expected, each.per_request)
        table.add_row(str(each.size), *(f"{count:,}" for count in counts))
    return table


def _advice(plan: Plan) -> Iterator[str]:
    top, best = top_term(plan), best_for_top_term(reliefs(plan))
    line = f"Largest term beside the KV pool: {top}, {shares(plan)[top]:.2f} GiB."
    if best is not None:
        line += f" {best.flag} takes {best.top_term_gib:.2f} off it and costs {best.loss}."
    yield line


def table_of(title: str, *columns: str) -> Table:
    """Numbers to the right, words to the left."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    left = {"", "term", "what it is", "phase", "size", "flag", "what is lost", "component", "half", "observed", "model"}
    for column in columns:
        is_text = column in left | {"card", "verdict", "reason", "unit of error", "between"}
        table.add_column(column, justify="left" if is_text else "right")
    return table
