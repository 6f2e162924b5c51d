"""What is read from whole logs: numbers, names, how far the start came, which start it was."""

import pytest

from gateway.domain.doctor.measured import Stage, Term
from tests.support.vllm_logs import NAMES, error, file_of, read

INFO = "(EngineCore pid=7) INFO 11-30 10:00:00 [x.py:1] "


def start_of(name):
    return read(file_of(name)).start


def numbers(start):
    return {term: reading.value for term, reading in start.readings.items()}


def test_a_start_of_0_32_on_a_gpu():
    start = start_of("v0_32_started")
    assert (start.version, start.engine, start.platform) == ("0.32.0", "V1", "cuda")
    assert (start.model, start.architecture) == ("Qwen/Qwen3-VL-8B-Instruct", "Qwen3VLForConditionalGeneration")
    assert (start.stage, start.profiled_modality) == (Stage.SERVING, "image")
    assert start.flags["limit_mm_per_prompt"] == {"image": 4, "video": 0}
    assert start.setting("max_model_len") == 32768
    assert start.setting("tensor_parallel_size") == 1
    assert start.setting("nothing") is None
    assert numbers(start) == {
        Term.CONTEXT: 32768, Term.BATCHED_TOKENS: 8192, Term.WEIGHTS_GIB: 16.78, Term.LOAD_SECONDS: 5.830113,
        Term.ENCODER_BUDGET: 16384, Term.ENCODER_ITEMS: 1, Term.GRAPHS_ESTIMATE_GIB: 0.36, Term.KV_GIB: 52.71,
        Term.KV_TOKENS: 383_808, Term.CONCURRENCY: 11.71, Term.CONCURRENCY_CONTEXT: 32768, Term.GRAPHS_GIB: 0.35,
        Term.FREE_GIB: 78.66, Term.TOTAL_GIB: 79.19, Term.UTILISATION: 0.92, Term.BUDGET_GIB: 72.85,
        Term.WEIGHTS_AND_NON_TORCH_GIB: 17.03, Term.ACTIVATION_GIB: 3.11, Term.START_SECONDS: 35.71,
    }  # fmt: skip


def test_a_start_of_engine_v0():
    start = start_of("v0_8_1_engine_v0")
    assert (start.version, start.engine, start.model) == ("0.8.1", "V0", "Qwen/Qwen2.5-7B-Instruct")
    found = numbers(start)
    assert found[Term.WEIGHTS_GIB] == 14.25
    assert found[Term.ACTIVATION_GIB] == 1.43
    assert (found[Term.KV_GIB], found[Term.KV_BLOCKS], found[Term.CONCURRENCY]) == (4.05, 4741, 11.49)
    assert (found[Term.BUDGET_GIB], found[Term.GRAPHS_GIB]) == (19.79, 0.76)


def test_a_start_of_0_6_prints_name_and_value():
    found = numbers(start_of("v0_6_4"))
    assert (found[Term.TOTAL_GIB], found[Term.TORCH_PEAK_GIB], found[Term.NON_TORCH_GIB]) == (23.58, 17.98, 0.35)
    assert (found[Term.KV_GIB], found[Term.UTILISATION], found[Term.KV_BLOCKS]) == (2.89, 0.9, 1478)


def test_the_table_of_0_6_5():
    """vllm#10511."""
    rows = {
        "total_gpu_memory     79.22GiB": Term.TOTAL_GIB, "gpu_memory_utilization       0.90": Term.UTILISATION,
        "the current vLLM instance can use    71.29GiB": Term.BUDGET_GIB,
        "model weights take   14.96GiB": Term.WEIGHTS_GIB, "non_torch_memory     1.79GiB": Term.NON_TORCH_GIB,
        "PyTorch activation peak memory       1.26GiB": Term.ACTIVATION_GIB,
        "available_kv_cache_memory    53.29GiB": Term.KV_GIB,
    }  # fmt: skip
    start = read("".join(f"INFO 12-13 19:54:18 worker.py:243] {row}\n" for row in rows)).start
    assert numbers(start) == dict(zip(rows.values(), (79.22, 0.9, 71.29, 14.96, 1.79, 1.26, 53.29), strict=True))
    assert start.engine == "V0"


@pytest.mark.parametrize(
    ("message", "term", "value"),
    [
        (("Memory profiling takes 14.40 seconds. Total non KV cache memory: 10.22GiB; torch peak memory increase: "
        "1.40GiB; "
         "non-torch forward increase memory: 0.02GiB; weights memory: 8.80GiB."), Term.NON_TORCH_GIB, 0.02),
        ("torch peak memory increase: 1.4GiB; total consumed (from mem_get_info): 9.11GiB; weights memory: 8.8GiB.",
         Term.WEIGHTS_AND_NON_TORCH_GIB, 9.11),
        (("Actual usage is 14.08 GiB for weight, 1.97 GiB for peak activation, 0.07 GiB for non-torch memory, and "
        "0.67 GiB "
         "for CUDAGraph memory."), Term.WEIGHTS_GIB, 14.08),
        ("Explicitly set (1.0/10.96) GiB for KV cache on node 0.", Term.KV_GIB, 1.0),
        ("Auto set (3.5/10.96) GiB for KV cache on node 0, with 9 GiB requested memory", Term.KV_GIB, 3.5),
        ("Loading model weights took 16.9570 GB", Term.WEIGHTS_GIB, 16.957),
        ("vllm cache_config_info with initialization after num_gpu_blocks is: 89994", Term.KV_BLOCKS, 89_994),
        ("Auto-fit max_model_len: reduced from 131072 to 21984 to fit in available KV cache memory (3 GiB GPU)",
         Term.CONTEXT, 21_984),
    ],
)  # fmt: skip
def test_other_lines_with_numbers(message, term, value):
    assert read(INFO + message).start.get(term) == value


