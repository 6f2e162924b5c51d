"""Models and cards for tests of memory plans."""

import json

from gateway.cli.plan.cases import read_case
from gateway.domain.memory.gpus import gpu_of, known_total_gib
from gateway.models.known_specs import known_spec
from tests.support.markdown import ROOT

CASES_FILE = ROOT / "tests" / "data" / "memory_cases.json"
QWEN_3B, QWEN_7B, QWEN_32B = (f"Qwen/Qwen2.5-VL-{size}-Instruct" for size in ("3B", "7B", "32B"))
QWEN3_8B = "Qwen/Qwen3-VL-8B-Instruct"
GEMMA_4B = "google/gemma-3-4b-it"
LLAMA_8B = "meta-llama/Llama-3.1-8B-Instruct"


def spec(name):
    return known_spec(name)


def card(name, foreign_gib=0.0):
    return gpu_of(name, known_total_gib(name), foreign_gib)


def raw_cases():
    return json.loads(CASES_FILE.read_text())["cases"]


def observed(case_id):
    """One observed start of the shared file."""
    return read_case(next(case for case in raw_cases() if case["id"] == case_id))
