"""Out of memory, in whichever phase of the start: why, and the next flag to try, calculated where the log gives enough.

Which way a flag pushes depends on the phase: a lower utilisation makes the KV pool smaller and leaves more outside of
the budget. So it helps graphs and the sampler's warm-up, does nothing for weights and the profile run, and makes a pool
that is too small smaller still.
"""

from math import ceil, floor, log2

from gateway.domain.doctor.advice import Advice, number, rounded_down, utilisation_flag, utilisation_of
from gateway.domain.doctor.measured import OutOfMemory, Sighting, Stage, Start, Term
from gateway.domain.doctor.patterns import ENCODER_FRAMES
from gateway.domain.doctor.versions import version_of

_MARGIN_GIB = 0.25
_HIGHEST_UTILISATION = 0.95
_NOTABLE_GIB = 0.5
_DEFAULT_ROWS = 256
_GRAPHS_OUTSIDE_UNTIL = (0, 20)
_VIDEO_OFF = "--limit-mm-per-prompt '{\"video\": 0}'"
_FEWER_PIXELS = "--mm-processor-kwargs '{\"max_pixels\": 1003520}'"
_GRAPH_FRAMES = frozenset({"capture_model", "profile_cudagraph_memory"})
_PROFILE_FRAMES = frozenset({"profile_run", "determine_available_memory", "determine_num_available_blocks"})


def free_memory(_start: Start, seen: Sighting) -> Advice:
    free, total = number(seen.words, "free"), number(seen.words, "total")
    wanted = number(seen.words, "wanted")
    if free is None or total is None or wanted is None or total <= 0:
        return Advice("Too little memory was free at the start", "vLLM checks before it loads anything.")
    cause = (
        f"{free:.2f} of {total:.2f} GiB were free, {wanted:.2f} GiB are asked for. {total - free:.2f} GiB are held by "
        "something else: another server, a process that did not end, a desktop."
    )
    share = rounded_down((free - _MARGIN_GIB) / total)
    flags = (utilisation_flag(share),) if share > 0 else ()
    cures = (
        "See who holds it with `nvidia-smi`, and end it if nobody needs it.",
        "Or ask for less; the pool for KV blocks becomes smaller by the difference.",
    )
    return Advice("Too little memory was free at the start", cause, cures, flags)


def cpu_memory(_start: Start, _seen: Sighting) -> Advice:
    return Advice(
        "Too little host memory for the CPU backend",
        "On a CPU `--gpu-memory-utilization` is a share of the host's memory.",
        ("Ask for less, or set the pool by hand.",),
        (utilisation_flag(0.5), "--kv-cache-memory-bytes 4294967296"),
    )


def load(start: Start, _seen: Sighting) -> Advice:
    cause = "The weights alone do not fit into what is free on the card; utilisation plays no part here."
    memory = start.out_of_memory
    if memory is not None and memory.total_gib is not None:
        cause += f" {_asked(memory)}"
    cures = (
        "Spread them over more cards, or serve a quantised checkpoint.",
        "`--gpu-memory-utilization` does not help, in either direction.",
    )
    tp = start.setting("tensor_parallel_size")
    twice = 2 * tp if isinstance(tp, int) and tp > 0 else 2
    return Advice(
        "Out of memory while the weights were loaded",
        cause + _others(memory),
        cures,
        (f"--tensor-parallel-size {twice}",),
    )


def no_cache_blocks(start: Start, _seen: Sighting) -> Advice:
    pool, budget = start.get(Term.KV_GIB), start.get(Term.BUDGET_GIB)
    cause = "Weights and the peak of the profile run take the whole budget, so nothing is left for KV blocks."
    if pool is not None:
        cause += f" The pool would have {pool:.2f} GiB."
    if budget is not None:
        cause += f" The budget is {budget:.2f} GiB."
    cures, flags = _smaller_profile(start)
    raised = _raised(start, (0.0 if pool is None else -pool) + 2 * _MARGIN_GIB)
    if raised is not None:
        cures, flags = (*cures, "Or give vLLM more of the card."), (*flags, raised)
    elif pool is not None and pool < 0:
        more = f"{-pool:.2f} GiB are missing, and the pool itself."
        is_known = start.get(Term.TOTAL_GIB) is not None and utilisation_of(start) is not None
        cures = (
            *cures,
            f"{'A higher utilisation alone is not enough' if is_known else 'Or give vLLM more of the card'}: {more}",
        )
    return Advice("No memory is left for the KV cache", cause, cures, flags)


