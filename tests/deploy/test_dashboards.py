"""The Grafana dashboards: what the generator makes, without anything that Grafana would not read or would show empty.

No Grafana is at hand. Their queries before a real Prometheus are tests/deploy/test_panels.py.
"""

import itertools
import json
import re

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from scripts.dashboards import __main__ as generator
from scripts.dashboards.runbook import sections_of
from tests.support.dashboards import FOLDER, PROJECT, UIDS, dashboards, panels_of, targets
from tests.support.promql import DECLARED, complaints, labels_of, metrics_in

GRAFANA = PROJECT / "deploy" / "grafana"
# Of Grafana's valueFormats, those that are of use here: an id that it does not know is shown as a suffix.
UNITS = {"none", "short", "percent", "percentunit", "s", "ms", "bytes", "decbytes", "reqps", "ops", "cps"}
VARIABLE = re.compile(r"\$\{?(\w+)\}?")
BUILT_IN = {"__rate_interval", "__range", "__interval", "__all"}
LEGEND = re.compile(r"\{\{\s*(\w+)\s*\}\}")

every_dashboard = pytest.mark.parametrize("name", [*UIDS, "runbook"])
every_target = pytest.mark.parametrize("target", list(targets()), ids=lambda target: "/".join(map(str, target.key)))


class TestTheGenerator:
    def test_files_are_what_it_makes(self):
        assert generator.differences(generator.files(), FOLDER) == [], "run `make dashboards`"

    def test_a_file_that_was_changed_by_hand_is_told(self, tmp_path, capsys):
        assert generator.main([], tmp_path) == 0
        assert generator.main(["--check"], tmp_path) == 0
        changed = tmp_path / "vlm-gateway-overview.json"
        changed.write_text(changed.read_text().replace("Requests by model", "Requests"))
        assert generator.main(["--check"], tmp_path) == 1
        assert capsys.readouterr().err == (
            "vlm-gateway-overview.json is not what the generator makes: run `make dashboards`\n"
        )

    def test_a_dashboard_that_is_no_more_goes(self, tmp_path):
        (tmp_path / "old.json").write_text("{}")
        assert generator.differences(generator.files(), tmp_path)[0] == "old.json is not what the generator makes"
        assert generator.main([], tmp_path) == 0
        assert not (tmp_path / "old.json").exists()


class TestWhatGrafanaReads:
    def test_uids_are_those_that_people_have_in_their_addresses(self):
        assert sorted(dashboards()) == sorted([*UIDS, "runbook"])
        for name, dashboard in dashboards().items():
            assert dashboard["uid"] == f"vlm-gateway-{name}"
            assert (FOLDER / f"{dashboard['uid']}.json").exists()

    @every_dashboard
    def test_every_key_is_one_of_grafanas_own_schema(self, name):
        """Read into the model that Grafana Labs publishes and written again, nothing is lost."""
        register_default_plugins()
        ours = dashboards()[name]
        theirs = json.loads(JSONEncoder().encode(Dashboard.from_json(ours)))
        assert list(lost(ours, theirs)) == []

    def test_a_key_that_grafana_does_not_know_would_be_found(self):
        register_default_plugins()
        ours = dashboards()["overview"]
        ours["panels"][1]["fieldConfig"]["defaults"]["units"] = "s"
        theirs = json.loads(JSONEncoder().encode(Dashboard.from_json(ours)))
        assert list(lost(ours, theirs)) == ["panels.1.fieldConfig.defaults.units"]

    @every_dashboard
    def test_panels_lie_on_the_grid_and_not_on_each_other(self, name):
        places = [panel["gridPos"] for panel in dashboards()[name]["panels"]]
        assert all(place["x"] >= 0 and place["x"] + place["w"] <= 24 for place in places)
        assert [(one, two) for one, two in itertools.combinations(places, 2) if overlap(one, two)] == []

    @every_dashboard
    def test_each_panel_says_what_it_shows(self, name):
        panels = dashboards()[name]["panels"]
        assert len({panel["id"] for panel in panels}) == len(panels)
        shown = panels_of(dashboards()[name])
        titles = [panel["title"] for panel in shown]
        assert len(set(titles)) == len(titles)
        for panel in shown:
            assert panel["title"]
            assert panel["description"].endswith("."), panel["title"]

    @pytest.mark.parametrize("name", UIDS)
    def test_units_are_grafanas(self, name):
        for panel in panels_of(dashboards()[name]):
            assert panel["fieldConfig"]["defaults"]["unit"] in UNITS, panel["title"]

    @pytest.mark.parametrize("name", UIDS)
    def test_variables_that_are_used_are_there_and_the_others_are_not(self, name):
        dashboard = dashboards()[name]
        variables = dashboard["templating"]["list"]
        used = set(VARIABLE.findall(json.dumps([dashboard["panels"], variables]))) - BUILT_IN
        assert used == {variable["name"] for variable in variables}
        assert variables[0]["type"] == "datasource"

    def test_models_and_upstreams_can_be_chosen(self):
        chosen = {variable["name"] for each in dashboards().values() for variable in each["templating"]["list"]}
        assert chosen == {"datasource", "job", "instance", "model", "upstream"}

    @every_dashboard
    def test_links_to_the_runbook_lead_to_the_section_that_they_name(self, name):
        sections = {panel["id"]: panel["title"] for panel in panels_of(dashboards()["runbook"])}
        for panel in panels_of(dashboards()[name]):
            for link in panel.get("links", ()):
                path, _, number = link["url"].partition("?viewPanel=")
                assert path == "/d/vlm-gateway-runbook"
                assert link["title"] == f"Runbook: {sections[int(number)]}"

    @pytest.mark.parametrize("name", UIDS)
    def test_the_runbook_and_the_other_dashboards_are_one_click_away(self, name):
        links = dashboards()[name]["links"]
        assert [link.get("url") for link in links if link["type"] == "link"] == ["/d/vlm-gateway-runbook"]
        assert [link["tags"] for link in links if link["type"] == "dashboards"] == [["vlm-gateway"]]
        assert any(panel["links"] for panel in panels_of(dashboards()[name]))

    def test_the_runbook_is_there_with_every_section(self):
        sections = dict(sections_of((PROJECT / "docs" / "runbook.md").read_text()))
        assert {panel["title"]: panel["options"]["content"] for panel in panels_of(dashboards()["runbook"])} == sections


