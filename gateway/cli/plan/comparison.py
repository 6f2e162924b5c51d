"""Models and cards side by side, and one model on more or fewer cards."""

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from gateway.cli.plan.tables import STYLES, table_of
from gateway.domain.memory.fit import Fitted
from gateway.domain.memory.plan import Plan
from gateway.domain.memory.planning import OUT_OF_SCOPE


def print_comparison(console: Console, plans: Sequence[Plan], refusals: Sequence[str]) -> None:
    """Models and cards side by side, a row each."""
    columns = ("model", "card", "loaded", "encoder", "enc. cache", "sampler", "peak", "KV pool", "KV tokens", "B/token")
    table = table_of("Side by side, GiB on each card", *columns, "x length", "verdict")
    for plan in plans:
        terms, tokens = plan.terms, plan.kv_tokens
        cards = f"{plan.flags.tensor_parallel_size} x {plan.gpu.name}"
        amounts = (terms.loaded, terms.encoder.expected, terms.encoder_cache, terms.sampler.expected)
        table.add_row(
            plan.model.name.rpartition("/")[2],
            cards,
            *(f"{amount:.2f}" for amount in (*amounts, plan.peak.expected, plan.kv_pool.expected)),
            f"{tokens.expected:,}",
            f"{plan.kv_layout.bytes_per_token:,}",
            f"{plan.concurrency:.1f}",
            Text(str(plan.verdict), STYLES[plan.verdict.outcome]),
        )
    console.print(table)
    for line in _same_tower(plans):
        console.print(line, markup=False, soft_wrap=True)
    for refusal in refusals:
        console.print(f"- {refusal}", markup=False, soft_wrap=True)
    console.print(f"- {OUT_OF_SCOPE}", markup=False, soft_wrap=True)


def _same_tower(plans: Sequence[Plan]) -> Iterator[str]:
    """What a smaller model does not cost more of."""
    towers = {(plan.model.vision.kind, plan.encoder_profile.patches) for plan in plans if plan.model.vision}
    if len(plans) > 1 and len(towers) == 1:
        caches = sorted((plan.terms.encoder_cache * 1024, plan.model.name.rpartition("/")[2]) for plan in plans)
        yield (
            "All have the same vision tower and profile the same patches: none needs a larger encoder than another. "
            f"The encoder's output is as wide as the language model: {caches[0][0]:.0f} MiB for {caches[0][1]}, "
            f"{caches[-1][0]:.0f} MiB for {caches[-1][1]}."
        )


def other_cards(found: Fitted) -> Iterator[str]:
    """What each other number of cards would lose."""
    for each in found.others:
        needed = f"met too, needed: {', '.join(each.changed) or 'nothing changed'}" if each.is_met else "not met"
        yield f"With --tensor-parallel-size {each.cards}: {needed}."
    if any(each.is_met and each.cards < found.cards for each in found.others):
        yield "Fewer cards for each server leave the others for replicas of it, each of which meets the goal by itself."
