"""Alerts and recording rules: what each says, that the runbook knows it, and by promtool when it fires and when not."""

import re

import pytest
import yaml

from gateway.domain.outcome import Reason
from gateway.settings import Settings
from scripts.dashboards.rejections import FOR_WANT_OF_ROOM
from scripts.dashboards.runbook import sections_of
from tests.support.dashboards import PROJECT, dashboards
from tests.support.prometheus import promtool
from tests.support.promql import TARGET_LABELS, complaints, labels_of

RULES = PROJECT / "deploy" / "prometheus" / "rules"
CASES = sorted((PROJECT / "tests" / "deploy" / "rules").glob("*.yaml"))
RUNBOOK = PROJECT / "docs" / "runbook.md"
# What is wrong with the request itself, or nothing at all: nobody has to get up for it.
OF_THE_CLIENT = {
    *("never_fits_context", "never_fits_kv", "never_fits_encoder", "never_fits_sequences", "too_many_images"),
    "media_not_allowed",
    *("bad_image", "bad_request", "unauthorised", "closed_route", "body_too_large", "request_timeout", "not_found"),
    *("tenant_quota", "tenant_concurrency"),  # more room would not help: the tenant may not have it
    "draining",
}


def rules(file):
    (group,) = yaml.safe_load((RULES / file).read_text())["groups"]
    return group["rules"]


ALERTS = {rule["alert"]: rule for rule in rules("alerts.yaml")}
RECORDED = {rule["record"]: rule for rule in rules("recording.yaml")}
SECTIONS = dict(sections_of(RUNBOOK.read_text()))

every_alert = pytest.mark.parametrize("name", ALERTS)


def anchor(heading):
    """As code hosts make it of a heading."""
    return re.sub(r"[^a-z0-9 _-]", "", heading.lower()).replace(" ", "-")


class TestAlerts:
    def test_those_that_operators_asked_for_are_there(self):
        assert {
            "VlmGatewayRejectRatioHigh",
            "VlmGatewayQueueWaitHigh",
            "VlmGatewayEstimateDrift",
            "VlmGatewayImageTokenDrift",
            "VlmGatewayCalibrationDisagrees",
            "VlmGatewayUpstreamDown",
            "VlmGatewayBudgetExhausted",
            "VlmGatewayPreemptions",
            "VlmGatewayImageWorkersLost",
        } <= set(ALERTS)

    @every_alert
    def test_says_how_bad_it_is_and_where_help_is(self, name):
        rule = ALERTS[name]
        assert rule["labels"].keys() == {"severity"}
        assert rule["labels"]["severity"] in {"critical", "warning"}
        assert rule["annotations"].keys() == {"summary", "description", "runbook"}
        assert all(rule["annotations"][kind].endswith(".") for kind in ("summary", "description"))
        file, _, place = rule["annotations"]["runbook"].partition("#")
        assert file == "docs/runbook.md"
        assert place == anchor(name)
        assert place in {anchor(heading) for heading in SECTIONS}

    @every_alert
    def test_its_sentence_names_labels_that_are_left(self, name):
        rule = ALERTS[name]
        named = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["description"]))
        recorded = "_".join(re.findall(r"([a-z_]+):gateway", rule["expr"])).split("_")
        assert named <= labels_of(rule["expr"]) | set(recorded)

    @every_alert
    def test_asks_only_for_what_there_is(self, name):
        assert complaints(ALERTS[name]["expr"], RECORDED) == []


