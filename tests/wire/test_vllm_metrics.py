import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.vllm_metrics import EngineReport, parse_metrics

SAMPLE = (Path(__file__).parents[1] / "data/wire/metrics_0_32.txt").read_text()


def test_the_text_of_vllm_0_32():
    assert parse_metrics(SAMPLE) == EngineReport(
        running=0,
        waiting=0,
        kv_usage=0.0,
        preemptions=0,
        num_gpu_blocks=32768,
        smallest_engine_blocks=32768,
        block_size=128,
        longest_request_blocks=256,
        enable_prefix_caching=True,
        engines=1,
        generated_tokens=32,
        steps=32,
        started_at=1_796_004_166,
        rejections=0,
    )


def test_old_names():
    report = parse_metrics(
        'vllm:num_requests_running{model_name="m"} 3\n'
        'vllm:num_requests_waiting{model_name="m"} 2.0\n'
        'vllm:gpu_cache_usage_perc{model_name="m"} 0.25\n'
        'vllm:num_preemptions{model_name="m"} 7.0\n'
        'vllm:cache_config_info{block_size="16",enable_prefix_caching="False",num_gpu_blocks="100"} 1.0\n'
    )
    assert report == EngineReport(3, 2, 0.25, 7, 100, 100, 16, enable_prefix_caching=False, engines=1)


def engines(*usages_and_blocks):
    lines = []
    for engine, (usage, blocks) in enumerate(usages_and_blocks):
        lines += [
            f'vllm:num_requests_running{{engine="{engine}"}} {engine + 1}',
            f'vllm:num_requests_waiting{{engine="{engine}"}} 1',
            f'vllm:kv_cache_usage_perc{{engine="{engine}"}} {usage}',
            f'vllm:num_preemptions_total{{engine="{engine}"}} 5',
            (
                f'vllm:cache_config_info{{engine="{engine}",num_gpu_blocks="{blocks}",block_size="16",'
                f'enable_prefix_caching="True"}} 1'
            ),
        ]
    return parse_metrics("\n".join(lines))


def test_several_engines_are_one_pool():
    report = engines((0.5, 300), (0.1, 100))
    assert (report.running, report.waiting, report.preemptions, report.engines) == (3, 2, 10, 2)
    assert (report.num_gpu_blocks, report.block_size) == (400, 16)
    assert report.kv_usage == pytest.approx(0.4)
    assert report.smallest_engine_blocks == 100


def test_usage_is_a_plain_mean_where_a_size_is_unknown():
    report = engines((0.5, 300), (0.1, "None"))
    assert report.kv_usage == pytest.approx(0.3)
    assert report.num_gpu_blocks == 300


@pytest.mark.parametrize("text", ["", "# nothing\n", "vllm:num_requests_waiting_by_reason 5\nother 1\n"])
def test_what_is_not_reported_is_unknown(text):
    assert parse_metrics(text) == EngineReport()


def test_settings_that_vllm_does_not_know():
    report = parse_metrics('vllm:cache_config_info{num_gpu_blocks="None",enable_prefix_caching="None"} 1\n')
    assert report == EngineReport()


def test_the_one_null_block_of_a_model_without_cache_is_no_pool():
    report = parse_metrics('vllm:cache_config_info{num_gpu_blocks="1",block_size="16"} 1\n')
    assert (report.num_gpu_blocks, report.smallest_engine_blocks) == (None, None)


@pytest.mark.parametrize(
    ("concurrency", "longest"),
    [
        ("1.391304347826087", 1150),
        ("3.0", 533),
        ("None", None),
        ("0", None),
        ("nan", None),
        ("inf", None),
        ("1e9", None),
        ("1e-300", None),
        ("1e-310", None),
    ],
)
def test_how_often_the_context_fits_says_what_one_request_of_it_needs(concurrency, longest):
    labels = f'num_gpu_blocks="1600",kv_cache_max_concurrency="{concurrency}"'
    assert parse_metrics(f"vllm:cache_config_info{{{labels}}} 1\n").longest_request_blocks == longest


@pytest.mark.parametrize("number", ["NaN", "+Inf", "-Inf", "-1", "1e300", "9" * 400, "9" * 5000])
def test_what_can_be_no_count_is_unknown(number):
    report = parse_metrics(
        f"vllm:num_requests_running {number}\n"
        "vllm:num_requests_waiting 2\n"
        f"vllm:num_preemptions_total {number}\n"
        f'vllm:cache_config_info{{num_gpu_blocks="{number}",block_size="{number}"}} 1\n'
    )
    assert report == EngineReport(waiting=2, engines=1)


@pytest.mark.parametrize(("usage", "read"), [("NaN", None), ("-0.5", None), ("+Inf", 1.0), ("1.5", 1.0), ("0", 0.0)])
def test_a_usage_is_a_share(usage, read):
    assert parse_metrics(f"vllm:kv_cache_usage_perc {usage}\n").kv_usage == read


def test_a_name_with_a_line_separator_does_not_break_a_line():
    assert parse_metrics('vllm:num_requests_running{model_name="a\u2028b\x0bc"} 3\n').running == 3


@pytest.mark.parametrize(
    "text",
    [
        "vllm:num_requests_running 1\n" * 5000,
        'vllm:num_requests_running{a="%s"} 1\n' % ("x" * 20_000),
        "vllm:num_requests_running many\n",
        'vllm:num_requests_running{a="\n',
        "vllm:num_requests_running\n",
    ],
)
def test_what_cannot_be_read_is_said(text):
    with pytest.raises(ValueError):
        parse_metrics(text)


@given(st.text(max_size=60), st.text(max_size=60))
def test_no_text_is_a_fault(labels, value):
    with contextlib.suppress(ValueError):
        parse_metrics(f"vllm:num_requests_running{{{labels}}} {value}\n")
