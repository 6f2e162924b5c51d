"""What the pages name is there: settings, metrics, headers, make targets, files, commands."""

import re

import pytest

from gateway.domain.outcome import Outcome
from gateway.settings import Settings
from gateway.wire.headers import HEADERS
from scripts.reference.metrics_page import every_metric
from scripts.reference.schema import sections_of
from tests.support.markdown import ROOT, pages
from tests.support.transcript import understood

PAGES = pages("*.md", "docs/**/*.md")
SECTIONS = list(sections_of(Settings.model_json_schema()))
SETTINGS = {field.name.replace("[]", "") for section in SECTIONS for field in section.fields} | {
    name.replace("[]", "") for section in SECTIONS for name in section.names
}
TOP = {name.partition(".")[0] for name in SETTINGS} - {""}
METRICS = {metric.full_name for metric in every_metric()}
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
OF_ROUTERS = {"x-gateway-inference-fairness-id", "x-gateway-inference-objective"}  # Gateway API inference extension
FOLDERS = "gateway|tests|scripts|docs|deploy|benchmarks|requirements"


def by_page(page):
    return page.name


@pytest.mark.parametrize("page", PAGES, ids=by_page)
def test_the_metrics(page):
    named = {re.sub("_(bucket|sum|count)$", "", name) for name in re.findall(r"\bgateway_[a-z_]+[a-z]", page.text)}
    assert named - METRICS - {"gateway_shadow", *Outcome} == set()


@pytest.mark.parametrize("page", PAGES, ids=by_page)
def test_the_headers(page):
    named = set(re.findall(r"\bx-(?:gateway|should|request)-[a-z-]*[a-z]", page.text))
    assert named - {header.name for header in HEADERS} - OF_ROUTERS == set()


@pytest.mark.parametrize("page", PAGES, ids=by_page)
def test_the_settings(page):
    dotted = (re.fullmatch(r"([a-z_]+(?:\[\])?(?:\.[a-z_]+(?:\[\])?)+)(?:[:=].*)?", code) for code in page.codes)
    named = {found[1].replace("[]", "") for found in dotted if found}
    assert {name for name in named if name.partition(".")[0] in TOP} - SETTINGS == set()


@pytest.mark.parametrize("page", PAGES, ids=by_page)
def test_the_make_targets_commands_and_files(page):
    for code in page.codes:
        if found := re.fullmatch(r"make ([a-z-]+)( .*)?", code):
            assert found[1] in TARGETS, code
        if code.startswith("vlm-gateway ") and "COMMAND" not in code:
            understood(code)
        if re.fullmatch(rf"(?:{FOLDERS})/[\w./-]+", code) and "NAME" not in code:
            assert (ROOT / code).exists(), code


def test_a_wrong_name_would_be_found():
    assert "queue.requests" in SETTINGS > {"tenants.slo.total_seconds", "images.remote.policy"}
    assert "queue.request" not in SETTINGS
    assert "gateway_queue_depth" in METRICS
    assert {"docs", "dist", "sbom"} <= TARGETS