def test_of_ranks_that_differ_the_smallest_pool_and_the_largest_weights_count():
    start = read("".join(
        f"{INFO}Model loading took {weights} GiB and 1.0 seconds\n{INFO}GPU KV cache size: {tokens} tokens\n"
        for weights, tokens in (("8.1", "9,584"), ("8.3", "9,072"), ("8.2", "9,168"))
    )).start  # fmt: skip
    assert start.readings[Term.WEIGHTS_GIB][:2] == (8.3, 8.1)
    assert start.readings[Term.KV_TOKENS] == (9072, 9584, 2)


def test_the_last_of_several_starts_is_the_one():
    log = read(file_of("v0_11_0_restarts"))
    assert (log.starts_seen, log.start.first_line, log.start.stage) == (3, 23, Stage.SERVING)
    assert not log.start.seen
    assert log.start.flags["max_num_seqs"] == 128


def test_engines_that_come_up_together_are_one_start():
    engine = INFO + "Initializing a V1 LLM engine (v0.32.0) with config: model='m', max_seq_len=None\n"
    assert read(engine * 4).starts_seen == 1
    assert read(engine + INFO + "Available KV cache memory: 1.0 GiB\n" + engine).starts_seen == 2
    assert read(engine + error("ValueError: No available memory for the cache blocks.") + engine).starts_seen == 2


def test_a_start_never_goes_back():
    ready = "INFO:     Application startup complete.\n"
    assert read(ready + INFO + "Starting to load model adapter...").start.stage is Stage.SERVING


def test_padding_layers_tell_that_layers_are_of_several_kinds():
    assert read(INFO + "Add 8 padding layers, may waste at most 15.38% KV cache memory").start.marks == {"padded"}


def test_a_model_is_named_by_whichever_line_has_it():
    assert read(INFO + "Starting to load model /models/qwen...").start.model == "/models/qwen"
    assert read(INFO + "Initializing a V1 LLM engine (v0.9.0) with config: dtype=x").start.model is None


def test_the_version_is_in_every_banner():
    assert read("INFO 11-20 21:14:02 api_server.py:585] vLLM API server version v0.6.4\n").start.version == "0.6.4"
    assert read(INFO + "vLLM server version 0.32.0, serving model m").start.version == "0.32.0"


def test_signs_in_lines_that_only_inform_are_none():
    log = read(INFO + "CUDA out of memory. Tried to allocate 2.00 GiB.")
    assert not log.start.seen
    assert log.start.out_of_memory is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (("CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of 23.57 GiB of which "
        "128.00 MiB is "
         "free. Including non-PyTorch memory, this process has 16.28 GiB memory in use."), (0.5, 23.57, 0.125, 16.28)),
        (("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 139.81 GiB of which 1.50 "
        "GiB is free."),
         (2.0, 139.81, 1.5, None)),
        ("HIP out of memory. Tried to allocate 2.00 GiB.", (2.0, None, None, None)),
        ("CUDA out of memory. Tried to allocate 2.0.0 GiB.", (0.0, None, None, None)),
    ],
)  # fmt: skip
def test_what_torch_says_of_an_allocation(text, found):
    memory = read(error(text) + error("CUDA out of memory. Tried to allocate 9.00 GiB.")).start.out_of_memory
    assert (memory.tried_gib, memory.total_gib, memory.free_gib, memory.in_use_gib) == found


def test_flags_come_from_commands_arguments_and_errors():
    start = read(
        "+ vllm serve m --max-model-len 4096 \\\n --swap-space 4\n"
        "vllm serve: error: unrecognized arguments: --swap-space 4 - --max-mm-tokens=5\n"
    ).start
    assert start.flags == {"model": "m", "max_model_len": 4096, "swap_space": 4}
    assert start.unknown_flags == ["--swap-space", "--max-mm-tokens=5"]
    assert start.marks == {"command"}


def test_there_are_only_so_many_flags():
    text = ", ".join(f"'f{each}': 1" for each in range(900))
    assert len(read(f"{INFO}non-default args: {{{text}}}").start.flags) == 400


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("piece_bytes", [97, 1 << 16])
def test_a_log_reads_the_same_however_its_pieces_are_cut(name, piece_bytes):
    whole = read(file_of(name.removesuffix(".log")))
    assert read(file_of(name.removesuffix(".log")), piece_bytes=piece_bytes) == whole
    assert whole.vllm_lines > 0
