"""How failures look in a log: one sign for each kind. What they mean and what helps is in advice.py and beside it.

Texts are those of vLLM 0.32's sources, of the captures of a running 0.32, and of older versions in the issues named.
"""

import re
from enum import StrEnum
from typing import NamedTuple


class Kind(StrEnum):
    """What went wrong. Values are the names in `--json`."""

    # while it starts, by memory
    FREE_MEMORY = "free_memory_below_utilisation"
    LOAD_OUT_OF_MEMORY = "out_of_memory_in_weights"
    NO_CACHE_BLOCKS = "no_memory_for_cache_blocks"
    CONTEXT_LARGER_THAN_POOL = "context_larger_than_kv_pool"
    SAMPLER_WARMUP = "out_of_memory_in_sampler_warmup"
    OUT_OF_MEMORY = "out_of_memory"
    HOST_OUT_OF_MEMORY = "host_out_of_memory"
    CPU_MEMORY = "cpu_memory_below_utilisation"
    # while it starts, by what was asked for
    LIMIT_MM_SYNTAX = "limit_mm_per_prompt_syntax"
    UNKNOWN_ARGUMENTS = "unrecognised_arguments"
    BAD_ARGUMENT = "argument_cannot_be_read"
    NOT_MULTIMODAL = "limit_mm_on_a_text_model"
    CONTEXT_ABOVE_MODEL = "context_above_the_models_own"
    CHUNKED_MM_INPUT = "item_larger_than_batched_tokens"
    BATCH_BELOW_SEQUENCES = "batched_tokens_below_sequences"
    HEADS_NOT_DIVISIBLE = "heads_not_divisible_by_tp"
    TOO_FEW_GPUS = "fewer_gpus_than_ranks"
    # while it starts, by model and software
    ARCHITECTURE = "architecture_not_supported"
    ARCHITECTURE_DROPPED = "architecture_dropped"
    TRANSFORMERS_TOO_OLD = "transformers_does_not_know_model"
    REMOTE_CODE = "needs_trust_remote_code"
    TOKENIZER = "tokenizer_cannot_be_loaded"
    GATED = "model_is_gated"
    MODEL_NOT_FOUND = "model_not_found"
    DISK_FULL = "disk_full"
    # while it starts, by device and network
    NO_DEVICE = "no_device"
    OLD_DRIVER = "driver_too_old"
    NO_KERNEL = "no_kernel_for_this_gpu"
    BFLOAT16 = "bfloat16_not_supported"
    QUANTIZATION = "quantization_not_supported"
    NCCL = "nccl"
    SHARED_MEMORY = "shared_memory"
    PORT_IN_USE = "port_in_use"
    UNRECOGNISED = "cause_not_known_here"
    # while it serves
    DEVICE_ASSERT = "device_side_assert"
    ILLEGAL_ACCESS = "illegal_memory_access"
    ENGINE_DIED = "engine_died"
    # a request alone
    ENCODER_CACHE = "item_exceeds_encoder_cache"
    TOO_MANY_ITEMS = "too_many_items"
    PROMPT_TOO_LONG = "prompt_too_long"
    INVALID_IMAGE = "invalid_image"
    PROCESSOR = "processor_refused_input"
    PLACEHOLDERS = "placeholders_do_not_match"
    CHAT_TEMPLATE = "chat_template_missing"
    TOOL_CHOICE = "tool_choice_not_enabled"


REQUEST_KINDS = frozenset({
    Kind.ENCODER_CACHE, Kind.TOO_MANY_ITEMS, Kind.PROMPT_TOO_LONG, Kind.INVALID_IMAGE, Kind.PROCESSOR,
    Kind.PLACEHOLDERS, Kind.CHAT_TEMPLATE, Kind.TOOL_CHOICE,
})  # fmt: skip
"""One request is answered with an error, the server lives on."""


class Sign(NamedTuple):
    """Only a line that holds `needle` is searched; named groups are kept."""

    kind: Kind
    needle: str
    pattern: re.Pattern[str]


def _sign(kind: Kind, needle: str, pattern: str | None = None) -> Sign:
    return Sign(kind, needle, re.compile(re.escape(needle) if pattern is None else pattern))


_N = r"-?[\d,.]{1,20}?"

