"""`vllm:cache_config_info` as labels."""

from pathlib import Path

from gateway.wire.vllm_cache_config import read_cache_config

CAPTURED = Path(__file__).resolve().parent.parent / "data" / "vllm_captures" / "metrics_sample.txt"


def test_a_real_server_tells_its_cache_configuration():
    labels = read_cache_config(CAPTURED.read_text())
    assert (labels["num_gpu_blocks"], labels["block_size"], labels["kv_cache_size_tokens"]) == (
        "32768",
        "128",
        "4194304",
    )


def test_of_several_engines_the_first_is_read():
    text = (
        'vllm:cache_config_info{engine="0",block_size="16"} 1\nvllm:cache_config_info{engine="1",block_size="32"} 1\n'
    )
    assert read_cache_config(text) == {"engine": "0", "block_size": "16"}


def test_no_such_metric_no_labels():
    assert read_cache_config("") == {}
    assert read_cache_config("# TYPE vllm:cache_config_info gauge\nother 1\n") == {}
    assert read_cache_config('vllm:cache_config_info{a="' + "x" * 20_000 + '"} 1') == {}
