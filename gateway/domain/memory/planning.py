"""From a model, a card and flags to a plan: each term, the KV pool that is left, and the verdict.

KV pool = utilisation x total - weights - non-torch - profile peak - (from 0.21 on) CUDA graphs. The profile peak is the
larger of two that come one after the other: the vision tower, and the language model with its sampler while the
encoder's output is kept.
"""

from collections.abc import Iterator
from dataclasses import replace

from gateway.domain.memory.activation import language_model_peak, sampler_peak
from gateway.domain.memory.calibration import Calibration
from gateway.domain.memory.checks import Start, phase_checks, verdict_of
from gateway.domain.memory.defaults import AUTO_LENGTH, NotPlannableError, settled
from gateway.domain.memory.encoder import IMAGE, VIDEO, embedding_bytes, encoder_profile, family_of, tower_peak
from gateway.domain.memory.flag_checks import refuse_contradictions
from gateway.domain.memory.gpus import fp8_doubt
from gateway.domain.memory.kv import kv_layout
from gateway.domain.memory.plan import (
    GIB,
    NEWEST,
    EncoderProfile,
    Flags,
    Gpu,
    KvLayout,
    ModelSpec,
    Plan,
    Span,
    Terms,
    TokenSpan,
    Version,
)
from gateway.domain.memory.weights import loaded_weights, scheme_of
from gateway.domain.vision.qwen_vl import QwenVL

OLDEST = Version(0, 8)
"""The first with V1 as its engine; before, V1 was a preview that profiled in other ways."""

OUT_OF_SCOPE = (
    "Not planned: engine V0, state pages of linear attention, pipeline parallel, drafts of speculative decoding."
)


def make_plan(model: ModelSpec, gpu: Gpu, flags: Flags, version: Version = NEWEST) -> Plan:
    """Raises NotPlannableError, or ProcessorConfigError for options that the model's image processor would refuse."""
    _refuse_what_is_out_of_scope(model, flags, version)
    complete = settled(flags, model, gpu, version)
    refuse_contradictions(model, flags, complete)
    calibration = Calibration(version)
    profile = encoder_profile(model, complete, version)
    terms = _terms(model, gpu, complete, calibration, profile)
    encoder = Span.exact(0.0) if complete.skip_mm_profiling else terms.encoder
    llm = Span.largest(terms.language_model, terms.sampler)
    peak = Span.largest(encoder, Span.total(llm, Span.exact(terms.encoder_cache)))
    budget = gpu.total_gib * (complete.gpu_memory_utilization or 0)
    pool = _pool(budget, terms, peak, complete, in_budget=calibration.graphs_in_budget)
    layout = kv_layout(model.text, complete, version)
    if flags.max_model_len == AUTO_LENGTH:
        complete = _fitted_length(complete, layout, pool)
    length = complete.max_model_len or 0
    blocks = TokenSpan(*(layout.blocks_in(limit) for limit in pool))
    needed = layout.blocks_of(length) * layout.bytes_per_block / GIB
    start = Start(
        gpu=gpu,
        flags=complete,
        version=version,
        vocab=model.text.vocab,
        terms=terms,
        budget=budget,
        peak=peak,
        graphs_in_budget=calibration.graphs_in_budget,
        kv_pool=pool,
        kv_block=layout.bytes_per_block / GIB,
        kv_needed=needed,
        is_pooling=is_pooling(model, complete),
        serves_unprofiled=complete.skip_mm_profiling and profile.modality is not None,
    )
    checks = tuple(phase_checks(start))
    return Plan(
        model=model,
        gpu=gpu,
        flags=complete,
        version=version,
        budget=budget,
        terms=terms,
        encoder_profile=profile,
        peak=peak,
        graphs_in_budget=calibration.graphs_in_budget,
        kv_layout=layout,
        kv_pool=pool,
        kv_blocks=blocks,
        kv_tokens=TokenSpan(*(layout.tokens_in(count, length) for count in blocks)),
        kv_needed=needed,
        checks=checks,
        verdict=verdict_of(start, checks),
        notes=tuple(_notes(model, gpu, complete, version, profile)),
    )


def is_pooling(model: ModelSpec, flags: Flags) -> bool:
    return flags.runner == "pooling" or (flags.runner == "auto" and model.is_pooling)


def _refuse_what_is_out_of_scope(model: ModelSpec, flags: Flags, version: Version) -> None:
    if model.unsupported is not None:
        raise NotPlannableError(f"{model.name} cannot be planned: {model.unsupported}")
    if flags.pipeline_parallel_size > 1:
        raise NotPlannableError("pipeline parallel is not planned: give one stage, or plan each with its own layers")
    if flags.speculative_config is not None:
        raise NotPlannableError("drafts of speculative decoding are not planned: leave out --speculative-config")
    if version < OLDEST:
        raise NotPlannableError(f"vLLM {version} is not planned: V1 is its engine from {OLDEST} on")
    heads = model.text.heads
    if heads % flags.tensor_parallel_size:
        raise NotPlannableError(
            f"--tensor-parallel-size {flags.tensor_parallel_size} does not divide the {heads} heads of {model.name}"
        )


