"""How whole logs ended, what failed in them and why, and the flag to try next."""

import re

import pytest

from gateway.domain.doctor.diagnosis import Ending
from gateway.domain.doctor.measured import Stage
from gateway.domain.doctor.signs import SIGNS, Kind
from tests.real.starts import STARTS
from tests.support.vllm_logs import NAMES, diagnosed, error, file_of

SERVING = "INFO:     Application startup complete.\n"


def first(log):
    return diagnosed(log).findings[0]


@pytest.mark.parametrize(
    ("name", "ending", "kind", "stage", "flags"),
    [
        ("v0_32_started", Ending.STARTED, None, Stage.SERVING, ()),
        ("v0_9_0_started", Ending.STARTED, None, Stage.SERVING, ()),
        ("v0_8_1_engine_v0", Ending.STARTED, None, Stage.SERVING, ()),
        ("v0_11_0_restarts", Ending.STARTED, None, Stage.SERVING, ()),
        ("v0_6_4", Ending.FAILED, Kind.CONTEXT_LARGER_THAN_POOL, Stage.KV_SIZING,
         ("--max-model-len 23648", "--kv-cache-dtype fp8")),
        ("v0_8_3_sampler", Ending.FAILED, Kind.SAMPLER_WARMUP, Stage.WARMING_UP,
         ("--max-cudagraph-capture-size 128", "--enforce-eager", "--gpu-memory-utilization 0.93")),
        ("v0_11_0_card", Ending.FAILED, Kind.FREE_MEMORY, Stage.DEVICE, ("--gpu-memory-utilization 0.63",)),
        ("v0_13_profile", Ending.FAILED, Kind.OUT_OF_MEMORY, Stage.PROFILING,
         ("--mm-processor-kwargs '{\"max_pixels\": 1003520}'", "--max-num-seqs 64")),
        ("v0_23_0", Ending.FAILED, Kind.NO_CACHE_BLOCKS, Stage.KV_SIZING,
         ("--limit-mm-per-prompt '{\"video\": 0}'", "--mm-processor-kwargs '{\"max_pixels\": 1003520}'",
          "--max-num-seqs 64")),
        ("v0_26", Ending.FAILED, Kind.OUT_OF_MEMORY, Stage.CAPTURING,
         ("--gpu-memory-utilization 0.90", "--max-cudagraph-capture-size 128", "--enforce-eager")),
        ("v0_32_context", Ending.FAILED, Kind.CONTEXT_LARGER_THAN_POOL, Stage.KV_SIZING, ("--max-model-len 21984",)),
        ("v0_32_weights", Ending.FAILED, Kind.LOAD_OUT_OF_MEMORY, Stage.LOADING, ("--tensor-parallel-size 2",)),
        ("v0_32_flags", Ending.FAILED, Kind.UNKNOWN_ARGUMENTS, Stage.ARGUMENTS, ()),
        ("v0_32_requests", Ending.DIED, Kind.DEVICE_ASSERT, Stage.SERVING, ("--enforce-eager",)),
    ],
)  # fmt: skip
def test_a_log_of_each_kind(name, ending, kind, stage, flags):
    found = diagnosed(file_of(name))
    assert (found.ending, found.start.stage) == (ending, stage)
    assert found.is_well == (ending is Ending.STARTED)
    if kind is None:
        assert found.findings == ()
    else:
        assert (found.findings[0].kind, found.findings[0].advice.flags) == (kind, flags)


def test_refused_requests_come_after_what_ended_the_server():
    kinds = [each.kind for each in diagnosed(file_of("v0_32_requests")).findings]
    assert kinds == [
        Kind.DEVICE_ASSERT, Kind.ENCODER_CACHE, Kind.INVALID_IMAGE, Kind.TOO_MANY_ITEMS, Kind.PROMPT_TOO_LONG,
    ]  # fmt: skip


def test_a_server_that_refused_requests_lives():
    found = diagnosed(SERVING + error("ValueError: Failed to load image: cannot identify image file"))
    assert (found.ending, found.is_well) == (Ending.STARTED, True)
    assert found.findings[0].is_of_a_request


def test_the_same_from_all_ranks_is_told_once():
    [finding] = diagnosed(file_of("v0_8_3_sampler")).findings
    assert (finding.line, finding.count) == (30, 4)


def test_the_end_of_the_engine_is_told_only_where_nothing_says_why():
    ended = error("Engine core initialization failed. See root cause above.")
    assert first(ended).kind is Kind.ENGINE_DIED
    assert first(ended + error("RuntimeError: No CUDA GPUs are available")).kind is Kind.NO_DEVICE


