"""For every kind of failure what to say of it. Those that need the log's numbers have a function of their own."""

from collections.abc import Mapping

from gateway.domain.doctor import advice_arguments as arguments
from gateway.domain.doctor import advice_memory as memory
from gateway.domain.doctor.advice import Adviser, always
from gateway.domain.doctor.signs import Kind

ADVICE: Mapping[Kind, Adviser] = {
    Kind.FREE_MEMORY: memory.free_memory,
    Kind.CPU_MEMORY: memory.cpu_memory,
    Kind.LOAD_OUT_OF_MEMORY: memory.load,
    Kind.NO_CACHE_BLOCKS: memory.no_cache_blocks,
    Kind.CONTEXT_LARGER_THAN_POOL: memory.context_larger_than_pool,
    Kind.SAMPLER_WARMUP: memory.sampler_warmup,
    Kind.OUT_OF_MEMORY: memory.out_of_memory,
    Kind.HOST_OUT_OF_MEMORY: always(
        "The host ran out of memory",
        "The operating system or the container's limit ended a process. vLLM holds in host memory: weights while "
        "they are "
        "read, 4 GiB of preprocessed inputs for each API process and each engine, and every request that waits.",
        "Give the container more memory.",
        "Or make the cache of preprocessed inputs smaller, and bound what waits; the gateway's queue does that.",
        flags=("--mm-processor-cache-gb 1", "--max-num-queued-reqs 64"),
    ),
    Kind.LIMIT_MM_SYNTAX: arguments.limit_mm_syntax,
    Kind.UNKNOWN_ARGUMENTS: arguments.unknown_arguments,
    Kind.BAD_ARGUMENT: arguments.bad_argument,
    Kind.NOT_MULTIMODAL: always(
        "--limit-mm-per-prompt for a model that vLLM takes for a text model",
        "The model has no image input, or this version of vLLM (or of transformers) does not know it as one that has.",
        "Check the model's name; for a new model upgrade vLLM and transformers.",
    ),
    Kind.CONTEXT_ABOVE_MODEL: arguments.context_above_model,
    Kind.CHUNKED_MM_INPUT: arguments.chunked_mm_input,
    Kind.BATCH_BELOW_SEQUENCES: arguments.batch_below_sequences,
    Kind.HEADS_NOT_DIVISIBLE: arguments.heads,
    Kind.TOO_FEW_GPUS: arguments.too_few_gpus,
    Kind.ARCHITECTURE: always(
        "This vLLM does not know the model",
        "No class of this version is for the architecture that the model's config.json names.",
        "Upgrade vLLM to a version that lists the architecture.",
        "Or let it try the class of transformers, which is slower and takes more memory.",
        flags=("--model-impl transformers",),
    ),
    Kind.ARCHITECTURE_DROPPED: always(
        "vLLM no longer serves the model",
        "The architecture was dropped; the message names the last version that has it.",
        "Use that version, or a newer model.",
    ),
    Kind.TRANSFORMERS_TOO_OLD: always(
        "transformers does not know the model",
        "config.json names a model type that the installed transformers does not have: the model is newer, or the "
        "file is "
        "not from its publisher.",
        "Upgrade transformers within what this vLLM allows, or upgrade vLLM.",
    ),
    Kind.REMOTE_CODE: always(
        "The model brings code of its own",
        "Its configuration is code that vLLM does not run unless told to.",
        "Read the code, then allow it.",
        flags=("--trust-remote-code",),
    ),
    Kind.TOKENIZER: always(
        "The tokenizer cannot be loaded",
        "The files of the tokenizer are of another version than the installed transformers and tokenizers, or "
        "incomplete.",
        "Load the model's files anew, and upgrade transformers within what this vLLM allows.",
        "Or name a tokenizer that fits.",
        flags=("--tokenizer MODEL",),
    ),
    Kind.GATED: always(
        "The model is gated",
        "The hub gave no access: no token, or its owner has not accepted the licence.",
        "Accept the licence on the model's page and give the token as HF_TOKEN.",
    ),
    Kind.MODEL_NOT_FOUND: always(
        "There is no such model",
        "The name is neither a folder that this process can read nor a model on the hub. Names end in what was "
        "published, "
        "as Qwen/Qwen2.5-VL-32B-Instruct.",
        "Check the spelling; in a container check that the folder is mounted.",
    ),
    Kind.DISK_FULL: always(
        "A disk is full",
        "Weights, or what torch.compile keeps, had no room. In a container it may be /dev/shm.",
        "Make room, or keep the model elsewhere (HF_HOME).",
        flags=("--download-dir DIR",),
    ),
    Kind.NO_DEVICE: always(
        "No GPU was found",
        "The container has none, the driver does not answer, or the build of vLLM is for another kind of device.",
        "See `nvidia-smi` inside of the container; start it with `--gpus all`.",
    ),
    Kind.OLD_DRIVER: always(
        "The GPU's driver is too old",
        "This vLLM was built for a newer CUDA than the driver serves.",
        "Upgrade the driver, or take an image of vLLM for an older CUDA.",
    ),
    Kind.NO_KERNEL: always(
        "No code for this GPU",
        "The build of vLLM (or of a library) has no machine code for this generation of GPUs.",
        "Take a build that names it, or another attention backend.",
        flags=("--attention-backend TRITON_ATTN",),
    ),
    Kind.BFLOAT16: always(
        "The GPU has no bfloat16",
        "GPUs before Ampere (V100, T4, 20 series) do not calculate in bfloat16, which most models are stored in.",
        "Use 16-bit floats.",
        flags=("--dtype half",),
    ),
    Kind.QUANTIZATION: always(
        "The GPU cannot calculate in this quantisation",
        "Kernels for it need a newer generation of GPUs, or this build of vLLM has none; the line says which.",
        "Serve a checkpoint of another quantisation, or of 16 bits; AWQ and GPTQ run from Turing (T4, 20 series) on.",
    ),
    Kind.NCCL: always(
        "The GPUs cannot talk to each other",
        "NCCL failed. In containers it is most often too little shared memory or a network interface that cannot "
        "be used.",
        "Give the container `--ipc=host` or `--shm-size 16g`; set NCCL_SOCKET_IFNAME to the right interface.",
        "NCCL_DEBUG=INFO says at which step.",
        flags=("--disable-custom-all-reduce",),
    ),
    Kind.SHARED_MEMORY: always(
        "Too little shared memory",
        "Processes of vLLM exchange data in /dev/shm, of which a container has 64 MiB unless told otherwise.",
        "Start the container with `--ipc=host` or `--shm-size 16g`; in Kubernetes mount an emptyDir of medium "
        "Memory there.",
    ),
    Kind.PORT_IN_USE: always(
        "The port is taken",
        "Another server listens there, perhaps a vLLM that did not end and still holds GPU memory.",
        "See who it is with `ss -ltnp`, or take another port.",
        flags=("--port 8001",),
    ),
    Kind.UNRECOGNISED: always(
        "The cause is not known here",
        "The line above is the last error of the log that nothing else here explains.",
        "Read the lines before it, and search vLLM's issues for its words.",
    ),
    Kind.DEVICE_ASSERT: always(
        "An index on the GPU was out of range",
        "It is hardly ever a damaged file: these fail on the CPU, with 400. Known causes: positions or image "
        "tokens beyond "
        "what the engine had reserved (vllm#11958: V0, three images of the largest size in a context too short "
        "for them), "
        "a token outside of the vocabulary, a defect of a kernel. The line that is named is not where it happened.",
        "Upgrade vLLM: V0 counted images differently when it profiled and when it served.",
        "Start once with CUDA_LAUNCH_BLOCKING=1 and --enforce-eager to see the true line.",
        "The engine is dead after it: restart the server.",
        flags=("--enforce-eager",),
    ),
    Kind.ILLEGAL_ACCESS: always(
        "A kernel read outside of its memory",
        "A defect of a kernel for this GPU, model and version. The line that is named is not where it happened.",
        "Upgrade vLLM, or try another attention backend; without CUDA graphs the true line is seen.",
        flags=("--attention-backend TRITON_ATTN", "--enforce-eager"),
    ),
    Kind.ENGINE_DIED: always(
        "The engine ended, and the log does not say why",
        "This line only says that it is gone; the cause stands before it, in the lines of the engine or of a worker.",
        "Read the whole log of all processes; VLLM_LOGGING_LEVEL=DEBUG says more.",
    ),
    Kind.ENCODER_CACHE: arguments.encoder_cache,
    Kind.TOO_MANY_ITEMS: arguments.too_many_items,
    Kind.PROMPT_TOO_LONG: arguments.prompt_too_long,
    Kind.INVALID_IMAGE: always(
        "A client sent what is no image",
        "vLLM could not decode it and answered 400. Empty files, SVG and PDF, pictures cut off in the middle, and "
        "base64 "
        "that was cut or double encoded look so.",
        "Find the client; the gateway refuses these from their headers, with the part of the message that is wrong.",
    ),
    Kind.PROCESSOR: always(
        "The model's processor refused an image",
        "Most often its sides: Qwen's processors take no image that is more than 200 times as long as it is wide.",
        "Find the client; the gateway refuses these before vLLM sees them, and names the sides.",
    ),
    Kind.PLACEHOLDERS: always(
        "Images and their places in the prompt do not match",
        "A chat template that leaves images out, or text that holds the model's own mark for an image.",
        "Leave images out of the request, not of the template; the gateway's history.mode does that.",
    ),
    Kind.CHAT_TEMPLATE: always(
        "The model has no chat template",
        "A base model, or one that was stored without it: chat requests are answered with 400.",
        "Serve the instruct model, or give a template.",
        flags=("--chat-template FILE.jinja",),
    ),
    Kind.TOOL_CHOICE: always(
        "Clients send tools, which are not switched on",
        "Requests with tool_choice auto are answered with 400.",
        "Switch them on, with the parser for this model.",
        flags=("--enable-auto-tool-choice", "--tool-call-parser hermes"),
    ),
}
