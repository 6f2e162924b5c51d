"""Numbers of one log that cannot all be true, and some that are odd. Each is told with the sum that does not come out.

Invented logs are found so, and logs put together from several starts. Tolerances are those of the printed digits.
"""

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import NamedTuple

from gateway.domain.doctor.measured import Start, Term

_ROUNDING_GIB = 0.06
_CARD_GIB = 0.2
_USUAL_BLOCKS = (1, 8, 16, 32, 64, 128, 256, 400, 528, 544, 784, 1056)
_USUAL_BLOCK, _LARGEST_BLOCK = 128, 1056
_NO_SLIDING_WINDOW = ("qwen2", "qwen3forcausal", "qwen3vl", "llamafor", "internvl", "llava")


class Certainty(StrEnum):
    IMPOSSIBLE = "cannot be true"
    ODD = "odd"


class Contradiction(NamedTuple):
    certainty: Certainty
    text: str


def contradictions_of(start: Start) -> list[Contradiction]:
    return [each for check in _CHECKS for each in check(start)]


def _impossible(text: str) -> Contradiction:
    return Contradiction(Certainty.IMPOSSIBLE, text)


def _budget(start: Start) -> Iterator[Contradiction]:
    """The utilisation is printed with two places (V0) or as it was given."""
    total, share, budget = (start.get(term) for term in (Term.TOTAL_GIB, Term.UTILISATION, Term.BUDGET_GIB))
    if total is None or share is None or budget is None:
        return
    if abs(total * share - budget) > total * 0.0051 + _ROUNDING_GIB:
        yield _impossible(
            f"{share:g} of {total:.2f} GiB is {total * share:.2f} GiB, and the budget is said to be {budget:.2f} GiB."
        )


def _sum_v0(start: Start) -> Iterator[Contradiction]:
    terms = (Term.WEIGHTS_GIB, Term.NON_TORCH_GIB, Term.ACTIVATION_GIB, Term.KV_GIB)
    values = [start.get(term) for term in terms]
    budget = start.get(Term.BUDGET_GIB)
    if start.engine != "V0" or budget is None or _differ(start, *terms):
        return
    known = [value for value in values if value is not None]
    if len(known) == len(terms) and abs(sum(known) - budget) > _ROUNDING_GIB:
        parts = " + ".join(f"{value:.2f}" for value in known)
        yield _impossible(
            f"Weights, non-torch, activations and KV cache are {parts} = {sum(known):.2f} GiB; the budget that "
            f"they share is "
            f"{budget:.2f} GiB."
        )


def _sum_peak(start: Start) -> Iterator[Contradiction]:
    """0.6.4: what the utilisation gives, less torch's peak (weights in it) and the rest, is the pool."""
    total, share, peak, rest, pool = (
        start.get(term)
        for term in (Term.TOTAL_GIB, Term.UTILISATION, Term.TORCH_PEAK_GIB, Term.NON_TORCH_GIB, Term.KV_GIB)
    )
    if total is None or share is None or peak is None or rest is None or pool is None:
        return
    left = total * share - peak - rest
    if abs(left - pool) > total * 0.0051 + _ROUNDING_GIB and not _differ(start, Term.TORCH_PEAK_GIB, Term.KV_GIB):
        yield _impossible(
            f"{share:g} of {total:.2f} GiB less {peak:.2f} (torch's peak) and {rest:.2f} GiB is {left:.2f} GiB; "
            f"the KV cache "
            f"is said to be {pool:.2f} GiB."
        )


def _sum_v1(start: Start) -> Iterator[Contradiction]:
    budget, activation, pool = (start.get(term) for term in (Term.BUDGET_GIB, Term.ACTIVATION_GIB, Term.KV_GIB))
    held = start.get(Term.WEIGHTS_AND_NON_TORCH_GIB)
    if held is None and start.get(Term.NON_TORCH_GIB) is not None:
        held = (start.get(Term.WEIGHTS_GIB) or 0.0) + (start.get(Term.NON_TORCH_GIB) or 0.0)
    if start.engine == "V0" or budget is None or activation is None or pool is None or held is None:
        return
    if start.setting("kv_cache_memory_bytes") or _differ(start, Term.KV_GIB, Term.ACTIVATION_GIB):
        return
    left = budget - held - activation
    # From 0.21 an estimate of the CUDA graphs is taken off too; later versions count it into the peak.
    graphs = max(start.get(Term.GRAPHS_ESTIMATE_GIB) or 0.0, start.get(Term.GRAPHS_GIB) or 0.0)
    if pool > left + _ROUNDING_GIB or pool < left - graphs - _ROUNDING_GIB:
        yield _impossible(
            f"Of a budget of {budget:.2f} GiB, {held:.2f} GiB (weights, non-torch) and {activation:.2f} GiB "
            f"(peak) leave "
            f"{left:.2f} GiB; the KV cache is said to be {pool:.2f} GiB."
        )