SIGNS: tuple[Sign, ...] = (
    _sign(
        Kind.FREE_MEMORY,
        "desired GPU memory utilization (",
        rf"Free memory on device[^(]{{0,40}}\((?P<free>{_N})/(?P<total>{_N}) GiB\) on startup is less than desired GPU "
        rf"memory utilization \((?P<utilisation>{_N}), (?P<wanted>{_N}) GiB\)",
    ),
    _sign(Kind.CPU_MEMORY, "desired CPU memory utilization"),
    _sign(Kind.CPU_MEMORY, "GiB) on kv cache allocation is less than requested memory"),
    _sign(Kind.LOAD_OUT_OF_MEMORY, "Failed to load model - not enough GPU memory"),
    _sign(Kind.NO_CACHE_BLOCKS, "No available memory for the cache blocks"),
    _sign(
        Kind.CONTEXT_LARGER_THAN_POOL,
        "KV cache is needed, which is larger than the available KV cache memory",
        rf"max seq len \((?P<context>{_N})\), \((?P<needed>{_N}) GiB KV cache is needed, which is larger than the "
        rf"available KV cache memory \((?P<available>{_N}) GiB\)"
        rf"(?:.{{0,80}}estimated maximum model length is (?P<estimate>\d{{1,12}}))?",
    ),
    # Until 0.8 (vllm#10517), and V0.
    _sign(
        Kind.CONTEXT_LARGER_THAN_POOL,
        "number of tokens that can be stored in KV cache",
        r"max seq len \((?P<context>\d{1,12})\) is larger than the maximum number of tokens that can be stored in KV "
        r"cache \((?P<estimate>\d{1,12})\)",
    ),
    _sign(Kind.CONTEXT_LARGER_THAN_POOL, "Cannot auto-fit max_model_len"),
    _sign(Kind.SAMPLER_WARMUP, "when warming up sampler", r"warming up sampler with (?P<rows>\d{1,9}) dummy requests"),
    _sign(Kind.OUT_OF_MEMORY, "out of memory. Tried to allocate"),
    _sign(Kind.OUT_OF_MEMORY, "CUDA error: out of memory"),
    _sign(Kind.HOST_OUT_OF_MEMORY, "Killed", r"^\S{0,60}:? ?(?:line \d+: +\d+ )?Killed\b|code 137|OOMKilled"),
    _sign(Kind.HOST_OUT_OF_MEMORY, "DefaultCPUAllocator: can't allocate memory"),
    # vllm#39687: the words from 0.10 on. Before that the value was read as NAME=NUMBER.
    _sign(
        Kind.LIMIT_MM_SYNTAX,
        "--limit-mm-per-prompt: ",
        r"argument --limit-mm-per-prompt: (?:Value (?P<value>.{1,200}?) cannot be converted|.{0,100}invalid)",
    ),
    _sign(Kind.UNKNOWN_ARGUMENTS, "unrecognized arguments: ", r"unrecognized arguments: (?P<arguments>.{1,300})"),
    _sign(
        Kind.BAD_ARGUMENT,
        "error: argument ",
        r"error: argument (?!--limit-mm-per-prompt)(?P<flag>[^:]{1,80}): (?P<why>.{1,200})",
    ),
    _sign(Kind.NOT_MULTIMODAL, "is only supported for multimodal models"),
    _sign(
        Kind.CONTEXT_ABOVE_MODEL,
        "greater than the derived max_model_len",
        r"max_model_len \((?P<context>\d{1,12})\) is greater than the derived max_model_len "
        r"\([^=]{1,60}=(?P<own>[\d.]{1,14})",
    ),
    _sign(
        Kind.CHUNKED_MM_INPUT,
        "Chunked MM input disabled",
        r"max_tokens_per_mm_item \((?P<item>\d{1,12})\) is larger than max_num_batched_tokens "
        r"\((?P<batched>\d{1,12})\)",
    ),
    _sign(
        Kind.BATCH_BELOW_SEQUENCES,
        "max_num_batched_tokens (",
        r"max_num_batched_tokens \((?P<batched>\d{1,12})\) must be [^()]{1,40} "
        r"max_num_seqs \((?P<sequences>\d{1,12})\)",
    ),
    _sign(
        Kind.HEADS_NOT_DIVISIBLE,
        "must be divisible by tensor parallel size",
        r"attention heads \((?P<heads>\d{1,9})\) must be divisible by tensor parallel size \((?P<tp>\d{1,9})\)",
    ),
    _sign(
        Kind.TOO_FEW_GPUS,
        "is larger than the number of available GPUs",
        r"World size \((?P<ranks>\d{1,9})\) is larger than the number of available GPUs \((?P<gpus>\d{1,9})\)",
    ),
    _sign(Kind.TOO_FEW_GPUS, "The number of required GPUs exceeds the total number of available GPUs"),
    _sign(
        Kind.ARCHITECTURE,
        "are not supported for now",
        r"Model architectures (?P<names>\[.{1,120}?\]) are not supported for now",
    ),
    _sign(Kind.ARCHITECTURE, "failed to be inspected"),
    _sign(
        Kind.ARCHITECTURE_DROPPED,
        "was supported in vLLM until",
        r"architecture (?P<names>\w{1,120}) was supported in vLLM until v(?P<version>[\d.]{1,20}?),",
    ),
    _sign(
        Kind.TRANSFORMERS_TOO_OLD,
        "does not recognize this architecture",
        r"model type `(?P<names>[^`]{1,80})`",
    ),
    _sign(Kind.REMOTE_CODE, "trust_remote_code=True", r"Failed to load the model config|requires you to execute"),
    _sign(Kind.REMOTE_CODE, "contains custom code which must be executed"),
    _sign(Kind.TOKENIZER, "Failed to load the tokenizer"),
    _sign(Kind.TOKENIZER, "data did not match any variant of untagged enum"),
    _sign(Kind.GATED, "gated repo", r"(?i)access gated|gated repo"),
    _sign(Kind.GATED, "401 Client Error"),
    _sign(Kind.MODEL_NOT_FOUND, "is not a local folder and is not a valid model identifier"),
    _sign(Kind.MODEL_NOT_FOUND, "Repo id must"),
    _sign(Kind.DISK_FULL, "No space left on device"),
    _sign(Kind.NO_DEVICE, "Failed to infer device type"),
    _sign(Kind.NO_DEVICE, "No CUDA GPUs are available"),
    _sign(Kind.NO_DEVICE, "libcuda.so.1: cannot open"),
    _sign(Kind.OLD_DRIVER, "CUDA driver version is insufficient"),
    _sign(Kind.OLD_DRIVER, "NVIDIA driver on your system is too old"),
    _sign(Kind.NO_KERNEL, "no kernel image is available"),
    _sign(Kind.BFLOAT16, "Bfloat16 is only supported"),
    _sign(
        Kind.QUANTIZATION,
        "uantization method ",
        r"[Qq]uantization method (?P<method>[\w-]{1,40}) is not supported",
    ),
    _sign(Kind.NCCL, "NCCL", r"ncclSystemError|ncclUnhandledCudaError|ncclInternalError|ncclInvalidUsage|NCCL error"),
    _sign(Kind.SHARED_MEMORY, "shared memory", r"(?i)unable to \w{4,8} shared memory|out of shared memory"),
    _sign(Kind.SHARED_MEMORY, "Bus error"),
    _sign(Kind.PORT_IN_USE, "ddress already in use"),
    _sign(Kind.DEVICE_ASSERT, "device-side assert triggered"),
    _sign(Kind.ILLEGAL_ACCESS, "illegal memory access"),
    _sign(Kind.ENGINE_DIED, "EngineDeadError"),
    _sign(Kind.ENGINE_DIED, "Engine core initialization failed"),
    _sign(Kind.ENGINE_DIED, "EngineCore encountered an issue"),
    _sign(Kind.ENGINE_DIED, "EngineCore failed to start"),
    _sign(Kind.ENGINE_DIED, "Engine process failed to start"),
    _sign(
        Kind.ENCODER_CACHE,
        "exceeds the pre-allocated encoder cache size",
        r"contains a\(n\) (?P<modality>\w{1,40}) item with (?P<item>\d{1,12}) embedding tokens, which exceeds the "
        r"pre-allocated encoder cache size (?P<size>\d{1,12})",
    ),
    _sign(
        Kind.TOO_MANY_ITEMS,
        "may be provided in one",
        r"At most (?P<most>\d{1,9}) (?P<modality>\w{1,40})\(s\) may be provided in one",
    ),
    _sign(
        Kind.PROMPT_TOO_LONG,
        "maximum context length",
        r"maximum context length (?:is|of) \(?(?P<context>[\d,]{1,14})|"
        r"Input length \((?P<length>\d{1,12})\) exceeds model's maximum context length \((?P<most>\d{1,12})\)",
    ),
    _sign(Kind.INVALID_IMAGE, "Failed to load image"),
    _sign(Kind.INVALID_IMAGE, "cannot identify image file"),
    _sign(Kind.INVALID_IMAGE, "image file is truncated"),
    _sign(Kind.INVALID_IMAGE, "Non-base64 digit found"),
    _sign(Kind.PROCESSOR, "Failed to apply ", r"Failed to apply (?P<processor>\w{1,80})"),
    _sign(Kind.PLACEHOLDERS, "prompt placeholders!"),
    _sign(Kind.PLACEHOLDERS, "prompt updates!"),
    _sign(Kind.PLACEHOLDERS, "multimodal tokens to placeholders"),
    _sign(Kind.CHAT_TEMPLATE, "default chat template is no longer allowed"),
    _sign(Kind.TOOL_CHOICE, "tool choice requires"),
)  # fmt: skip
