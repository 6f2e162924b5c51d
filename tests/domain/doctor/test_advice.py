"""Causes and cures that are calculated from the log."""

import pytest

from gateway.domain.doctor.signs import Kind
from tests.support.vllm_logs import diagnosed, error

INFO = "(EngineCore pid=7) INFO 11-30 10:00:00 [x.py:1] "
LOADED = INFO + "Model loading took 7.15 GiB memory and 2.0 seconds\n"
POOL = INFO + "Available KV cache memory: 9.0 GiB\n" + INFO + "GPU KV cache size: 250,000 tokens\n"
CAPTURED = INFO + "Graph capturing finished in 20 secs, took 0.40 GiB\n"
SERVING = "INFO:     Application startup complete.\n"
BUDGET = (
    INFO + "the current vLLM instance can use total_gpu_memory (20.00GiB) x gpu_memory_utilization (0.90) = 18.00GiB\n"
)
OUT = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.74 GiB. GPU 0 has a total capacity of 20.00 "
    "GiB of "
    "which 606.00 MiB is free. Including non-PyTorch memory, this process has {} GiB memory in use."
)


def out(in_use="19.30"):
    return error(OUT.format(in_use))


def frame(name):
    return error(f'  File "/x/vllm/v1/worker/gpu_model_runner.py", line 10, in {name}')


def advice(log):
    return diagnosed(log).findings[0].advice


@pytest.mark.parametrize(
    ("log", "title"),
    [
        (out(), "Out of memory while the weights were loaded"),
        (frame("load_model") + out(), "Out of memory while the weights were loaded"),
        (LOADED + out(), "Out of memory in the profile run"),
        (frame("profile_run") + out(), "Out of memory in the profile run"),
        (LOADED + INFO + "Available KV cache memory: 9.0 GiB\n" + out(), ("Out of memory while CUDA graphs were "
        "captured")),
        (POOL + frame("capture_model") + out(), "Out of memory while CUDA graphs were captured"),
        (LOADED + frame("profile_cudagraph_memory") + out(), "Out of memory while CUDA graphs were captured"),
        (POOL + CAPTURED + out(), "Out of memory while the sampler was warmed up"),
        (POOL + frame("_dummy_sampler_run") + out(), "Out of memory while the sampler was warmed up"),
        (SERVING + frame("execute_model") + out(), "Out of memory while it served"),
    ],
)  # fmt: skip
def test_where_memory_ran_out_is_told_by_the_traceback_or_else_by_what_came_before(log, title):
    assert advice(log).title == title


def test_the_sampler_gets_as_many_rows_as_would_have_fitted():
    """vllm#15105: 1.74 GiB for 1,024 rows, 606 MiB free; 256 rows are known to work."""
    warming = error(
        "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests. Please"
    )
    found = advice(BUDGET + POOL + CAPTURED + frame("_dummy_sampler_run") + out() + warming)
    assert found.flags == ("--max-num-seqs 256", "--gpu-memory-utilization 0.81")
    assert "1.74 GiB were asked for, 0.59 of 20.00 GiB were free." in found.cause


def test_the_sampler_in_the_profile_run_is_not_helped_by_a_lower_utilisation():
    log = BUDGET + LOADED + frame("profile_run") + frame("_dummy_sampler_run") + out()
    found = advice(log)
    assert found.flags == ("--max-num-seqs 64",)
    assert "the profile run" in found.cause


def test_without_numbers_half_of_the_rows_are_tried():
    warming = "RuntimeError: CUDA out of memory occurred when warming up sampler with {} dummy requests. Please try"
    assert advice(error(warming.format(1024))).flags == ("--max-num-seqs 512",)
    assert advice(error(warming.format(1))).flags == ("--max-num-seqs 1",)
    given = INFO + "non-default args: {'max_num_seqs': 2}\n"
    assert advice(given + error(warming.format(256))).flags == ()


@pytest.mark.parametrize(
    ("version", "graphs", "is_told"), [("0.8.3", "2.65", True), ("0.8.3", "0.40", False), ("0.32.0", "2.65", False)]
)
def test_graphs_outside_of_the_budget_are_named_where_they_take_what_the_sampler_needs(version, graphs, is_told):
    log = (
        INFO + f"vLLM server version {version}, serving model m\n" + BUDGET + POOL
        + INFO + f"Graph capturing finished in 20 secs, took {graphs} GiB\n" + out()
    )  # fmt: skip
    assert ("--enforce-eager" in advice(log).flags) == is_told
    assert ("outside of the budget" in advice(log).cause) == is_told


