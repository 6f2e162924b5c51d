"""`vllm serve` in all its spellings."""

import shlex
from dataclasses import replace

import pytest

from gateway.domain.memory.defaults import AUTO_LENGTH
from gateway.domain.memory.plan import NEWEST, Flags, Version
from gateway.domain.memory.serve_line import (
    PLANNED,
    ServeLineError,
    read_arguments,
    read_command,
    refuse_gone,
    write_command,
)
from gateway.domain.vllm_flags.known_flags import MOVES_MEMORY
from gateway.domain.vllm_flags.real_flags import REAL_FLAGS


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
         {"limit_mm_per_prompt": {"image": 5}, "sized_modalities": ("image",), "profiled_image": (512, 0)}),
        ('--limit-mm-per-prompt {"image":{"width":512}}',
         {"limit_mm_per_prompt": {"image": 999}, "sized_modalities": ("image",), "profiled_image": (512, 0)}),
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
    assert (found.flags.max_num_seqs, found.positions) == (8, ())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("--max-num-seq 8", r"--max-num-seq is not a flag of vLLM; did you mean --max-num-seqs\?"),
        ("--tp 2", r"--tp is not a flag of vLLM; did you mean -tp\?"),
        ("--gpu-mem-util 0.9", r"did you mean --gpu-memory-utilization\?"),
        ("--max-num-sequences 8", r"did you mean --max-num-seqs\?"),
        ("--zzzz", "--zzzz is not a flag of vLLM$"),
        ("--enable-mm-token-trim", "vLLM has never had this flag: no version of vLLM prunes"),
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


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("vllm serve m \u2013\u2013max-num-seqs 8", "typographic dash; write --max-num-seqs"),
        ("vllm serve m --port 8000 \u2014max-num-seqs 8", "typographic dash; write --max-num-seqs"),
        ("vllm serve m other", "--command: other belongs to no flag"),
        ("vllm serve m --max-num-seqs 8 9", "--command: 9 belongs to no flag"),
        ("vllm serve m --enforce-eager 9", "--command: 9 belongs to no flag"),
        ("vllm serve --model m 9 x", "--command: x belongs to no flag"),
    ],
)
def test_no_word_of_a_pasted_line_is_dropped_silently(line, why):
    with pytest.raises(ServeLineError, match=why):
        read_command(line)


def test_the_version_is_that_of_the_image():
    found = read_command("docker run --gpus all -m 8g vllm/vllm-openai:v0.11.0 --model m -tp 2 | tee log --port 1")
    assert (found.model, found.version, found.flags, found.ignored) == (
        "m", "0.11.0", Flags(tensor_parallel_size=2), (),
    )  # fmt: skip


def test_flags_that_move_memory_and_are_not_planned_are_listed_apart():
    found = read_command("vllm serve m --enable-lora --hf-overrides '{}' -O3 -cc.mode=3 --no-enable-eplb --port 1")
    assert found.ignored == ("--port",)
    assert found.unplanned == (
        "--enable-lora", "--hf-overrides", "--optimization-level", "--compilation-config", "--no-enable-eplb",
    )  # fmt: skip
    assert MOVES_MEMORY <= REAL_FLAGS
    assert not MOVES_MEMORY & set(PLANNED)


def test_what_is_gone_is_refused_where_the_version_has_it_no_longer():
    found = read_command("vllm serve m --swap-space 4 --task generate")
    assert (found.gone, found.ignored) == (("swap-space", "task"), ())
    refuse_gone(found, Version(0, 17))
    with pytest.raises(
        ServeLineError, match=r"--swap-space: vLLM 0.18.0 has no such flag: engine V1 never used it.* I"
    ):
        refuse_gone(found, Version(0, 18))
    refuse_gone(read_command("vllm serve m --device cuda"), Version(0, 31))
    with pytest.raises(ServeLineError, match=r"installed build\.$"):
        refuse_gone(read_command("vllm serve m --device cuda"), NEWEST)


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


def test_the_size_of_limited_images_is_read_and_written():
    words = """--limit-mm-per-prompt '{"image": {"count": 2, "width": 512, "height": 256}, "video": 0}'"""
    found = read_command(f"vllm serve m {words}").flags
    assert (found.limit_mm_per_prompt, found.profiled_image) == ({"image": 2, "video": 0}, (512, 256))
    assert read_command(shlex.join(write_command("m", found))).flags == found
    one = read_command("vllm serve m --limit-mm-per-prompt.image.width 512").flags
    assert one.profiled_image == (512, 0)
    assert write_command("m", replace(one, limit_mm_per_prompt={"video": 0}))[-1] == '{"video": 0}'
    with pytest.raises(ServeLineError, match="whole numbers above 0"):
        read_command("vllm serve m --limit-mm-per-prompt.image.width wide")


def test_dotted_keys_of_one_modality_add_up():
    words = "--limit-mm-per-prompt.image.count 2 --limit-mm-per-prompt.image.width 512"
    found = read_command(f"vllm serve m {words} --limit-mm-per-prompt.image.height 256").flags
    assert (found.limit_mm_per_prompt, found.profiled_image) == ({"image": 2}, (512, 256))
    nested = "--mm-processor-kwargs.size.longest_edge 4096 --mm-processor-kwargs.size.shortest_edge 16"
    assert read_command(f"vllm serve m {nested}").flags.mm_processor_kwargs == {
        "size": {"longest_edge": 4096, "shortest_edge": 16}
    }


def test_a_whole_object_takes_the_place_of_an_earlier_one_for_that_modality():
    words = """--limit-mm-per-prompt.image.width 512 --limit-mm-per-prompt '{"image": 3}'"""
    assert read_command(f"vllm serve m {words}").flags.limit_mm_per_prompt == {"image": 3}


def test_neither_words_nor_truths_are_sides_of_an_image():
    with pytest.raises(ServeLineError, match="whole numbers above 0"):
        read_command("vllm serve m --limit-mm-per-prompt.image.width true")


def test_a_pasted_line_may_shorten_names_as_its_parser_lets_it():
    assert read_command("vllm serve m --tensor-parallel 2 --gpu-memory-util 0.8").flags == Flags(
        tensor_parallel_size=2, gpu_memory_utilization=0.8
    )
    with pytest.raises(ServeLineError, match="did you mean --max-num-seqs"):
        read_arguments(["--max-num-seq", "3"])
    with pytest.raises(ServeLineError, match="--max is not a flag"):
        read_command("vllm serve m --max 3")


@pytest.mark.parametrize(
    "words", ["$MODEL", "m --max-model-len ${LEN:-8192}", "m $EXTRA", "m -tp $(nvidia-smi -L)", "m -tp `nproc`"]
)
def test_what_a_shell_would_fill_in_is_asked_for(words):
    with pytest.raises(ServeLineError, match="is for a shell to fill in; write what it stands for"):
        read_command(f"vllm serve {words}")


def test_variables_of_flags_that_no_plan_needs_are_no_matter():
    assert read_command("vllm serve m --port $PORT --api-key ${KEY}").ignored == ("--port", "--api-key")


def test_typographic_quotes():
    with pytest.raises(ServeLineError, match="has typographic quotes"):
        read_command("vllm serve m --limit-mm-per-prompt \N{LEFT SINGLE QUOTATION MARK}{}")
