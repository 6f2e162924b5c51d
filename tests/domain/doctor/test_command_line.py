"""A pasted command."""

import pytest

from gateway.domain.doctor.command_line import Collector, flags_of


def test_flags_and_values_in_all_spellings():
    assert flags_of(
        "$ CUDA_VISIBLE_DEVICES=0 vllm serve Qwen/Qwen2.5-VL-3B-Instruct -tp 2 --max-model-len=8192 --enforce-eager "
        '--gpu_memory_utilization 0.9 --limit-mm-per-prompt \'{"image": 2, "video": 0}\' --seed -1 --api-key'
    ) == {
        "model": "Qwen/Qwen2.5-VL-3B-Instruct",
        "tensor_parallel_size": 2,
        "max_model_len": 8192,
        "enforce_eager": True,
        "gpu_memory_utilization": 0.9,
        "limit_mm_per_prompt": {"image": 2, "video": 0},
        "seed": -1,
        "api_key": True,
    }


def test_dotted_flags_make_a_dictionary():
    found = flags_of("vllm serve --model m --limit-mm-per-prompt.image 1 --limit-mm-per-prompt.video 0 stray")
    assert found == {"model": "m", "limit_mm_per_prompt": {"image": 1, "video": 0}}
    assert flags_of("vllm serve m --a 1 --a.b 2") == {"model": "m", "a": {"b": 2}}


def test_what_follows_the_command_is_not_of_it():
    assert flags_of("vllm serve m --port 80 > log --other") == {"model": "m", "port": 80}
    assert flags_of("--port 80") == {"port": 80}


def test_a_quote_that_is_not_closed_is_cut_at_blanks():
    assert flags_of("vllm serve m --port 80 --limit-mm-per-prompt '{")["port"] == 80


def test_a_command_over_several_lines_is_whole_with_the_last():
    collector = Collector()
    assert collector.take("+ vllm serve m \\") is None
    assert collector.take("   --port 80 \\") is None
    assert collector.take("   --seed 1") == {"model": "m", "port": 80, "seed": 1}
    assert collector.take("   --seed 1") is None


def test_an_older_way_to_start_it():
    found = Collector().take("python3 -m vllm.entrypoints.openai.api_server --model m --swap-space 16")
    assert found == {"model": "m", "swap_space": 16}


def test_a_container_is_read_behind_its_image():
    found = flags_of("docker run -p 8000:8000 --gpus all vllm/vllm-openai:v0.11.0 --model m -tp 2 | tee log")
    assert found == {"model": "m", "tensor_parallel_size": 2}


@pytest.mark.parametrize(
    "text", ["vllm serve: error: x", "usage: vllm serve [model_tag] [options]", "INFO vllm serve m"]
)
def test_what_only_speaks_of_the_command_is_none(text):
    assert Collector().take(text) is None


def test_a_command_without_an_end_is_taken_as_far_as_it_goes():
    collector = Collector()
    assert collector.take("vllm serve m --port 80 " + "x" * 20_000 + " \\") == {"model": "m", "port": 80}


def test_a_container_over_several_lines_with_a_comment_between():
    collector = Collector()
    for line in ("docker run --gpus all \\", "  vllm/vllm-openai:v0.11.0 \\", "  --model m \\", "  # --seed 1 \\"):
        assert collector.take(line) is None
    assert collector.take("  --swap-space 4") == {"model": "m", "swap_space": 4}


def test_a_container_of_something_else_is_no_command():
    collector = Collector()
    assert collector.take("docker run --gpus all nginx --model m") is None
    assert collector.take("vllm serve m") == {"model": "m"}