class TestRecordingRules:
    @pytest.mark.parametrize("name", RECORDED)
    def test_asks_only_for_what_there_is(self, name):
        assert complaints(RECORDED[name]["expr"], RECORDED) == []

    @pytest.mark.parametrize("name", RECORDED)
    def test_its_name_says_which_labels_it_has(self, name):
        level, metric, operation = name.split(":")
        assert metric.startswith("gateway_")
        assert operation
        assert set(level.split("_")) <= {*TARGET_LABELS, "model", "upstream", "resource"}

    def test_each_is_used_by_an_alert_or_another(self):
        expressions = " ".join(rule["expr"] for rule in (*ALERTS.values(), *RECORDED.values()))
        assert [name for name in RECORDED if name not in expressions] == []

    def test_refusals_for_want_of_room_are_those_of_no_client_at_fault(self):
        """Each reason is of one kind or the other, here, in the rule and on the dashboard."""
        expr = RECORDED["namespace_job:gateway_rejections_for_want_of_room:rate5m"]["expr"]
        in_the_rule = set(re.search(r'reason=~"([^"]+)"', expr)[1].split("|"))
        assert in_the_rule == set(FOR_WANT_OF_ROOM)
        assert in_the_rule | OF_THE_CLIENT == set(Reason)
        assert in_the_rule & OF_THE_CLIENT == set()


class TestTheRunbook:
    @every_alert
    def test_each_alert_has_its_section(self, name):
        text = SECTIONS[name]
        assert re.findall(r"^\*\*(\w+):\*\*", text, re.MULTILINE) == ["Means", "Confirm", "Do", "Settings"]

    def test_it_has_no_section_of_an_alert_that_is_no_more(self):
        assert [heading for heading in SECTIONS if heading.startswith("VlmGateway") and heading not in ALERTS] == []

    def test_settings_that_it_names_exist(self):
        named = set(re.findall(r"`((?:[a-z_]+(?:\[\])?\.)+[a-z_]+)(?::[^`]*)?`", RUNBOOK.read_text()))
        assert named
        assert [name for name in sorted(named) if not is_setting(name)] == []

    def test_every_reason_of_a_refusal_is_explained(self):
        rows = re.findall(r"^\| `(\w+)` \|", SECTIONS["Reasons of refusals"], re.MULTILINE)
        assert rows == [str(reason) for reason in Reason]

    def test_panels_that_it_names_exist(self):
        shown = [each for name, each in dashboards().items() if name != "runbook"]
        titles = {panel["title"] for each in shown for panel in each["panels"]}
        named = set(re.findall(r"(?<!\*)\*([A-Z][^*]+)\*(?!\*)", RUNBOOK.read_text()))
        assert {" ".join(name.split()) for name in named} <= titles | {*SECTIONS, *(d["title"] for d in shown)}


class TestCases:
    @every_alert
    def test_there_is_one_where_it_fires_and_one_where_it_does_not(self, name):
        cases = [case for file in CASES for test in cases_of(file) for case in test.get("alert_rule_test", ())]
        fires = {bool(case["exp_alerts"]) for case in cases if case["alertname"] == name}
        assert fires == {True, False}

    def test_every_recording_rule_has_one(self):
        asked = {case["expr"] for file in CASES for test in cases_of(file) for case in test.get("promql_expr_test", ())}
        assert [name for name in RECORDED if not any(expr.startswith(name) for expr in asked)] == []

    @pytest.mark.system("prometheus")
    def test_promtool_finds_nothing_to_complain_of(self):
        done = promtool("check", "rules", *map(str, sorted(RULES.glob("*.yaml"))))
        assert done.returncode == 0, done.stdout + done.stderr

    @pytest.mark.system("prometheus")
    @pytest.mark.parametrize("file", CASES, ids=lambda file: file.stem)
    def test_promtool_agrees(self, file):
        done = promtool("test", "rules", str(file))
        assert done.returncode == 0, done.stdout + done.stderr


def cases_of(file):
    return yaml.safe_load(file.read_text())["tests"]


def is_setting(name):
    """`upstreams[].kv_blocks`, or a key of the settings file by its path."""
    section = Settings
    for part in name.replace("[]", "").split("."):
        fields = getattr(section, "model_fields", None)
        if fields is None or part not in fields:
            return False
        section = section_in(fields[part].annotation)
    return True


def section_in(annotation):
    """The section that a field holds, be it one of several or wrapped in other types; None where it is a value."""
    if hasattr(annotation, "model_fields"):
        return annotation
    inner = [section_in(each) for each in getattr(annotation, "__args__", ())]
    return next((each for each in inner if each is not None), None)
