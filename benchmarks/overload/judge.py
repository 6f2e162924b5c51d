"""Records of visits to figures. Pure.

Goodput is counted twice: in requests a second, and in work (engine time, see upstream.py) as a share of what a closed
loop gets out of the bare server, so that nobody wins by serving small requests only. Both count requests that end
inside the service level, and of those what reached the client between a tenth of the cell and its end: the prompt with
the first token, the output as it flows.
"""

import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from benchmarks.overload.intervals import bootstrap, jain, quantile, wilson
from benchmarks.overload.upstream import ServerSize
from benchmarks.overload.visit import Ending, Record, Slo, Visit
from benchmarks.scenarios import Figures, ratio

WARM_SHARE = 0.1
BLOCK_SECONDS = 2.0
BUSY_CORES = 0.85  # beyond that, processes wait for the CPU and not for the engine
LATE_SECONDS = 0.1

COMPARED = (("greedy", "polite alone", "polite"), ("flood", "readers alone", "reader"))

Block = Sequence[Visit]


@dataclass(frozen=True, slots=True)
class Bar:
    """What a cell is judged by. `capacity` is work per second of a closed loop at the bare server."""

    slo: Slo
    patience_seconds: float
    size: ServerSize
    capacity: float


def window(record: Record) -> tuple[float, float]:
    """The part of a cell in which goodput counts."""
    return WARM_SHARE * record.seconds, record.seconds


def flowing(record: Record, bar: Bar) -> list[float]:
    """Work that reached clients inside the level, by equal times of about two seconds of the window."""
    began, ended = window(record)
    flow = [0.0] * max(1, round((ended - began) / BLOCK_SECONDS))
    block_seconds = (ended - began) / len(flow)
    for visit in record.visits:
        if visit.is_in_slo(bar.slo):
            for at, work in _deliveries(visit, bar.size):
                if began <= at < ended:
                    flow[min(len(flow) - 1, int((at - began) / block_seconds))] += work
    return flow


def _deliveries(visit: Visit, size: ServerSize) -> Iterator[tuple[float, float]]:
    """When work reached the client: the prompt's with the first token, the output's with each."""
    request = visit.request
    whole, prompt = request.work_seconds(size), size.work_seconds(len(request.text), request.images, 0)
    yield visit.token_times[0], prompt
    for at in visit.token_times:
        yield at, (whole - prompt) / len(visit.token_times)


def work_per_second(records: Sequence[Record], bar: Bar) -> float:
    """Goodput in work of all rounds together."""
    return sum(sum(flowing(record, bar)) for record in records) / _counted_seconds(records)


def _counted_seconds(records: Sequence[Record]) -> float:
    return sum(ended - began for began, ended in map(window, records))