def test_memory_of_other_processes_is_named():
    """vllm#19964."""
    assert "Another process holds 7.11 GiB" in advice(SERVING + out("12.30")).cause
    assert "Another process" not in advice(SERVING + out()).cause


def test_serving_is_helped_by_what_was_not_profiled():
    skipped = INFO + "non-default args: {'skip_mm_profiling': True, 'gpu_memory_utilization': 0.98}\n"
    found = advice(skipped + SERVING + frame("embed_multimodal") + out())
    assert found.cures[0].startswith("Take out --skip-mm-profiling")
    assert found.flags == ("--gpu-memory-utilization 0.89", "--mm-processor-kwargs '{\"max_pixels\": 1003520}'")
    assert advice(SERVING + error("RuntimeError: CUDA error: out of memory")).flags == (
        "--gpu-memory-utilization 0.85",
    )


def test_no_total_no_lower_utilisation():
    given = INFO + "non-default args: {'gpu_memory_utilization': 0.9}\n"
    short = error("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")
    found = advice(given + SERVING + short)
    assert found.flags == ("--gpu-memory-utilization 0.85",)
    assert "2.00 GiB were asked for." in found.cause


def test_a_utilisation_that_would_be_nothing_is_not_told():
    given = INFO + "non-default args: {'gpu_memory_utilization': 0.05}\n"
    assert advice(given + SERVING + out()).flags == ("--gpu-memory-utilization 0.85",)


def test_a_pool_that_is_short_by_little_is_helped_by_a_higher_utilisation():
    short = (
        INFO + "Available KV cache memory: -0.30 GiB\n" + error("ValueError: No available memory for the cache blocks.")
    )
    found = advice(BUDGET + INFO + "non-default args: {'max_num_seqs': 8}\n" + short)
    assert found.flags == ("--gpu-memory-utilization 0.94",)
    assert "The budget is 18.00 GiB." in found.cause


def test_a_pool_that_is_short_by_much_is_not():
    short = (
        INFO
        + "Available KV cache memory: -14.28 GiB\n"
        + error("ValueError: No available memory for the cache blocks.")
    )
    assert "not enough" in advice(BUDGET + short).cures[-1]
    assert "not enough" not in advice(short).cures[-1]
    alone = advice(error("ValueError: No available memory for the cache blocks."))
    assert alone.flags == ("--max-num-seqs 64",)


def test_the_total_follows_from_budget_and_utilisation():
    budget = INFO + "Desired GPU memory utilization is (0.5, 10.0 GiB).\n"
    short = error(
        "ValueError: To serve at least one request with the model's max seq len (8192), (2.00 GiB KV cache is "
        "needed, which "
        "is larger than the available KV cache memory (1.00 GiB). Try"
    )
    assert advice(budget + short).flags == ("--gpu-memory-utilization 0.55",)
    assert advice(short).flags == ()


def test_a_context_is_cut_to_what_fits_and_the_largest_item_made_smaller():
    profiled = (
        INFO + "Encoder cache will be initialized with a budget of 114688 tokens, and profiled with 1 video items of\n"
    )
    short = error(
        "ValueError: To serve at least one request with the model's max seq len (131072), (18.00 GiB KV cache is "
        "needed, "
        "which is larger than the available KV cache memory (3.02 GiB). Based on the available memory, the estimated "
        "maximum model length is 21990. Try"
    )
    assert advice(profiled + short).flags == ("--max-model-len 21984", "--limit-mm-per-prompt '{\"video\": 0}'")
    assert advice(error("ValueError: Cannot auto-fit max_model_len: not enough")).flags == ()


def test_a_profile_run_says_what_it_profiled():
    profiled = (
        INFO + "Encoder cache will be initialized with a budget of 16384 tokens, and profiled with 1 image items of\n"
    )
    found = advice(LOADED + profiled + frame("embed_multimodal") + error("CUDA error: out of memory"))
    assert "It took 1 image(s), 16,384 tokens in all." in found.cause
    assert "the vision tower" in found.cause
    rocm = "INFO 11-30 10:00:00 [__init__.py:2] Automatically detected platform rocm.\n"
    assert any("flash kernel" in cure for cure in advice(rocm + LOADED + frame("embed_multimodal") + out()).cures)


