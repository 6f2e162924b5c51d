"""/metrics against a captured page: names, types, labels, buckets, and values that move."""

import json
import re
from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families

from gateway.emulator.config import EmulatorConfig
from gateway.emulator.serve import running_emulator

CAPTURES = Path(__file__).parents[1] / "data" / "vllm_captures"
SERIES = re.compile(r"^([^{ ]+)(?:\{(.*)\})? ", re.MULTILINE)
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def series(page: str) -> dict[str, list[tuple[tuple[str, str], ...]]]:
    """Label sets of each vllm series, in order."""
    found: dict[str, list[tuple[tuple[str, str], ...]]] = {}
    for name, labels in SERIES.findall(page):
        if name.startswith("vllm:") and name != "vllm:cache_config_info":
            found.setdefault(name, []).append(tuple(LABEL.findall(labels or "")))
    return found


def page_of(client: httpx.Client) -> str:
    return client.get("/metrics").text


def test_every_vllm_series_has_the_captured_labels_and_buckets(client: httpx.Client) -> None:
    captured = series((CAPTURES / "metrics_sample.txt").read_text())
    ours = series(page_of(client))

    assert ours.keys() == captured.keys()
    for name, label_sets in captured.items():
        assert {frozenset(labels) for labels in ours[name]} == {frozenset(labels) for labels in label_sets}, name


def test_every_vllm_metric_has_the_captured_type_and_a_help_line(client: httpx.Client) -> None:
    captured = json.loads((CAPTURES / "metric_names.json").read_text())
    page = page_of(client)

    types = dict(re.findall(r"^# TYPE (\S+) (\w+)$", page, re.MULTILINE))
    for name, metric in captured.items():
        if name.startswith("vllm:"):
            assert types[name] == metric["type"], name
            assert f"# HELP {name} " in page
    assert {name for name in types if name.startswith("vllm:")} == {
        name for name in captured if name.startswith("vllm:")
    }


def test_the_cache_configuration_is_told_in_labels(client: httpx.Client) -> None:
    sample = (CAPTURES / "metrics_sample.txt").read_text()
    captured = re.search(r"^vllm:cache_config_info\{(.*)\}", sample, re.MULTILINE)
    ours = re.search(r"^vllm:cache_config_info\{(.*)\} 1.0$", page_of(client), re.MULTILINE)

    assert captured
    assert ours
    told, expected = dict(LABEL.findall(ours[1])), dict(LABEL.findall(captured[1]))
    assert list(told) == list(expected)
    del told["kv_cache_memory_bytes"], expected["kv_cache_memory_bytes"]
    assert told == expected


def test_the_page_is_what_prometheus_reads(client: httpx.Client) -> None:
    families = {family.name: family for family in text_string_to_metric_families(page_of(client))}

    assert families["vllm:prompt_tokens"].type == "counter"
    assert families["vllm:e2e_request_latency_seconds"].type == "histogram"


def value(page: str, name: str, **labels: str) -> float:
    inner = ",".join(f'{key}="{labels[key]}"' for key in sorted(labels))
    match = re.search(rf"^{re.escape(name)}\{{{re.escape(inner)}\}} (\S+)$", page, re.MULTILINE)
    assert match, f"{name} {inner}"
    return float(match[1])


def test_what_was_served_is_counted() -> None:
    common = {"engine": "0", "model_name": 'a "b"'}
    with running_emulator(EmulatorConfig.fast(model='a "b"')) as server, httpx.Client(base_url=server.base_url) as http:
        request = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
        for _ in range(2):
            http.post("/v1/chat/completions", json=request)
        http.get("/nowhere")
        page = page_of(http).replace("\\", "")
        statistics = server.statistics()

    assert value(page, "vllm:prompt_tokens_total", **common) == 114
    assert value(page, "vllm:generation_tokens_total", **common) == 8
    assert value(page, "vllm:request_success_total", **common, finished_reason="length") == 2
    assert value(page, "vllm:prompt_tokens_by_source_total", **common, source="local_cache_hit") == 48
    assert value(page, "vllm:time_to_first_token_seconds_count", **common) == 2
    assert value(page, "vllm:inter_token_latency_seconds_count", **common) == 6
    assert value(page, "vllm:request_prompt_tokens_bucket", **common, le="50.0") == 0
    assert value(page, "vllm:request_prompt_tokens_bucket", **common, le="100.0") == 2
    assert value(page, "vllm:request_prompt_tokens_sum", **common) == 114
    assert value(page, "vllm:num_requests_running", **common) == 0
    assert value(page, "http_requests_total", handler="none", method="GET", status="4xx") == 1
    assert (statistics.finished, statistics.prompt_tokens, statistics.generation_tokens) == (2, 114, 8)