def _card(start: Start) -> Iterator[Contradiction]:
    total, weights, pool = (start.get(term) for term in (Term.TOTAL_GIB, Term.WEIGHTS_GIB, Term.KV_GIB))
    if total is None or weights is None:
        return
    offloaded = start.setting("cpu_offload_gb")
    taken = weights + max(pool or 0.0, 0.0)
    if not offloaded and taken > total + _CARD_GIB:
        yield _impossible(f"Weights and KV cache are {taken:.2f} GiB, the card has {total:.2f} GiB.")
    free = start.get(Term.FREE_GIB)
    if free is not None and free > total + _CARD_GIB:
        yield _impossible(f"{free:.2f} GiB were free of {total:.2f} GiB.")


def _concurrency(start: Start) -> Iterator[Contradiction]:
    """Concurrency is tokens by context, unless layers of several kinds share the pool."""
    told, context, tokens = (start.get(term) for term in (Term.CONCURRENCY, Term.CONCURRENCY_CONTEXT, Term.KV_TOKENS))
    blocks = start.get(Term.KV_BLOCKS)
    if tokens is None and blocks is not None and start.engine == "V0":
        tokens = blocks * _block_tokens(start)
    if told is None or not context or tokens is None:
        return
    expected = tokens / context
    mixed = "padded" in start.marks or not _is_full_attention(start)
    # A request takes whole blocks; concurrency is printed with two places.
    lowest = tokens / (context + (_LARGEST_BLOCK if mixed else _USUAL_BLOCK)) - 0.011
    if lowest <= told <= expected * 1.001 + 0.011:
        return
    text = f"{tokens:,.0f} tokens hold {expected:.2f} requests of {context:,.0f} tokens, and {told:.2f} is printed."
    if mixed:
        yield Contradiction(
            Certainty.ODD, f"{text} It can be so only where sliding-window or linear layers share the pool."
        )
    else:
        yield _impossible(text)


def _blocks(start: Start) -> Iterator[Contradiction]:
    tokens, blocks = start.get(Term.KV_TOKENS), start.get(Term.KV_BLOCKS)
    if tokens is None or not blocks or _differ(start, Term.KV_TOKENS, Term.KV_BLOCKS):
        return
    each = tokens / blocks
    block = start.get(Term.BLOCK_TOKENS) or start.setting("block_size")
    usual = (float(block),) if isinstance(block, int | float) and block else _USUAL_BLOCKS
    # vLLM keeps one block back, and counts it or not.
    if any(abs(tokens - size * blocks) <= size * 2 for size in usual):
        return
    text = f"{blocks:,.0f} blocks hold {tokens:,.0f} tokens: {each:.2f} a block"
    text += f", and a block has {block:.0f}." if len(usual) == 1 else ", which is no size of a block."
    certain = _is_full_attention(start) and "padded" not in start.marks
    yield _impossible(text) if certain else Contradiction(Certainty.ODD, f"{text} Layers of several kinds explain it.")


def _nothing_left(start: Start) -> Iterator[Contradiction]:
    pool, tokens = start.get(Term.KV_GIB), start.get(Term.KV_TOKENS)
    if pool is not None and pool <= 0 and tokens:
        yield _impossible(f"The KV cache has {pool:.2f} GiB and holds {tokens:,.0f} tokens.")


def _ranks(start: Start) -> Iterator[Contradiction]:
    reading = start.readings.get(Term.WEIGHTS_GIB)
    if (
        reading is not None
        and reading.other > 0
        and reading.value > 1.5 * reading.other
        and reading.value - reading.other > 1
    ):
        yield Contradiction(
            Certainty.ODD,
            f"Weights were loaded as {reading.value:.2f} and as {reading.other:.2f} GiB: ranks that differ so "
            f"much, or lines of "
            "several servers in one log.",
        )


def _differ(start: Start, *terms: Term) -> bool:
    """Ranks that printed different numbers: their terms cannot be put together."""
    readings = [start.readings[term] for term in terms if term in start.readings]
    return any(abs(each.value - each.other) > _ROUNDING_GIB for each in readings)


def _block_tokens(start: Start) -> float:
    block = start.setting("block_size")
    return float(block) if isinstance(block, int) and block > 0 else 16.0


def _is_full_attention(start: Start) -> bool:
    name = (
        (start.architecture or (start.model or "").rpartition("/")[2])
        .lower()
        .replace("_", "")
        .replace("-", "")
        .replace(".", "")
    )
    name = name.replace("qwen25", "qwen2")
    return name.startswith(("llama3", "metallama3", *_NO_SLIDING_WINDOW))


_CHECKS: tuple[Callable[[Start], Iterator[Contradiction]], ...] = (
    _budget, _sum_v0, _sum_peak, _sum_v1, _card, _nothing_left, _concurrency, _blocks, _ranks,
)  # fmt: skip
