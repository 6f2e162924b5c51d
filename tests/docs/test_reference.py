"""The reference is what the code says, and explains every entry."""

import re

import pytest

from gateway.domain.error_guide import CODES, REASONS
from gateway.domain.errors import Code, GatewayError
from gateway.domain.outcome import Reason
from gateway.settings import Settings
from gateway.settings_sources import load
from scripts.reference.error_examples import EXAMPLES, NEVER_SAID
from scripts.reference.metrics_page import every_label, every_metric
from scripts.reference.pages import PAGES
from scripts.reference.schema import sections_of
from tests.support.live_gateway import live_gateway
from tests.support.markdown import ROOT

FOLDER = ROOT / "docs" / "reference"
SECTIONS = list(sections_of(Settings.model_json_schema()))
FIELDS = [field for section in SECTIONS for field in section.fields]


@pytest.mark.parametrize("name", PAGES)
def test_it_is_as_the_code_has_it(name):
    assert (FOLDER / name).read_text(encoding="utf-8") == PAGES[name](), "run `make docs`"


def test_there_is_no_page_that_nothing_makes():
    assert {path.name for path in FOLDER.iterdir()} == PAGES.keys()


def test_no_cell_of_its_tables_is_empty_but_labels_and_no_text_is_missing():
    for name in PAGES:
        rows = [row for row in (FOLDER / name).read_text().splitlines() if row.startswith("| ")]
        for row in rows:
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]]
            explained = [cells[0], cells[-1]]
            assert all(len(cell.strip("`. ")) > 1 for cell in explained), f"{name}: {row}"


def test_every_setting_and_section_is_explained():
    assert [field.name for field in FIELDS if len(field.help.split()) < 2] == []
    assert [section.names for section in SECTIONS if not section.help] == []


def test_every_setting_of_the_code_is_in_it():
    """Walked by the models themselves, not by their schema."""
    assert {field.name for field in FIELDS} >= set(leaves(Settings()))


def leaves(section, prefix=""):
    for name in type(section).model_fields:
        value = getattr(section, name)
        if hasattr(value, "model_fields_set"):
            yield from leaves(value, f"{prefix}{name}.")
        elif value not in ((), None):
            yield f"{prefix}{name}"


def test_what_it_calls_a_default_is_taken_as_a_value():
    for field in FIELDS:
        if field.default not in {"left out", "required"} and "[]" not in field.name and "pressure" not in field.name:
            value = re.search("`(.*)`", field.default)[1]
            if field.name != "streaming.keep_alive_every_seconds":  # nothing without its companion
                load(flags={field.name: value})


def test_every_metric_and_label_is_explained():
    assert [metric.name for metric in every_metric() if len(metric.help.split()) < 2] == []
    assert [label.name for label in every_label() if not label.help] == []


async def test_every_metric_that_is_shown_is_in_it():
    text = (FOLDER / "metrics.md").read_text()
    async with live_gateway("http://127.0.0.1:9") as gateway:
        page = (await gateway.http.get("/metrics")).text
    shown = {line.split()[2] for line in page.splitlines() if line.startswith("# TYPE gateway_")}
    listed = set(re.findall(r"^\| `(gateway_\w+)`", text, re.MULTILINE))
    assert shown <= listed
    assert listed - shown <= {name for name in listed if "shadow" in name}, "there are no such metrics"


def test_every_code_and_reason_is_explained_and_has_an_example():
    assert CODES.keys() == set(Code)
    assert REASONS.keys() == set(Reason)
    assert all(guide.meaning and guide.menders and guide.remedy for guide in CODES.values())
    assert all(guide.meaning and guide.menders for guide in REASONS.values())
    assert EXAMPLES.keys() == set(Code) - NEVER_SAID


def test_what_is_said_to_be_kept_for_later_is_nowhere_said():
    declared = {"errors.py", "error_guide.py", "outcome.py"}
    sources = "".join(path.read_text() for path in (ROOT / "gateway").rglob("*.py") if path.name not in declared)
    sources += (ROOT / "gateway/domain/errors.py").read_text().partition("class GatewayError(")[2]
    said = {code for code in Code if re.search(rf"\bCode\.{code.name}\b", sources)}
    assert set(Code) - said == NEVER_SAID
    reasons = {GatewayError(code, "").reason for code in said}
    reasons |= {reason for reason in Reason if re.search(rf"\bReason\.{reason.name}\b", sources)}
    kept = {reason for reason, guide in REASONS.items() if guide.meaning.startswith("kept for")}
    assert set(Reason) - reasons == kept
