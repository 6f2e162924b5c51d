"""What `vllm:cache_config_info` says: vLLM's cache configuration as labels, read once by `doctor` and `check`.

The poller reads every second, and only what admission needs: wire/vllm_metrics.py.
"""

from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families

_NAME = "vllm:cache_config_info"
_LONGEST_LINE = 16_384


def read_cache_config(metrics: str) -> Mapping[str, str]:
    """The labels of the first engine; none where the server has no such metric. ValueError for what is no metric."""
    line = next((line for line in metrics.split("\n") if line.startswith(_NAME + "{")), None)
    if line is None or len(line) > _LONGEST_LINE:
        return {}
    samples = [sample for family in text_string_to_metric_families(line + "\n") for sample in family.samples]
    return dict(samples[0].labels)