class TestQueries:
    @every_target
    def test_asks_only_for_what_is_declared(self, target):
        assert complaints(target.at(60_000)) == []

    @every_target
    def test_legends_name_labels_that_are_left(self, target):
        assert set(LEGEND.findall(target.legend)) <= labels_of(target.at(60_000))

    @every_target
    def test_rates_follow_the_dashboard(self, target):
        """A fixed window would show nothing, or nonsense, with other scrape intervals."""
        assert re.findall(r"\[(?!\$__rate_interval\]|\$__range\])", target.query) == []

    def test_every_metric_is_shown_somewhere(self):
        shown = set().union(*(metrics_in(target.at(60_000)) for target in targets()))
        assert set(DECLARED) - shown == set()

    @pytest.mark.parametrize(
        ("query", "complaint"),
        [
            ("sum(rate(gateway_request_total[5m]))", "there is no metric gateway_request_total"),
            ("sum(rate(gateway_queue_wait_seconds[5m]))", "there is no metric gateway_queue_wait_seconds"),
            ("gateway_requests_total", "gateway_requests_total is a counter, and stands in no function"),
            ("rate(gateway_queue_depth[5m])", "gateway_queue_depth is a gauge, and stands in ('rate',)"),
            ('sum(gateway_queue_depth{upstreams="a"})', "gateway_queue_depth has no label upstreams"),
            ('gateway_held{resource="kv_block"}', "gateway_held: resource is never kv_block"),
            (
                'rate(gateway_rejections_total{reason=~"queue_full|queue_ful"}[5m])',
                "gateway_rejections_total: reason is never queue_ful",
            ),
            (
                'rate(gateway_estimate_error_ratio_bucket{le="1"}[5m])',
                "gateway_estimate_error_ratio_bucket: le is never 1",
            ),
            ("sum by (models) (gateway_queue_depth)", "gateway_queue_depth has no label models to group by"),
            (
                "gateway_queue_depth and on (stream) gateway_upstream_up",
                "gateway_queue_depth has no label stream to group by",
            ),
        ],
    )
    def test_what_does_not_exist_is_found(self, query, complaint):
        assert complaint in complaints(query)


class TestProvisioning:
    def test_the_data_source_is_the_one_that_dashboards_look_for(self):
        told = yaml.safe_load((GRAFANA / "provisioning" / "datasources" / "prometheus.yaml").read_text())
        assert told["apiVersion"] == 1
        (source,) = told["datasources"]
        (variable,) = [each for each in dashboards()["overview"]["templating"]["list"] if each["type"] == "datasource"]
        assert source["type"] == variable["query"] == "prometheus"
        assert source["url"] == "$PROMETHEUS_URL"

    def test_dashboards_come_from_a_folder(self):
        told = yaml.safe_load((GRAFANA / "provisioning" / "dashboards" / "vlm-gateway.yaml").read_text())
        assert told["apiVersion"] == 1
        (provider,) = told["providers"]
        assert provider["type"] == "file"
        assert provider["options"]["path"].startswith("/")


def overlap(one, two):
    apart = one["x"] + one["w"] <= two["x"] or two["x"] + two["w"] <= one["x"]
    return not (apart or one["y"] + one["h"] <= two["y"] or two["y"] + two["h"] <= one["y"])


def lost(ours, theirs, path=""):
    """Where `ours` has something that `theirs` has not."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key, value in ours.items():
            yield from lost(value, theirs.get(key), f"{path}.{key}" if path else key)
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for index, pair in enumerate(zip(ours, theirs, strict=True)):
            yield from lost(*pair, f"{path}.{index}")
    elif ours != theirs and not (ours in (None, [], {}) and theirs in (None, [], {})):
        yield path