def test_a_log_that_ends_early_is_unfinished():
    found = diagnosed("(EngineCore pid=7) INFO 11-30 10:00:00 [x.py:1] Starting to load model m...\n")
    assert (found.ending, found.start.stage, found.is_well) == (Ending.UNFINISHED, Stage.LOADING, False)


def test_what_is_no_log_is_none():
    assert diagnosed("hello\nworld\n").ending is Ending.NOTHING
    assert diagnosed("").ending is Ending.NOTHING
    assert diagnosed("ValueError: of another program\n").ending is Ending.NOTHING


def test_a_pasted_command_is_judged_by_its_flags():
    for flags, is_well in (
        ("--max-model-len 4096 --enforce-eager", True),
        ("--enable-mm-token-trim", False),
        ("--swap-space 16", False),
        ("--limit-mm-per-prompt image=1", False),
    ):
        found = diagnosed(f"vllm serve m {flags}")
        assert (found.ending, found.is_well) == (Ending.COMMAND, is_well)


def test_numbers_that_cannot_be_true_are_not_well():
    found = diagnosed(file_of("invented"))
    assert (found.ending, found.is_well) == (Ending.STARTED, False)


def test_notes_say_what_cannot_be_said():
    notes = diagnosed(file_of("v0_6_4")).notes
    assert [note.split(",")[0] for note in notes] == [
        "This is engine V0",
        "The log lists all arguments with their defaults",
    ]
    assert "3 starts" in diagnosed(file_of("v0_11_0_restarts")).notes[0]
    branch = diagnosed("INFO 11-30 10:00:00 [x.py:1] vLLM server version 0.1.dev1+g12345, serving model m\n")
    assert "build of a branch" in branch.notes[0]


PLAIN = {
    Kind.HOST_OUT_OF_MEMORY: "bash: line 1:    42 Killed                  vllm serve m",
    Kind.CPU_MEMORY: "ValueError: Available memory on node 0 (3.1/9.9 GiB) on startup is less than desired CPU memory "
    "utilization (0.92, 9.1 GiB).",
    Kind.NOT_MULTIMODAL: "  Value error, `limit_mm_per_prompt` is only supported for multimodal models. "
    "[type=value_error]",
    Kind.CONTEXT_ABOVE_MODEL: "  Value error, User-specified max_model_len (999999) is greater than the derived "
    "max_model_len "
    "(max_position_embeddings=128000 or model_max_length=None in model's config.json).",
    Kind.CHUNKED_MM_INPUT: "ValueError: Chunked MM input disabled but max_tokens_per_mm_item (16384) is larger than "
    "max_num_batched_tokens (2048). Please increase max_num_batched_tokens.",
    Kind.BATCH_BELOW_SEQUENCES: "ValueError: max_num_batched_tokens (64) must be greater than or equal to "
    "max_num_seqs (256).",
    Kind.QUANTIZATION: "ValueError: The quantization method fp8 is not supported for the current GPU. Minimum "
    "capability: 75. Current capability: 70.",
    Kind.UNRECOGNISED: error("ValueError: the moon is full"),
    Kind.HEADS_NOT_DIVISIBLE: "ValueError: Total number of attention heads (64) must be divisible by tensor "
    "parallel size (6).",
    Kind.TOO_FEW_GPUS: "ValueError: World size (4) is larger than the number of available GPUs (2) in this node. If",
    Kind.ARCHITECTURE: "ValueError: Model architectures ['NewVL'] are not supported for now. Supported "
    "architectures: [...]",
    Kind.ARCHITECTURE_DROPPED: "ValueError: Model architecture FuyuForCausalLM was supported in vLLM until v0.25, "
    "and is not",
    Kind.TRANSFORMERS_TOO_OLD: "ValueError: The checkpoint you are trying to load has model type `new_vl` but "
    "Transformers does "
    "not recognize this architecture.",
    Kind.REMOTE_CODE: "RuntimeError: Failed to load the model config. If the model is a custom model, consider setting "
    "`trust_remote_code=True` in LLM",
    Kind.TOKENIZER: "RuntimeError: Failed to load the tokenizer. If the tokenizer is a custom tokenizer",
    Kind.GATED: "OSError: You are trying to access a gated repo.",
    Kind.MODEL_NOT_FOUND: "OSError: nope is not a local folder and is not a valid model identifier listed on the hub",
    Kind.DISK_FULL: "OSError: [Errno 28] No space left on device",
    Kind.NO_DEVICE: "RuntimeError: Failed to infer device type, please set the environment variable",
    Kind.OLD_DRIVER: "RuntimeError: CUDA driver version is insufficient for CUDA runtime version",
    Kind.NO_KERNEL: "RuntimeError: CUDA error: no kernel image is available for execution on the device",
    Kind.BFLOAT16: "ValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8.0.",
    Kind.NCCL: "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3690, ncclSystemError",
    Kind.SHARED_MEMORY: "RuntimeError: unable to open shared memory object </torch_1> in read-write mode",
    Kind.PORT_IN_USE: "OSError: [Errno 98] Address already in use",
    Kind.ILLEGAL_ACCESS: "RuntimeError: CUDA error: an illegal memory access was encountered",
    Kind.BAD_ARGUMENT: "vllm serve: error: argument --dtype: invalid choice: 'int4'",
    Kind.LIMIT_MM_SYNTAX: "vllm serve: error: argument --limit-mm-per-prompt: Value image=1,video=0 cannot be "
    "converted to "
    "<function loads at 0x7f4b777cfc70>.",
    Kind.PROCESSOR: "ValueError: Failed to apply Qwen2_5_VLProcessor on data={'text': 'x'}",
    Kind.PLACEHOLDERS: "RuntimeError: Expected there to be 2 prompt placeholders, instead found 1 prompt placeholders!",
    Kind.CHAT_TEMPLATE: "ValueError: As of transformers v4.44, default chat template is no longer allowed, so you must",
    Kind.TOOL_CHOICE: 'ValueError: "auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser '
    'to be set',
}  # fmt: skip