def test_twice_as_many_cards_for_weights_that_do_not_fit():
    given = INFO + "non-default args: {'tensor_parallel_size': 4}\n"
    assert advice(given + error("Failed to load model - not enough GPU memory.")).flags == ("--tensor-parallel-size 8",)


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        (("Free memory on device cuda:0 (19.77/22.05 GiB) on startup is less than desired GPU memory utilization (0.9, "
         "19.84 GiB). Decrease"), ("--gpu-memory-utilization 0.88",)),
        (("Free memory on device (0.10/22.05 GiB) on startup is less than desired GPU memory utilization (0.9, "
        "19.84 GiB)."), ()),
        ("Free memory on device (1.0/0 GiB) on startup is less than desired GPU memory utilization (0.9, 0 GiB).", ()),
        (("Free memory on device (1.,2.3/22 GiB) on startup is less than desired GPU memory utilization (0.9, 9 "
        "GiB)."), ()),
        ("vllm serve: error: argument --limit-mm-per-prompt: Value image=4,audio=1 cannot be converted to <function",
         ("--limit-mm-per-prompt '{\"image\": 4, \"audio\": 1}'",)),
        ('vllm serve: error: argument --limit-mm-per-prompt: Value {\\"image\\":1} cannot be converted to <function',
         ("--limit-mm-per-prompt '{\"image\":1}'",)),
        ("vllm serve: error: argument --limit-mm-per-prompt: Value 5 cannot be converted to <function",
         ("--limit-mm-per-prompt '{\"image\": 1, \"video\": 0}'",)),
        ("vllm serve: error: argument --limit-mm-per-prompt: invalid parse_type value: ''",
         ("--limit-mm-per-prompt '{\"image\": 1, \"video\": 0}'",)),
        ("attention heads (64) must be divisible by tensor parallel size (6).", ("--tensor-parallel-size 4",)),
        ("must be divisible by tensor parallel size", None),
        ("attention heads (0) must be divisible by tensor parallel size (6).", ()),
        ("World size (4) is larger than the number of available GPUs (2) in this node.", ("--tensor-parallel-size 2",)),
        ("World size (4) is larger than the number of available GPUs (0) in this node.", ()),
        ("The number of required GPUs exceeds the total number of available GPUs in the placement group.", ()),
        ("max_model_len (9999) is greater than the derived max_model_len (max_position_embeddings=4096 or",
         ("--max-model-len 4096",)),
        ("max_model_len (9999) is greater than the derived max_model_len (max_position_embeddings=4.0.6 or", ()),
        ("Chunked MM input disabled but max_tokens_per_mm_item (16384) is larger than max_num_batched_tokens (2048).",
         ("--max-num-batched-tokens 16384",)),
        ("Chunked MM input disabled but max_tokens_per_mm_item (114688) is larger than max_num_batched_tokens (512).",
         ("--limit-mm-per-prompt '{\"video\": 0}'", "--max-num-batched-tokens 114688")),
        ("item with 2816 embedding tokens, which exceeds the pre-allocated encoder cache size 2048", None),
        (("contains a(n) image item with 2816 embedding tokens, which exceeds the pre-allocated encoder cache size "
        "2048."),
         ("--max-num-batched-tokens 3072",)),
        ("At most 1 video(s) may be provided in one prompt.", ("--limit-mm-per-prompt '{\"video\": 16}'",)),
        ("This model's maximum context length is 32,768 tokens. However, your prompt", ()),
        ("Input length (49214) exceeds model's maximum context length (32768).", ()),
    ],
)  # fmt: skip
def test_what_to_try_next(text, flags):
    found = diagnosed(error(text)).findings
    if flags is None:
        assert [each.kind for each in found if each.kind not in {Kind.ENGINE_DIED, Kind.UNRECOGNISED}] == []
    else:
        assert found[0].advice.flags == flags


def test_the_encoder_cache_is_as_large_as_a_batch():
    batch = INFO + "Chunked prefill is enabled with max_num_batched_tokens=2048.\n"
    text = "contains a(n) image item with 9 embedding tokens, which exceeds the pre-allocated encoder cache size 8."
    assert "that of a batch (2,048)" in advice(batch + error(text)).cause
    assert advice(error(text)).flags == ("--max-num-batched-tokens 1024",)
