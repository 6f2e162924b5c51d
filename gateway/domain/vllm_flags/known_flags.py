"""Flags that advice on the web names and vLLM has not, and flags that were there once. Data only.

Versions are given where the change is known; "absent" means that the parser of vLLM 0.32 does not take it.
"""

from collections.abc import Mapping
from typing import NamedTuple


class GoneFlag(NamedTuple):
    """`since`: the first version without it, None where that is not known. `instead`: what does its work today."""

    since: tuple[int, int] | None
    why: str
    instead: str | None = None


NEVER: Mapping[str, str] = {
    "enable-mm-token-trim": (
        "no version of vLLM prunes image tokens by attention. Make images smaller: --mm-processor-kwargs "
        "'{\"max_pixels\": N}'. For video alone there is --video-pruning-rate."
    ),
    "mm-token-trim-threshold": (
        "no version of vLLM prunes image tokens by attention. Make images smaller: --mm-processor-kwargs "
        "'{\"max_pixels\": N}'. For video alone there is --video-pruning-rate."
    ),
    "vision-encoder-device": (
        "the vision tower runs where the model runs. --mm-processor-device places the preprocessor, not the tower; "
        "--cpu-offload-gb offloads weights of any kind."
    ),
    "max-mm-tokens": "tokens of an image follow from its pixels: --mm-processor-kwargs '{\"max_pixels\": N}'.",
    "quantization-param-bits": "the bits are those of the checkpoint: serve a quantised one.",
    "mm-processor-cache-gbs": (
        "the flag is --mm-processor-cache-gb. It sizes a cache of preprocessed inputs in host memory; 0 frees no GPU "
        "memory."
    ),
    "max-num-blocks": (
        "the pool is what is left of the budget. --kv-cache-memory-bytes sets it by hand; --num-gpu-blocks-override is "
        "for tests."
    ),
    "max-waiting-queue-length": (
        "it was proposed (vllm#18826) and not merged. vLLM has --max-num-queued-reqs and --max-num-queued-tokens; the "
        "gateway's queue is bounded by queue.requests."
    ),
}

_MM_PROFILING = "it only shaped the trial run of early 2024 (removed by vllm#6089). It never limited what clients send"
_SPECULATIVE = "its settings are one JSON"
_MULTI_STEP = "multi-step scheduling left with engine V0"
_PROMPT_ADAPTER = "prompt adapters are no longer served"

