"""Prompt tokens predicted offline, by our formulas and the model's tokenizer file, are the ones that vLLM counts."""

import pytest

from tests.real.comparison import compare
from tests.real.varied_requests import EXTREME_SIZES, varied_requests
from tests.support.processes import metrics, running_gateway

pytestmark = pytest.mark.real

IMAGE_LIMIT = 4
TOKENIZE_CALLS = 'http_requests_total{handler="/tokenize"'


def settings(server, **more):
    model = {"name": server.model, "family": "qwen2_5_vl", "folder": str(server.folder)}
    return {"models": [model | more.pop("model", {})], "images": {"max_forwarded": IMAGE_LIMIT}, **more}


def tokenize_calls(server) -> float:
    return sum(value for name, value in metrics(server.url).items() if name.startswith(TOKENIZE_CALLS))


@pytest.fixture(scope="module")
def cases():
    return varied_requests()


def test_every_prediction_is_exact(real_vllm, tmp_path, cases, report_line):
    calls_before = tokenize_calls(real_vllm)
    with running_gateway(real_vllm.url, tmp_path, settings(real_vllm)) as gateway:
        comparison = compare(gateway.url, real_vllm.model, cases)
    report_line(str(comparison))
    assert comparison.differences == []
    assert comparison.compared >= 150
    assert tokenize_calls(real_vllm) == calls_before


@pytest.mark.parametrize(
    "caps", [{"max_tokens_per_image": 200}, {"max_tokens_per_request": 600}, {"preset": "ocr", "honour_detail": True}]
)
def test_every_prediction_is_exact_under_caps(real_vllm, tmp_path, cases, caps, report_line):
    with running_gateway(real_vllm.url, tmp_path, settings(real_vllm, resize=caps)) as gateway:
        comparison = compare(gateway.url, real_vllm.model, [case for case in cases if is_capped(case)])
    report_line(f"{comparison} ({caps})")
    assert comparison.differences == []


def is_capped(case) -> bool:
    return case.name.startswith(("size 1", "orientation", "4 images", "detail low"))


def test_a_wrong_unit_is_noticed(real_vllm, tmp_path, cases, report_line):
    """The planted fault: a patch of 16 for 14, so a unit of 32 for 28. All but the odd sizes must differ."""
    wrong = settings(real_vllm, model={"processor": {"patch_size": 16}})
    sizes = [case for case in cases if case.name.startswith("size ")]
    with running_gateway(real_vllm.url, tmp_path, wrong) as gateway:
        comparison = compare(gateway.url, real_vllm.model, sizes)
    report_line(f"{comparison} (planted fault: unit 32 for 28)")
    assert len(comparison.differences) > len(sizes) - len(EXTREME_SIZES)