@pytest.mark.parametrize("kind", PLAIN)
def test_a_failure_is_known_by_its_words(kind):
    finding = first(PLAIN[kind])
    assert finding.kind is kind
    assert finding.advice.title
    assert finding.advice.cause
    assert finding.advice.cures or finding.advice.flags


@pytest.mark.parametrize("sign", [sign for sign in SIGNS if sign.pattern.pattern == re.escape(sign.needle)])
def test_every_fixed_wording_is_known(sign):
    assert sign.kind in {each.kind for each in diagnosed(error(f"ValueError: {sign.needle} ...")).findings}


def test_every_kind_is_seen_in_some_test():
    logs = {each.kind for name in NAMES for each in diagnosed(file_of(name.removesuffix(".log"))).findings}
    assert logs | set(PLAIN) | {Kind.ENGINE_DIED} == set(Kind) == {sign.kind for sign in SIGNS} | {Kind.UNRECOGNISED}


def test_an_error_that_is_not_known_is_quoted_and_the_start_has_failed():
    loading = "(EngineCore pid=7) INFO 11-30 10:00:00 [x.py:1] Starting to load model m...\n"
    traceback = error("Traceback (most recent call last):") + error("KeyError: 'moon'") + error("  the end")
    for ended in ("", error("EngineCore failed to start."), error("RuntimeError: Engine core initialization failed.")):
        found = diagnosed(loading + traceback + ended)
        [finding] = found.findings
        assert (found.ending, found.is_unexplained, finding.kind) == (Ending.FAILED, True, Kind.UNRECOGNISED)
        assert (finding.stage, finding.text) == (Stage.LOADING, "KeyError: 'moon'")
    assert first(loading + error("It is gone.")).text == "It is gone."
    assert diagnosed(loading + traceback + error("OSError: No space left on device")).is_unexplained is False


def test_an_error_before_a_start_that_went_well_is_none():
    assert diagnosed(error("ImportError: no such optional module") + SERVING).findings == ()
    assert diagnosed("INFO 11-30 10:00:00 [x.py:1] ValueError: tried another way\n").ending is Ending.UNFINISHED


@pytest.mark.parametrize("words", ["must be greater than or equal to", "must be ≥"])
def test_batches_below_the_number_of_sequences(words):
    advice = first(error(f"ValueError: max_num_batched_tokens (64) {words} max_num_seqs (256).")).advice
    assert advice.flags == ("--max-num-batched-tokens 2048", "--max-num-seqs 64")


@pytest.mark.parametrize("name", STARTS)
def test_captures_of_a_real_vllm(name):
    """tests/real/test_doctor.py makes them anew."""
    found, kind = diagnosed(file_of(f"real_v0_32_{name}")), STARTS[name].kind
    assert found.ending is (Ending.STARTED if kind is None else Ending.FAILED)
    assert [each.kind for each in found.findings] == ([] if kind is None else [kind])
    assert found.contradictions == ()