def _terms(model: ModelSpec, gpu: Gpu, flags: Flags, calibration: Calibration, profile: EncoderProfile) -> Terms:
    loaded = loaded_weights(model, flags)
    ranks = flags.tensor_parallel_size
    return Terms(
        loaded_margin=loaded.margin,
        weights=max(0.0, loaded.weights - flags.cpu_offload_gb),
        rotary=loaded.rotary,
        buffers=loaded.buffers,
        rounding=loaded.rounding,
        non_torch=calibration.non_torch(gpu.total_gib, ranks),
        encoder=tower_peak(model, flags, profile, calibration, has_kernel=gpu.has_tower_kernel),
        encoder_cache=profile.budget_tokens * embedding_bytes(model, flags) / GIB,
        language_model=language_model_peak(model.text, flags),
        sampler=Span.exact(0.0) if is_pooling(model, flags) else sampler_peak(model.text, flags, calibration),
        graphs=_graphs(model, flags, calibration),
    )


def _graphs(model: ModelSpec, flags: Flags, calibration: Calibration) -> Span:
    if flags.enforce_eager:
        return Span.exact(0.0)
    return calibration.graphs(model.text.layers, flags.tensor_parallel_size, flags.max_num_seqs or 0)


def _pool(budget: float, terms: Terms, peak: Span, flags: Flags, *, in_budget: bool) -> Span:
    if flags.kv_cache_memory_bytes is not None:
        return Span.exact(flags.kv_cache_memory_bytes / GIB)
    taken = [Span.around(terms.loaded, terms.loaded_margin), terms.non_torch, peak]
    if in_budget:
        taken.append(terms.graphs)
    return Span.total(Span.exact(budget), *(-part for part in taken))


def _fitted_length(flags: Flags, layout: KvLayout, pool: Span) -> Flags:
    """The longest context, in whole blocks, of which the pool holds one request."""
    blocks = layout.blocks_in(pool.expected)
    block = layout.block_tokens
    low, high = 1, max(1, (flags.max_model_len or block) // block)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if layout.blocks_of(middle * block) <= blocks else (low, middle - 1)
    return replace(flags, max_model_len=low * block)


def _notes(model: ModelSpec, gpu: Gpu, flags: Flags, version: Version, profile: EncoderProfile) -> list[str]:
    notes = []
    scheme = scheme_of(model, flags)
    if scheme and model.file_bytes is None:
        notes.append(f"The weights are estimated from the scheme {scheme}; a folder with the files tells their size.")
    if not model.text.rope and model.text.max_positions is None:
        notes.append("The size of the rotary table is not known and not counted.")
    if version >= Version(0, 24):
        notes.append("Measured on vLLM 0.8 to 0.23: of later versions the sources were read, but no start was seen.")
    if version[:2] > NEWEST[:2]:
        notes.append(f"The sources of vLLM {version} were not read: it is planned as {NEWEST}.")
    notes.extend(_card_notes(gpu, flags, scheme))
    if not gpu.has_tower_kernel and model.vision is not None and profile.modality is not None:
        notes.append(f"vLLM has no attention kernel for vision towers on {gpu.name}: the matrix of scores is counted.")
    if flags.skip_mm_profiling and profile.modality is not None:
        notes.append("The vision tower is not profiled, so nothing is kept free for it while images are served.")
    notes.extend(_size_notes(model, flags))
    image, video = (profile.max_tokens.get(modality) for modality in (IMAGE, VIDEO))
    if image is not None and video is not None and video <= image:
        notes.append(f"Videos cost nothing here: the largest has {video:,} tokens, the largest image {image:,}.")
    if model.vision is not None and not profile.max_tokens:
        notes.append("No image and no video is allowed: the tower is loaded and never runs.")
    return notes


def _size_notes(model: ModelSpec, flags: Flags) -> Iterator[str]:
    for modality in flags.sized_modalities:
        if modality == IMAGE and flags.profiled_image is not None and isinstance(family_of(model, flags), QwenVL):
            yield (
                "--limit-mm-per-prompt: images are profiled no larger than that, and vLLM still takes larger ones, for "
                "which nothing is kept free; max_pixels limits those."
            )
        else:
            yield (
                f"--limit-mm-per-prompt: the size of {modality}s is not planned with; vLLM profiles no larger ones, so "
                "its peak may be below this one. The line below may have the count alone."
            )


def _card_notes(gpu: Gpu, flags: Flags, scheme: str | None) -> Iterator[str]:
    if gpu.assumed is not None:
        told = f"{gpu.name} is taken as {gpu.assumed} with {gpu.total_gib:g} GiB"
        yield f"{told}: name another size, or say it with --gpu-memory."
    if flags.kv_cache_dtype.startswith("fp8") and (doubt := fp8_doubt(gpu.name, is_kv=True)):
        yield doubt
    if scheme == "fp8" and (doubt := fp8_doubt(gpu.name, is_kv=False)):
        yield doubt