def blocks(record: Record) -> list[list[Visit]]:
    """The visits of a record by the two seconds in which they began; empty times count too."""
    parts: list[list[Visit]] = [[] for _ in range(max(1, int(record.seconds // BLOCK_SECONDS)))]
    for visit in record.visits:
        parts[min(len(parts) - 1, int(visit.began_at // BLOCK_SECONDS))].append(visit)
    return parts


def figures(records: Sequence[Record], bar: Bar, seed: int) -> Figures:
    """The figures of one cell of one arm over all its rounds."""
    visits = [visit for record in records for visit in record.visits]
    kept = [visit for visit in visits if visit.is_in_slo(bar.slo)]
    return {
        "sent": len(visits),
        "attempts": sum(visit.attempts for visit in visits),
        "answers": sum(visit.ending is Ending.DONE for visit in visits),
        "in_slo": len(kept),
        "in_slo_share": ratio(len(kept), len(visits)) or 0.0,
        "offered_share": sum(visit.request.work_seconds(bar.size) for visit in visits)
        / sum(record.seconds for record in records)
        / bar.capacity,
        **_goodput(records, bar, seed),
        **_waiting(records, bar, seed),
        **_refusals(visits),
        **_waste(records, visits, kept),
        **_promises(visits, bar.slo),
        "jain": jain(_shares(visits, bar.slo, lambda visit: visit.request.tenant)),
        "most_waiting": max(record.most_waiting for record in records),
        "errors": dict(Counter(visit.error for visit in visits if visit.ending is not Ending.DONE).most_common()),
        "tenants": _by(visits, bar.slo, lambda visit: visit.request.tenant),
        "kinds": _by(visits, bar.slo, lambda visit: visit.request.kind),
        **_machine(records),
    }


def _goodput(records: Sequence[Record], bar: Bar, seed: int) -> Figures:
    """With the interval of the share in work: a bootstrap over times of two seconds."""
    flow = [work for record in records for work in flowing(record, bar)]
    interval = bootstrap(flow, sum, seed)
    share = _counted_seconds(records) * bar.capacity
    return {
        "goodput_per_second": sum(_ended_inside(record, bar.slo) for record in records) / _counted_seconds(records),
        "goodput_share": sum(flow) / share,
        "goodput_share_interval": [value / share for value in interval] if interval else None,
    }


def _ended_inside(record: Record, slo: Slo) -> int:
    began, ended = window(record)
    return sum(visit.is_in_slo(slo) and began <= visit.ended_at < ended for visit in record.visits)


def _waiting(records: Sequence[Record], bar: Bar, seed: int) -> Figures:
    """Time to first token of admitted attempts; whoever left before it counts with all his patience."""

    def waits(part: Block) -> list[float]:
        return [wait for visit in part if (wait := _wait_of(visit, bar.patience_seconds)) is not None]

    per_block = [waits(block) for record in records for block in blocks(record)]
    everything = [wait for block in per_block for wait in block]
    p99 = quantile(everything, 0.99)
    interval = bootstrap(per_block, lambda drawn: quantile([wait for block in drawn for wait in block], 0.99), seed)
    return {
        "ttft_p50": quantile(everything, 0.5),
        "ttft_p99": p99,
        "ttft_p99_interval": interval,
        "ttft_p99_of_slo": ratio(p99, bar.slo.first_token_seconds),
    }


def _wait_of(visit: Visit, patience_seconds: float) -> float | None:
    if visit.first_token_at is not None:
        return visit.first_token_at - visit.attempt_began_at
    return patience_seconds if visit.ending is Ending.LEFT_WAITING else None


def _refusals(visits: Sequence[Visit]) -> Figures:
    refusals = [refusal for visit in visits for refusal in visit.refusals]
    after_ms = [1e3 * refusal.after_seconds for refusal in refusals]
    return {
        "refusals": len(refusals),
        "refusals_in_200": sum(refusal.is_in_stream for refusal in refusals),
        "refusal_p50_ms": quantile(after_ms, 0.5),
        "refusal_p99_ms": quantile(after_ms, 0.99),
        "refusal_kinds": dict(Counter(refusal.kind for refusal in refusals).most_common()),
    }


def _waste(records: Sequence[Record], visits: Sequence[Visit], kept: Sequence[Visit]) -> Figures:
    """`wasted` was generated for nobody inside the level; `thrown_away` was admitted and then not finished.

    A preemption is charged the mean whole answer, more than it can have lost. Clients that leave throw away nothing.
    """
    generated = sum(record.generated_tokens for record in records)
    preemptions = sum(record.preemptions for record in records)
    broken = sum(len(visit.token_times) for visit in visits if visit.ending is Ending.BROKEN)
    mean_answer = statistics.fmean(visit.request.output_tokens for visit in visits) if visits else 0.0
    wasted = max(0, generated - sum(visit.request.output_tokens for visit in kept))
    return {
        "generated_tokens": generated,
        "preemptions": preemptions,
        "wasted_share": wasted / generated if generated else 0.0,
        "thrown_away_share": (broken + preemptions * mean_answer) / generated if generated else 0.0,
    }


def _promises(visits: Sequence[Visit], slo: Slo) -> Figures:
    """Of the clients that were told when to come back, and did: how many ended inside the level of their first try."""
    promised = [visit for visit in visits if visit.came_back_as_promised]
    kept = sum(visit.is_in_slo(slo) for visit in promised)
    return {
        "promised": len(promised),
        "promises_kept": kept / len(promised) if promised else None,
        "promises_kept_interval": wilson(kept, len(promised)) if promised else None,
    }


def _shares(visits: Sequence[Visit], slo: Slo, key: Callable[[Visit], str]) -> list[float]:
    return [group["in_slo"] / group["sent"] for group in _by(visits, slo, key).values()]


def _by(visits: Sequence[Visit], slo: Slo, key: Callable[[Visit], str]) -> dict[str, Figures]:
    groups: dict[str, list[Visit]] = defaultdict(list)
    for visit in visits:
        groups[key(visit)].append(visit)
    return {
        name: {
            "sent": len(group),
            "in_slo": sum(visit.is_in_slo(slo) for visit in group),
            "ttft_p99": quantile([v.first_token_at - v.attempt_began_at for v in group if v.first_token_at], 0.99),
        }
        for name, group in sorted(groups.items())
    }


def _machine(records: Sequence[Record]) -> Figures:
    """`bound_by`: why the cell says nothing of admission, because the machine and not the engine was the limit."""
    arm, load = (max(getattr(record, name) for record in records) for name in ("arm_cpu", "load_cpu"))
    late = max(record.late_p99_seconds for record in records)
    bounds = {"proxy CPU": arm > BUSY_CORES, "load CPU": load > BUSY_CORES, "late clients": late > LATE_SECONDS}
    bound_by = [name for name, is_bound in bounds.items() if is_bound]
    return {"arm_cpu": arm, "load_cpu": load, "late_p99_ms": 1e3 * late, "bound_by": bound_by}


def compare(results: dict[str, dict[str, Figures]]) -> None:
    """Add what takes two cells: how many of those that are kept alone are kept beside the greedy and in the flood."""
    for crowded_cell, alone_cell, prefix in COMPARED:
        for arm, crowded in results.get(crowded_cell, {}).items():
            alone = results.get(alone_cell, {}).get(arm)
            if alone is not None:
                crowded.update(_kept_beside(alone["tenants"], crowded["tenants"], prefix))


def _kept_beside(alone: dict[str, Figures], crowded: dict[str, Figures], prefix: str) -> Figures:
    kept, of = (
        sum(figures["in_slo"] for name, figures in groups.items() if name.startswith(prefix))
        for groups in (crowded, alone)
    )
    ours = [figures["ttft_p99"] for name, figures in crowded.items() if name.startswith(prefix)]
    return {
        f"{prefix}_kept": kept / of if of else None,
        f"{prefix}_kept_interval": wilson(min(kept, of), of),
        f"{prefix}_ttft_p99": max((value for value in ours if value is not None), default=None),
    }