GONE: Mapping[str, GoneFlag] = {
    "image-input-shape": GoneFlag(None, _MM_PROFILING, "--mm-processor-kwargs '{\"max_pixels\": N}'"),
    "image-token-id": GoneFlag(None, _MM_PROFILING),
    "image-feature-size": GoneFlag(None, _MM_PROFILING),
    "image-input-type": GoneFlag(None, _MM_PROFILING),
    "max-seq-len-to-capture": GoneFlag(
        (0, 11), "graphs are captured by tokens of a batch (vllm#25543)", "--max-cudagraph-capture-size"
    ),
    "max-context-len-to-capture": GoneFlag(
        None, "graphs are captured by tokens of a batch", "--max-cudagraph-capture-size"
    ),
    "cuda-graph-sizes": GoneFlag(None, "it was renamed", "--cudagraph-capture-sizes"),
    "swap-space": GoneFlag(
        (0, 18),
        "engine V1 never used it (vllm#36216): a request that loses its blocks is computed again",
        "--kv-offloading-size for a second tier of cached blocks",
    ),
    "quantization-param-path": GoneFlag(None, "scales of an fp8 KV cache come from the checkpoint"),
    "disable-mm-preprocessor-cache": GoneFlag(
        (0, 13), "it was renamed", "--mm-processor-cache-gb 0, which frees host memory"
    ),
    "task": GoneFlag(None, "it was split", "--runner pooling, with --convert embed, classify or reward"),
    "device": GoneFlag(None, "the device is found by the installed build"),
    "disable-log-requests": GoneFlag(None, "requests are not logged unless asked", "--enable-log-requests to log them"),
    "use-v2-block-manager": GoneFlag(None, "there is one block manager"),
    "num-scheduler-steps": GoneFlag(None, _MULTI_STEP),
    "multi-step-stream-outputs": GoneFlag(None, _MULTI_STEP),
    "num-lookahead-slots": GoneFlag(None, _MULTI_STEP),
    "scheduler-delay-factor": GoneFlag(None, "it left with engine V0"),
    "preemption-mode": GoneFlag(None, "preempted requests are always computed again"),
    "disable-async-output-proc": GoneFlag(None, "it left with engine V0"),
    "max-num-partial-prefills": GoneFlag(None, "it left with engine V0", "--long-prefill-token-threshold"),
    "max-long-partial-prefills": GoneFlag(None, "it left with engine V0", "--long-prefill-token-threshold"),
    "speculative-model": GoneFlag(None, _SPECULATIVE, "--speculative-config"),
    "num-speculative-tokens": GoneFlag(None, _SPECULATIVE, "--speculative-config"),
    "guided-decoding-backend": GoneFlag(None, "it was renamed", "--structured-outputs-config.backend"),
    "enable-reasoning": GoneFlag(None, "a parser is enough", "--reasoning-parser"),
    "rope-scaling": GoneFlag(None, "it is a value of the model's configuration", "--hf-overrides"),
    "rope-theta": GoneFlag(None, "it is a value of the model's configuration", "--hf-overrides"),
    "override-neuron-config": GoneFlag(None, "that backend left vLLM"),
    "override-pooler-config": GoneFlag(None, "it was renamed", "--pooler-config"),
    "worker-use-ray": GoneFlag(None, "it was renamed", "--distributed-executor-backend ray"),
    "engine-use-ray": GoneFlag(None, "it was removed"),
    "tokenizer-pool-size": GoneFlag(None, "it was removed"),
    "tokenizer-pool-type": GoneFlag(None, "it was removed"),
    "tokenizer-pool-extra-config": GoneFlag(None, "it was removed"),
    "enable-prompt-adapter": GoneFlag(None, _PROMPT_ADAPTER),
    "max-prompt-adapters": GoneFlag(None, _PROMPT_ADAPTER),
    "max-prompt-adapter-token": GoneFlag(None, _PROMPT_ADAPTER),
    "lora-extra-vocab-size": GoneFlag(None, "adapters no longer add vocabulary"),
    "long-lora-scaling-factors": GoneFlag(None, "it was removed"),
    "qlora-adapter-name-or-path": GoneFlag(None, "it was removed"),
    "full-cuda-graph": GoneFlag(None, "it was renamed", "--compilation-config.cudagraph_mode"),
    "calculate-kv-scales": GoneFlag(None, "scales of an fp8 KV cache come from the checkpoint"),
    "enable-multimodal-encoder-data-parallel": GoneFlag(None, "it was renamed", "--mm-encoder-tp-mode data"),
    "disable-frontend-multiprocessing": GoneFlag(None, "it left with engine V0"),
}

INTERNAL_NAMES = frozenset({"model_tag", "subparser", "dispatch_function", "api_process_count", "api_process_rank"})
"""Names in vLLM's list of arguments that are no flags."""

MOVES_MEMORY = frozenset({
    "additional-config", "compilation-config", "config", "cpu-offload-params", "cudagraph-capture-sizes",
    "decode-context-parallel-size", "disable-sliding-window", "enable-eplb", "enable-expert-parallel", "enable-lora",
    "enable-sleep-mode", "fully-sharded-loras", "hf-config-path", "hf-overrides", "kv-cache-dtype-skip-layers",
    "load-format", "lora-dtype", "mamba-block-size", "mamba-cache-dtype", "mamba-ssm-cache-dtype",
    "max-cudagraph-capture-size", "max-lora-rank", "max-loras", "mm-encoder-only", "mm-ipc-gpu-memory-gb",
    "mm-processor-device", "model-impl", "num-gpu-blocks-override", "offload-backend", "offload-group-size",
    "offload-num-in-group", "offload-params", "optimization-level", "performance-mode",
    "prefill-context-parallel-size", "quantization-config", "spec-method", "spec-model", "spec-tokens",
})  # fmt: skip
"""Real flags by which a start needs more or less memory on the card, and of which no plan is made."""