def context_larger_than_pool(start: Start, seen: Sighting) -> Advice:
    context, estimate = number(seen.words, "context"), number(seen.words, "estimate")
    needed, available = number(seen.words, "needed"), number(seen.words, "available")
    cause = "The KV cache must hold one request of the whole context, and it does not."
    cures: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    if context is not None:
        cause += f" The context is {context:,.0f} tokens."
    if needed is not None and available is not None:
        cause += f" It needs {needed:.2f} GiB, {available:.2f} GiB are there."
    if estimate:
        cures += (
            f"What is there holds {estimate:,.0f} tokens. Lower the context: clients' longest prompt and answer count.",
        )
        flags += (f"--max-model-len {_rounded_context(estimate)}",)
    if context and estimate and 2 * estimate >= context:
        cures += ("An 8-bit KV cache holds twice as many tokens, at some loss of quality.",)
        flags += ("--kv-cache-dtype fp8",)
    if needed is not None and available is not None and (raised := _raised(start, needed - available)) is not None:
        cures, flags = (*cures, "Or give vLLM more of the card."), (*flags, raised)
    if start.profiled_modality is not None:
        smaller, smaller_flags = _smaller_profile(start)
        cures, flags = cures + smaller[:1], flags + smaller_flags[:1]
    return Advice("The context is longer than the KV cache", cause, cures, flags)


def sampler_warmup(start: Start, seen: Sighting) -> Advice:
    rows = number(seen.words, "rows") or float(_DEFAULT_ROWS)
    in_profile = "profile_run" in start.frames and Term.KV_GIB not in start.readings
    cause = (
        f"With {rows:.0f} sequences the sampler sorts {rows:.0f} rows of the whole vocabulary, 8 to 39 bytes a "
        f"logit, in " + ("the profile run." if in_profile else "what the budget leaves free on the card.")
    )
    memory = start.out_of_memory
    if memory is not None:
        cause += f" {_asked(memory)}"
    fewer, given = _fewer_rows(rows, memory), start.setting("max_num_seqs")
    cures, flags = [], []
    if not (isinstance(given, int) and given <= fewer):
        cures.append(f"Let fewer sequences run at once: {fewer} instead of {rows:.0f}.")
        flags.append(f"--max-num-seqs {fewer}")
    if not in_profile and (outside := _graphs_outside(start)) is not None:
        cause += f" {outside}"
        cures.append("Capture fewer CUDA graphs, or none, which makes every token slower.")
        flags += ["--max-cudagraph-capture-size 128", "--enforce-eager"]
    if not in_profile and (lowered := _lowered(start, memory)) is not None:
        cures.append("Or leave more outside of the budget. The KV pool becomes smaller by that.")
        flags.append(lowered)
    return Advice("Out of memory while the sampler was warmed up", cause + _others(memory), tuple(cures), tuple(flags))


def out_of_memory(start: Start, seen: Sighting) -> Advice:
    """By what vLLM was at: frames of the traceback say it best."""
    frames, stage = start.frames, seen.stage
    if "_dummy_sampler_run" in frames:
        return sampler_warmup(start, seen)
    if frames & _GRAPH_FRAMES:
        return _graphs(start)
    if frames & _PROFILE_FRAMES or stage is Stage.PROFILING:
        return _profile(start)
    if "load_model" in frames or stage <= Stage.LOADING:
        return load(start, seen)
    if stage is Stage.SERVING:
        return _serving(start)
    return _graphs(start) if stage <= Stage.CAPTURING else sampler_warmup(start, seen)


def _profile(start: Start) -> Advice:
    is_encoder = bool(start.frames & ENCODER_FRAMES)
    what = "the vision tower" if is_encoder else "the model"
    cause = f"The profile run sends the largest batch through {what} before anything is given to the KV cache."
    modality, budget = start.profiled_modality, start.get(Term.ENCODER_BUDGET)
    if modality is not None and budget is not None:
        cause += f" It took {start.get(Term.ENCODER_ITEMS):.0f} {modality}(s), {budget:,.0f} tokens in all."
    memory = start.out_of_memory
    cause += f" {_asked(memory)}" if memory is not None else ""
    cures, flags = _smaller_profile(start)
    if is_encoder and start.platform == "rocm":
        cures = (*cures, "Without a flash kernel the attention of the tower alone is larger than any card.")
    cures = (*cures, "`--gpu-memory-utilization` does not help: the profile run may use all that is free.")
    return Advice("Out of memory in the profile run", cause + _others(memory), cures, flags)


def _graphs(start: Start) -> Advice:
    memory = start.out_of_memory
    cause = "CUDA graphs are captured after the KV cache has taken its part, in what is left outside of the budget."
    cause += f" {_asked(memory)}" if memory is not None else ""
    cures, flags = ["Leave more outside of the budget. The KV pool becomes smaller by that."], []
    flags.append(_lowered(start, memory) or utilisation_flag(0.85))
    cures.append("Or capture fewer sizes, or none, which makes every token slower.")
    flags += ["--max-cudagraph-capture-size 128", "--enforce-eager"]
    return Advice("Out of memory while CUDA graphs were captured", cause + _others(memory), tuple(cures), tuple(flags))


