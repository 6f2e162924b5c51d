"""`vllm serve` in all its spellings."""

import pytest

from gateway.domain.memory.defaults import AUTO_LENGTH
from gateway.domain.memory.plan import Flags
from gateway.domain.memory.serve_line import PLANNED, ServeLineError, read_arguments, read_command, write_command


def flags(text):
    return read_arguments(text.split()).flags


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("--max-num-seqs 64", {"max_num_seqs": 64}),
        ("--max_num_seqs=64", {"max_num_seqs": 64}),
        ("-tp 2 -pp=3 -q awq", {"tensor_parallel_size": 2, "pipeline_parallel_size": 3, "quantization": "awq"}),
        ("--tensor-parallel-size 2", {"tensor_parallel_size": 2}),
        ("--max-model-len 32k", {"max_model_len": 32_000}),
        ("--max-model-len 32K", {"max_model_len": 32_768}),
        ("--max-model-len 25.6k", {"max_model_len": 25_600}),
        ("--max-model-len auto", {"max_model_len": AUTO_LENGTH}),
        ("--max-model-len -1", {"max_model_len": AUTO_LENGTH}),
        ("--max-model-len=-1", {"max_model_len": AUTO_LENGTH}),
        ("--gpu-memory-utilization .9 --dtype half", {"gpu_memory_utilization": 0.9, "dtype": "half"}),
        ("--enforce-eager --max-num-seqs 1", {"enforce_eager": True, "max_num_seqs": 1}),
        ("--enforce-eager --no-enforce-eager", {"enforce_eager": False}),
        ("--skip-mm-profiling --disable-hybrid-kv-cache-manager",
         {"skip_mm_profiling": True, "disable_hybrid_kv_cache_manager": True}),
        ('--limit-mm-per-prompt {"image":2,"video":0}', {"limit_mm_per_prompt": {"image": 2, "video": 0}}),
        ("--limit-mm-per-prompt.video 0 --limit-mm-per-prompt.image=3",
         {"limit_mm_per_prompt": {"video": 0, "image": 3}}),
        ('--limit-mm-per-prompt {"image":{"count":5,"width":512}}',
         {"limit_mm_per_prompt": {"image": 5}, "sized_modalities": ("image",)}),
        ('--limit-mm-per-prompt {"image":{"width":512}}',
         {"limit_mm_per_prompt": {"image": 999}, "sized_modalities": ("image",)}),
        ('--limit-mm-per-prompt {"image":{"count":5}}', {"limit_mm_per_prompt": {"image": 5}}),
        ("--mm-processor-kwargs.max_pixels 1003520", {"mm_processor_kwargs": {"max_pixels": 1_003_520}}),
        ("--mm-processor-kwargs.size.longest_edge 4096", {"mm_processor_kwargs": {"size": {"longest_edge": 4096}}}),
        ("--mm-processor-kwargs.mode fast", {"mm_processor_kwargs": {"mode": "fast"}}),
        ("--language-model-only", {"limit_mm_per_prompt": {"image": 0, "video": 0, "audio": 0}}),
        ("--kv-cache-dtype fp8 --block-size 32 --runner pooling --mm-encoder-tp-mode data",
         {"kv_cache_dtype": "fp8", "block_size": 32, "runner": "pooling", "mm_encoder_tp_mode": "data"}),
        ("--kv-cache-memory-bytes 2G --cpu-offload-gb 4.5", {"kv_cache_memory_bytes": 2 << 30, "cpu_offload_gb": 4.5}),
        ("--speculative-config {}", {"speculative_config": "{}"}),
    ],
)  # fmt: skip
def test_a_spelling_that_vllm_takes(text, told):
    assert flags(text) == Flags(**told)


