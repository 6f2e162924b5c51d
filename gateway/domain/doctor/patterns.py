"""vLLM's own log lines, from 0.6 to 0.32: which numbers stand where.

The texts are those of vLLM's sources (0.32) and of logs that were published with the issues named here. Only a line
that holds `needle` is searched.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from gateway.domain.doctor.measured import Stage, Term

_GIB = r" ?G[iI]?B"
_NUMBER = r"(-?\d[\d,]{0,18}(?:\.\d{1,12})?)"


class NumberLine(NamedTuple):
    """`terms` are what the groups of the pattern are, in their order; a group that took no part is not told."""

    needle: str
    pattern: re.Pattern[str]
    terms: tuple[Term, ...]


class StageLine(NamedTuple):
    """A line that shows what vLLM is at from now on."""

    needle: str
    stage: Stage


def _line(needle: str, pattern: str, *terms: Term) -> NumberLine:
    """In patterns `@` stands for a number."""
    return NumberLine(needle, re.compile(pattern.replace("@", _NUMBER)), terms)


NUMBER_LINES: tuple[NumberLine, ...] = (
    _line(
        "Model loading took", rf"Model loading took @{_GIB}(?: memory)? and @ s", Term.WEIGHTS_GIB, Term.LOAD_SECONDS
    ),
    _line("Loading model weights took", rf"Loading model weights took @{_GIB}", Term.WEIGHTS_GIB),
    # vllm#10511: one sentence after 0.6.4, a table of one line each for a while.
    _line(
        "the current vLLM instance can use",
        rf"total_gpu_memory \(@{_GIB}\) x gpu_memory_utilization \(@\) = @{_GIB}",
        *(Term.TOTAL_GIB, Term.UTILISATION, Term.BUDGET_GIB),
    ),
    _line(
        "model weights take",
        rf"model weights take @{_GIB}; non_torch_memory takes @{_GIB}; PyTorch activation peak memory takes @{_GIB}; "
        rf"the rest of the memory reserved for KV Cache is @{_GIB}",
        *(Term.WEIGHTS_GIB, Term.NON_TORCH_GIB, Term.ACTIVATION_GIB, Term.KV_GIB),
    ),
    _line("can use ", rf"^the current vLLM instance can use\s+@{_GIB}$", Term.BUDGET_GIB),
    _line("model weights take", rf"^model weights take\s+@{_GIB}$", Term.WEIGHTS_GIB),
    _line("non_torch_memory", rf"^non_torch_memory\s+@{_GIB}$", Term.NON_TORCH_GIB),
    _line("activation peak", rf"^PyTorch activation peak memory\s+@{_GIB}$", Term.ACTIVATION_GIB),
    _line("available_kv", rf"^available_kv_cache_memory\s+@{_GIB}$", Term.KV_GIB),
    _line("total_gpu_memory", rf"^total_gpu_memory\s+@{_GIB}$", Term.TOTAL_GIB),
    _line("gpu_memory_utilization", r"^gpu_memory_utilization\s+@$", Term.UTILISATION),
    # vllm#10517: name=value, with commas or without.
    _line("Memory profiling results", rf"total_gpu_memory=@{_GIB}", Term.TOTAL_GIB),
    _line("Memory profiling results", rf"peak_torch_memory=@{_GIB}", Term.TORCH_PEAK_GIB),
    _line("Memory profiling results", rf"non_torch_memory=@{_GIB}", Term.NON_TORCH_GIB),
    _line("Memory profiling results", rf"kv_cache_size=@{_GIB}", Term.KV_GIB),
    _line("Memory profiling results", r"gpu_memory_utilization=@", Term.UTILISATION),
    _line("Memory profiling takes", r"Memory profiling takes @ s", Term.PROFILE_SECONDS),
    # At level DEBUG (vllm#19312).
    _line("torch peak memory increase", rf"torch peak memory increase: @{_GIB}", Term.ACTIVATION_GIB),
    _line("non-torch forward increase", rf"non-torch forward increase memory: @{_GIB}", Term.NON_TORCH_GIB),
    _line("total consumed", rf"total consumed [^:]*: @{_GIB}", Term.WEIGHTS_AND_NON_TORCH_GIB),
    _line(
        "Encoder cache will be", r"a budget of @ tokens, and profiled with @ ", Term.ENCODER_BUDGET, Term.ENCODER_ITEMS
    ),
    _line("Chunked prefill is enabled", r"max_num_batched_tokens=@", Term.BATCHED_TOKENS),
    _line("Using max model len", r"Using max model len @", Term.CONTEXT),
    _line("Available KV cache memory", rf"Available KV cache memory: @{_GIB}", Term.KV_GIB),
    _line("for KV cache on node", rf"Explicitly set \(@/@\){_GIB} for KV cache", Term.KV_GIB, Term.TOTAL_GIB),
    _line("for KV cache on node", rf"Auto set \(@/@\){_GIB} for KV cache", Term.KV_GIB, Term.TOTAL_GIB),
    _line("KV cache size", r"KV cache size: @ tokens", Term.KV_TOKENS),
    _line(
        "Maximum concurrency",
        r"Maximum concurrency for @ tokens per request: @x",
        *(Term.CONCURRENCY_CONTEXT, Term.CONCURRENCY),
    ),
    _line(" blocks: ", r"# \w+ blocks: @, # CPU blocks", Term.KV_BLOCKS),
    _line("num_gpu_blocks is", r"num_gpu_blocks is: @", Term.KV_BLOCKS),
    _line("Graph capturing finished", rf"Graph capturing finished in \d+ secs, took @{_GIB}", Term.GRAPHS_GIB),
    _line("Estimated CUDA graph", rf"Estimated CUDA graph memory: @{_GIB}", Term.GRAPHS_ESTIMATE_GIB),
    _line(
        "CUDA graph pool memory",
        rf"CUDA graph pool memory: @{_GIB} \(actual\), @{_GIB} \(estimated\)",
        *(Term.GRAPHS_GIB, Term.GRAPHS_ESTIMATE_GIB),
    ),
    # Since 0.11; since about 0.24 weights and non-torch are one number.
    _line("Free memory on device", rf"Free memory on device[^(]{{0,40}}\(@/@{_GIB}\)", Term.FREE_GIB, Term.TOTAL_GIB),
    _line("Desired GPU", rf"Desired GPU memory utilization is \(@, @{_GIB}\)", Term.UTILISATION, Term.BUDGET_GIB),
    _line("desired GPU", rf"than desired GPU memory utilization \(@, @{_GIB}\)", Term.UTILISATION, Term.BUDGET_GIB),
    _line("Actual usage is", rf"Actual usage is @{_GIB} for weight,", Term.WEIGHTS_GIB),
    _line("Actual usage is", rf"Actual usage is @{_GIB} for consumed", Term.WEIGHTS_AND_NON_TORCH_GIB),
    _line("Actual usage is", rf"@{_GIB} for peak activation", Term.ACTIVATION_GIB),
    _line("Actual usage is", rf"@{_GIB} for non-torch", Term.NON_TORCH_GIB),
    _line("Actual usage is", rf"@{_GIB} for CUDAGraph", Term.GRAPHS_GIB),
    _line("init engine", r"init engine .* took @ s", Term.START_SECONDS),
)

STAGE_LINES: tuple[StageLine, ...] = (
    StageLine("vLLM API server version", Stage.ARGUMENTS),
    StageLine("vLLM server version", Stage.ARGUMENTS),
    StageLine("█  version", Stage.ARGUMENTS),
    StageLine("non-default args", Stage.ARGUMENTS),
    StageLine("serve: error: ", Stage.ARGUMENTS),
    StageLine("error: unrecognized arguments", Stage.ARGUMENTS),
    StageLine("Resolved architecture", Stage.ARGUMENTS),
    StageLine(" LLM engine (v", Stage.DEVICE),
    StageLine("Starting to load model", Stage.LOADING),
    StageLine("Loading safetensors checkpoint shards", Stage.LOADING),
    StageLine("Model loading took", Stage.PROFILING),
    StageLine("Loading model weights took", Stage.PROFILING),
    StageLine("Encoder cache will be initialized", Stage.PROFILING),
    StageLine("the current vLLM instance can use", Stage.KV_SIZING),
    StageLine("Memory profiling results", Stage.KV_SIZING),
    StageLine("Available KV cache memory", Stage.KV_SIZING),
    StageLine("for KV cache on node", Stage.KV_SIZING),
    StageLine("KV cache size: ", Stage.CAPTURING),
    StageLine("Capturing cudagraphs for decoding", Stage.CAPTURING),
    StageLine("Capturing CUDA graph", Stage.CAPTURING),
    StageLine("Graph capturing finished", Stage.WARMING_UP),
    StageLine("init engine (profile", Stage.STARTING_HTTP),
    StageLine("Application startup complete", Stage.SERVING),
    StageLine("Uvicorn running on", Stage.SERVING),
    StageLine("Avg prompt throughput", Stage.SERVING),
    StageLine("Adding requests:", Stage.SERVING),
)

FRAMES: tuple[str, ...] = (
    "load_model", "load_weights", "profile_run", "determine_available_memory", "determine_num_available_blocks",
    "initialize_cache", "initialize_kv_cache", "capture_model", "_dummy_sampler_run", "execute_model",
    "embed_multimodal", "get_multimodal_embeddings", "_process_image_input", "_execute_mm_encoder",
    "profile_cudagraph_memory",
)  # fmt: skip
"""Functions of vLLM's that tell by their place in a traceback what it was at."""

ENCODER_FRAMES = frozenset(
    {"embed_multimodal", "get_multimodal_embeddings", "_process_image_input", "_execute_mm_encoder"}
)

FRAME = re.compile(r'File "[^"]{1,400}", line \d+, in (\w{1,80})')


def numbers_of(message: str, lines: Iterable[NumberLine] = NUMBER_LINES) -> Iterable[tuple[Term, float]]:
    """Every number that the message states."""
    for line in lines:
        if line.needle in message and (match := line.pattern.search(message)) is not None:
            for term, text in zip(line.terms, match.groups(), strict=True):
                yield term, float(text.replace(",", ""))