def _serving(start: Start) -> Advice:
    memory = start.out_of_memory
    cause = (
        "The KV cache is reserved and cannot grow, so something else asked: a batch of images that the profile "
        "run did not "
        "see, logits for prompts or log probabilities, or another process on the card."
    )
    cause += f" {_asked(memory)}" if memory is not None else ""
    cures = ["Leave more outside of the budget."]
    flags = [_lowered(start, memory) or utilisation_flag(0.85)]
    if start.flags.get("skip_mm_profiling"):
        cures.insert(0, "Take out --skip-mm-profiling: the vision tower's peak was not reserved.")
    if start.frames & ENCODER_FRAMES:
        cures.append("Bound the images: the gateway's resize.preset and images.max_pixels do it before vLLM sees them.")
        flags.append(_FEWER_PIXELS)
    return Advice("Out of memory while it served", cause + _others(memory), tuple(cures), tuple(flags))


def _smaller_profile(start: Start) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """In the order of least loss."""
    cures: list[str] = []
    flags: list[str] = []
    budget = start.get(Term.ENCODER_BUDGET)
    if start.profiled_modality == "video":
        cures.append("Forbid video, if clients send none: it was what the profile run took.")
        flags.append(_VIDEO_OFF)
    if budget is not None:
        cures.append("Make the largest image smaller: 1,003,520 pixels are 1,280 tokens of Qwen2.5-VL.")
        flags.append(_FEWER_PIXELS)
    sequences = start.setting("max_num_seqs")
    if not isinstance(sequences, int) or sequences > _DEFAULT_ROWS // 4:
        cures.append("Let fewer sequences run at once: the sampler's part of the peak grows with them.")
        flags.append("--max-num-seqs 64")
    return tuple(cures), tuple(flags)


def _graphs_outside(start: Start) -> str | None:
    """Until 0.20 CUDA graphs were not part of the budget: they took what it left."""
    version, graphs = version_of(start.version), start.get(Term.GRAPHS_GIB)
    total, share = start.get(Term.TOTAL_GIB), utilisation_of(start)
    if graphs is None or not total or share is None or version is None or version > _GRAPHS_OUTSIDE_UNTIL:
        return None
    outside = (1 - share) * total
    if graphs < outside / 2:
        return None
    return f"CUDA graphs took {graphs:.2f} of the {outside:.2f} GiB that this utilisation leaves outside of the budget."


def _fewer_rows(rows: float, memory: OutOfMemory | None) -> int:
    """The largest power of two for which the allocation that failed would have fitted, at most half of what it was."""
    most = rows / 2
    if memory is not None and memory.free_gib is not None and memory.tried_gib > 0:
        most = min(most, rows * memory.free_gib / memory.tried_gib)
    return 1 << floor(log2(most)) if most >= 1 else 1


def _lowered(start: Start, memory: OutOfMemory | None) -> str | None:
    """The utilisation that leaves what was missing, and a margin."""
    now, total = utilisation_of(start), start.get(Term.TOTAL_GIB)
    if memory is None or now is None:
        return None
    total = memory.total_gib or total
    if not total:
        return None
    missing = max(0.0, memory.tried_gib - (memory.free_gib or 0.0)) + 2 * _MARGIN_GIB
    share = rounded_down(now - missing / total)
    return utilisation_flag(share) if share > 0 else None


def _raised(start: Start, missing_gib: float) -> str | None:
    """The utilisation that gives so much more; None where that is not to be had, or not known."""
    now, total = utilisation_of(start), start.get(Term.TOTAL_GIB)
    budget = start.get(Term.BUDGET_GIB)
    if total is None and budget is not None and now:
        total = budget / now
    if now is None or not total:
        return None
    share = ceil((now + missing_gib / total) * 100 - 1e-6) / 100
    return utilisation_flag(share) if now < share <= _HIGHEST_UTILISATION else None


def _rounded_context(tokens: float) -> int:
    """Down to whole blocks of the usual size."""
    return max(16, int(tokens) // 16 * 16)


def _asked(memory: OutOfMemory) -> str:
    if memory.free_gib is None or memory.total_gib is None:
        return f"{memory.tried_gib:.2f} GiB were asked for."
    return f"{memory.tried_gib:.2f} GiB were asked for, {memory.free_gib:.2f} of {memory.total_gib:.2f} GiB were free."


def _others(memory: OutOfMemory | None) -> str:
    """What others hold, where torch says what this process has."""
    if memory is None or memory.total_gib is None or memory.free_gib is None or memory.in_use_gib is None:
        return ""
    others = memory.total_gib - memory.free_gib - memory.in_use_gib
    if others < _NOTABLE_GIB:
        return ""
    return f" Another process holds {others:.2f} GiB of the card: free it first (`nvidia-smi`)."