@pytest.mark.parametrize(
    "line",
    [
        "vllm serve Qwen/Qwen2.5-VL-7B-Instruct --port 8000 -tp 2",
        "CUDA_VISIBLE_DEVICES=0,1 vllm serve Qwen/Qwen2.5-VL-7B-Instruct \\\n  --tensor-parallel-size 2",
        "docker run --gpus all -p 8000:8000 vllm/vllm-openai --model Qwen/Qwen2.5-VL-7B-Instruct -tp 2",
        "python -m vllm.entrypoints.openai.api_server --model=Qwen/Qwen2.5-VL-7B-Instruct --tensor_parallel_size=2",
    ],
)
def test_a_pasted_line(line):
    found = read_command(line)
    assert (found.model, found.flags) == ("Qwen/Qwen2.5-VL-7B-Instruct", Flags(tensor_parallel_size=2))


def test_flags_that_memory_does_not_depend_on_are_listed():
    found = read_command("vllm serve m --port 8000 --enable-prefix-caching --served-model-name a b --max-num-seqs 8")
    assert found.ignored == ("--port", "--enable-prefix-caching", "--served-model-name")
    assert (found.flags.max_num_seqs, found.positions) == (8, ("b",))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("--max-num-seq 8", r"--max-num-seq is not a flag of vLLM; did you mean --max-num-seqs\?"),
        ("--max-num-seqs", "--max-num-seqs needs a value"),
        ("--max-num-seqs many", "--max-num-seqs many: write a whole number, e.g. 8192"),
        ("--max-num-seqs 1.5", "write a whole number"),
        ("--max-num-seqs 1.5K", "write a whole number"),
        ("--max-num-seqs 0", "--max-num-seqs must be above 0"),
        ("--gpu-memory-utilization 90", "--gpu-memory-utilization 90: write a share of the card above 0 and up to 1"),
        ("--gpu-memory-utilization most", "--gpu-memory-utilization most: write a number"),
        ("--limit-mm-per-prompt image=1,video=0", r"""no longer takes this form; write '\{"image": 1, "video": 0\}'"""),
        ("--limit-mm-per-prompt image", "write JSON"),
        ("--limit-mm-per-prompt 3", "write an object"),
        ('--limit-mm-per-prompt {"image":-1}', "image must be a whole number of at least 0, not -1"),
        ("--limit-mm-per-prompt.image true", "image must be a whole number"),
        ('--limit-mm-per-prompt {"images":0}', r"images is no modality; did you mean image\?"),
        ("--limit-mm-per-prompt.smell 0", "smell is no modality; known are image, video, audio"),
        ("--mm-processor-kwargs [1]", "write an object"),
        ("--dtype fp17", "--dtype fp17: write one of auto, half"),
        ("--kv-cache-dtype int4", "--kv-cache-dtype int4: write one of auto"),
        ("--runner foo", "--runner foo: write one of auto, generate, pooling"),
        ("--mm-encoder-tp-mode foo", "--mm-encoder-tp-mode foo: write one of weights, data"),
        ("--block-size 7", "--block-size 7: write one of 1, 8, 16"),
        ("--cpu-offload-gb -5", "--cpu-offload-gb -5: write GiB, 0 or more"),
        ("--cpu-offload-gb nan", "--cpu-offload-gb nan: write GiB, 0 or more"),
        (f"--max-model-len {'9' * 400}", "--max-model-len: 400 digits are more than any plan has"),
    ],
)
def test_what_vllm_would_not_take(text, why):
    with pytest.raises(ServeLineError, match=why):
        flags(text)


def test_a_line_whose_quotes_do_not_close():
    with pytest.raises(ServeLineError, match="--command: No closing quotation"):
        read_command("vllm serve 'm")


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        (Flags(), []),
        (Flags(max_model_len=AUTO_LENGTH), ["--max-model-len", "auto"]),
        (Flags(gpu_memory_utilization=0.9, enforce_eager=True), ["--enforce-eager", "--gpu-memory-utilization", "0.9"]),
        (Flags(limit_mm_per_prompt={"video": 0}), ["--limit-mm-per-prompt", '{"video": 0}']),
    ],
)
def test_flags_are_written_as_they_are_read(chosen, words):
    written = write_command("m", chosen)
    assert written == ["vllm", "serve", "m", *words]
    assert read_arguments(written[1:]).flags == chosen


def test_everything_that_is_read_has_a_name_to_show():
    assert "language-model-only" in PLANNED
    assert "no-enforce-eager" not in PLANNED
