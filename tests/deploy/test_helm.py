"""The Helm chart with several sets of values, as `helm template` renders it."""

import asyncio
import json
import re
import shutil
import subprocess
import sys
from copy import deepcopy

import pytest
import yaml
from helm_python.chart import lint

from gateway.access import listening_of
from gateway.settings_sources import SettingsError
from gateway.wire.routes import Kind, classify
from tests.deploy.manifests import CHART, ROOT, ChartError, helm_notes, helm_rendered
from tests.deploy.schemas import KUBERNETES_VERSIONS, faults
from tests.deploy.value_sets import EVERYTHING, SEVERAL, SMALL, VALUE_SETS
from tests.deploy.wiring import (
    assert_can_decode_pictures,
    assert_gateway_is_known,
    assert_is_demand,
    assert_is_safe,
    assert_is_wired,
    containers_of,
    of_kind,
    pod_of,
    settings_in,
    the,
)
from tests.support.live_gateway import live_gateway
from tests.support.model_server import model_server

PAGE = (ROOT / "docs/kubernetes.md").read_text()
BY_NAME = pytest.mark.parametrize("name", VALUE_SETS)


@pytest.fixture(scope="module")
def rendered():
    return {name: helm_rendered(values) for name, values in VALUE_SETS.items()}


def changed(values, path, value):
    """`values` with one at a dotted path; None takes it away."""
    result = deepcopy(values)
    *above, last = path.split(".")
    node = result
    for name in above:
        node = node.setdefault(name, {})
    node[last] = value
    return result


@BY_NAME
@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
def test_every_manifest_fits_the_schema(rendered, name, version):
    assert [fault for manifest in rendered[name] for fault in faults(manifest, version)] == []


def test_everything_renders_one_of_each_kind(rendered):
    kinds = {each["kind"] for each in rendered["everything"]}
    assert kinds >= {
        *("ConfigMap", "Deployment", "HTTPRoute", "NetworkPolicy", "Pod", "PodDisruptionBudget", "PodMonitor"),
        *("ScaledObject", "Service", "ServiceAccount"),
    }
    usual = {each["kind"] for each in rendered["defaults"]}
    assert usual == {"ConfigMap", "Deployment", "Pod", "PodDisruptionBudget", "Service", "ServiceAccount"}


@BY_NAME
def test_the_parts_find_each_other_and_the_gateway_knows_what_it_gets(rendered, name):
    manifests = rendered[name]
    assert_is_wired(manifests)
    assert_gateway_is_known(manifests)
    assert_can_decode_pictures(pod_of(manifests))


@BY_NAME
def test_pods_have_no_rights(rendered, name):
    assert_is_safe(pod_of(rendered[name]), "gateway")
    assert_is_safe(the(rendered[name], "Pod"), "ready")


@BY_NAME
def test_all_names_are_of_the_release(rendered, name):
    own = "gw" if name == "small" else "release-vlm-gateway"
    assert {each["metadata"]["name"] for each in rendered[name]} <= {own, f"{own}-test"} | {
        each["metadata"]["name"] for each in rendered[name] if each["kind"] in {"ConfigMap", "PrometheusRule"}
    }


class TestSettings:
    @BY_NAME
    def test_other_pods_reach_it(self, rendered, name):
        assert listening_of(settings_in(rendered[name])).host == "0.0.0.0"

    def test_they_are_what_stands_in_the_values(self, rendered):
        settings = settings_in(rendered["everything"])
        assert (settings.server.port, settings.images.max_bytes) == (9000, 10_000_000)
        assert settings.history.marker == "[an image: left out]\n"
        assert settings.upstream.api_key.get_secret_value() == "k"
        assert settings.keys.file == "/run/secrets/vlm-gateway/keys.yaml"
        assert settings_in(rendered["defaults"]).keys.file is None
        assert [each.shown_name for each in settings_in(rendered["several"]).upstreams] == ["a", "b"]

    def test_a_name_that_the_gateway_does_not_know_is_found_by_the_tests_as_by_the_gateway(self):
        with pytest.raises(SettingsError, match=r"queue\.lenght"):
            settings_in(helm_rendered(changed({}, "settings.queue", {"lenght": 1})))

    def test_pods_are_replaced_when_they_change(self, rendered):
        other = helm_rendered(changed({}, "settings.queue", {"requests": 1}))
        sums = [pod_of(each)["metadata"]["annotations"]["checksum/settings"] for each in (rendered["defaults"], other)]
        assert sums[0] != sums[1]

    def test_a_secret_is_mounted_and_never_a_value(self, rendered):
        volumes = {each["name"]: each for each in pod_of(rendered["everything"])["spec"]["volumes"]}
        assert volumes["secret"]["secret"] == {"secretName": "vllm-key", "defaultMode": 0o440}
        path = settings_in(rendered["several"]).upstreams[0].api_key_file
        assert path.startswith("/run/secrets/vlm-gateway/")


class TestValues:
    @pytest.mark.parametrize(
        ("path", "value"),
        [
            ("replica", 2),
            ("replicas", "2"),
            ("image.pullPolicy", "Sometimes"),
            ("scaledObject.threshold", 8),
            ("scaledObject.thresholds", "8"),
            ("service.port", 0),
            ("podMonitor.interval", 15),
            ("httpRoute", {"enabled": True}),
            ("secret.upstreamKey", "../key"),
            ("secret.keys", "../keys.yaml"),
        ],
    )
    def test_one_that_is_misspelt_or_of_the_wrong_kind_ends_the_install(self, path, value):
        with pytest.raises(ChartError, match=path.rpartition(".")[2] if path != "httpRoute" else "parentRefs"):
            helm_rendered(changed({}, path, value))

    def test_what_is_to_be_scaled_must_be_said(self):
        with pytest.raises(ChartError, match="say what runs vLLM"):
            helm_rendered({"scaledObject": {"enabled": True}})

    def test_every_value_has_a_place_in_the_schema(self):
        schema = json.loads((CHART / "values.schema.json").read_text())
        values = yaml.safe_load((CHART / "values.yaml").read_text())
        assert values.keys() == schema["properties"].keys() - {"global"}

    def test_every_value_is_used(self):
        templates = "".join(path.read_text() for path in (CHART / "templates").rglob("*") if path.is_file())
        values = yaml.safe_load((CHART / "values.yaml").read_text())
        dotted = [
            f"{name}.{below}"
            for name, value in values.items()
            for below in (value if isinstance(value, dict) and name not in {"settings", "resources"} else ())
        ]
        assert [each for each in [*values, *dotted] if f".Values.{each}" not in templates] == []

    def test_the_version_is_the_projects(self):
        chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
        assert f'\nversion = "{chart["appVersion"]}"\n' in (ROOT / "pyproject.toml").read_text()


class TestNotes:
    def test_they_say_where_clients_find_it(self, rendered):
        service = the(rendered["everything"], "Service")
        address = f"http://{service['metadata']['name']}.vlm:{service['spec']['ports'][0]['port']}/v1"
        assert f"\n  {address}\n" in helm_notes(EVERYTHING)
        assert "before https://vllm.models:8443." in helm_notes(EVERYTHING)

    def test_with_tls_it_is_found_by_https(self):
        tls = {"certificate_file": "/tls/tls.crt", "key_file": "/tls/tls.key"}
        notes = helm_notes({"settings": {"server": {"tls": tls}}})
        assert "\n  https://" in notes
        assert "curl https://127.0.0.1:8080/readyz" in notes
        assert "curl http://127.0.0.1:8080/readyz" in helm_notes({})

    def test_they_say_what_one_might_overlook(self):
        assert "before 2 model servers." in helm_notes(SEVERAL)
        assert "shadow mode" in helm_notes(SMALL)
        assert "shadow mode" not in helm_notes({})
        assert "whoever reaches the Service may use it" in helm_notes({})
        assert "whoever reaches the Service may use it" not in helm_notes(EVERYTHING)
        assert "Nothing scrapes" in helm_notes({})
        assert "Nothing scrapes" not in helm_notes(EVERYTHING)


@BY_NAME
def test_helm_has_nothing_to_say_against_it(name):
    report = lint(CHART, VALUE_SETS[name], strict=True)
    assert {each["error"] for each in report["messages"]} == {"icon is recommended"}


class TestDocs:
    """The values that docs/kubernetes.md shows."""

    SHOWN = re.findall(r"```yaml not run: values[^\n]*\n(.*?)```", PAGE, re.DOTALL)

    @pytest.mark.parametrize("text", SHOWN)
    def test_the_chart_takes_them(self, text):
        assert settings_in(helm_rendered(yaml.safe_load(text)))

    def test_every_value_that_is_named_is_there(self):
        values = yaml.safe_load((CHART / "values.yaml").read_text())
        dotted = set(
            re.findall(r"`((?:podMonitor|prometheusRule|dashboards|scaledObject|httpRoute|networkPolicy)\.\w+)`", PAGE)
        )
        assert len(dotted) >= 7
        assert len(self.SHOWN) == 2
        for section, name in (each.split(".") for each in dotted):
            assert name in values[section]


class TestNetworkPolicy:
    def test_it_lets_the_gateway_reach_its_servers_and_the_public_internet(self, rendered):
        names, vllm, images, extra = the(rendered["everything"], "NetworkPolicy")["spec"]["egress"]
        assert {port["port"] for port in names["ports"]} == {53}
        assert vllm["ports"] == [{"protocol": "TCP", "port": 8443}]
        assert vllm["to"] == EVERYTHING["networkPolicy"]["upstreamTo"]
        assert images["ports"] == [{"protocol": "TCP", "port": 443}]
        assert {"ipBlock": {"cidr": "10.20.0.0/16"}} in images["to"]
        assert extra["ports"] == [{"protocol": "TCP", "port": 3128}]

    def test_where_images_by_address_are_refused_there_is_no_way_out(self, rendered):
        _, vllm = the(rendered["several"], "NetworkPolicy")["spec"]["egress"]
        assert [port["port"] for port in vllm["ports"]] == [8000, 80]


class TestHTTPRoute:
    def test_it_leads_to_all_routes_of_clients_and_to_no_other(self, rendered):
        (rule,) = the(rendered["everything"], "HTTPRoute")["spec"]["rules"]

        def is_led(path):
            return any(
                path == each["path"]["value"]
                or (each["path"]["type"] == "PathPrefix" and path.startswith(each["path"]["value"] + "/"))
                for each in rule["matches"]
            )

        paths = ["/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/models", "/v1/messages/count_tokens"]
        paths += ["/tokenize", "/detokenize", "/gateway/preflight"]
        unknown = {Kind.UNKNOWN, Kind.CLOSED}
        assert all(classify("POST", path).kind not in unknown for path in paths), "routes of the gateway"
        assert all(is_led(path) for path in paths)
        assert not any(is_led(path) for path in ("/metrics", "/docs", "/readyz", "/gateway/", "/gateway/drain", "/"))

    def test_it_ends_no_stream(self, rendered):
        (rule,) = the(rendered["everything"], "HTTPRoute")["spec"]["rules"]
        assert rule["timeouts"] == {"request": "0s"}


class TestScaledObject:
    @pytest.mark.parametrize("name", ["everything", "small"])
    def test_it_scales_vllm_by_what_has_no_place(self, rendered, name):
        scaled = the(rendered[name], "ScaledObject")
        assert scaled["spec"]["scaleTargetRef"]["name"] == "vllm"
        assert_is_demand(scaled, settings_in(rendered[name]))

    @pytest.mark.system("promtool")
    def test_prometheus_takes_the_query(self, rendered, tmp_path):
        (trigger,) = the(rendered["everything"], "ScaledObject")["spec"]["triggers"]
        rule = {"record": "demand", "expr": trigger["metadata"]["query"]}
        (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "own", "rules": [rule]}]}))
        subprocess.run(["promtool", "check", "rules", tmp_path / "rules.yaml"], check=True)

    def test_it_asks_for_the_series_of_this_release(self, rendered):
        (trigger,) = the(rendered["everything"], "ScaledObject")["spec"]["triggers"]
        monitor = the(rendered["everything"], "PodMonitor")["metadata"]["name"]
        own = f'{{namespace="vlm",job="vlm/{monitor}"'
        assert trigger["metadata"]["query"].count(own) == 3
        (trigger,) = the(rendered["small"], "ScaledObject")["spec"]["triggers"]
        assert trigger["metadata"]["query"].count('{cluster="a"') == 3


class TestFiles:
    """What the chart takes from beside it."""

    @pytest.fixture
    def rules(self):
        folder = ROOT / "deploy/prometheus/rules"
        return [group for path in sorted(folder.glob("*.yaml")) for group in yaml.safe_load(path.read_text())["groups"]]

    def test_every_rule_of_the_project_is_in_it(self, rendered, rules):
        manifests = of_kind(rendered["everything"], "PrometheusRule")
        assert [group for each in manifests for group in each["spec"]["groups"]] == rules
        assert all(each["metadata"]["labels"]["release"] == "prometheus" for each in manifests)

    def test_every_dashboard_of_the_project_is_in_it(self, rendered):
        files = {path.name: path.read_text() for path in (ROOT / "deploy/grafana/dashboards").glob("*.json")}
        manifests = [
            each
            for each in of_kind(rendered["everything"], "ConfigMap")
            if "grafana_dashboard" in each["metadata"]["labels"]
        ]
        found = {name: json.loads(text) for each in manifests for name, text in each["data"].items()}
        assert found == {name: json.loads(text) for name, text in files.items()}

    def test_what_is_new_there_comes_along(self, tmp_path):
        chart = tmp_path / "deploy/helm"
        shutil.copytree(CHART, chart, symlinks=True)
        rule = {"alert": "Odd", "expr": "up == 0", "annotations": {"summary": "{{ $labels.job }} is {{ $value }}"}}
        groups = [{"name": "own", "rules": [rule]}]
        for path, text in {
            "prometheus/rules/own_rules.yaml": yaml.safe_dump({"groups": groups}),
            "grafana/dashboards/own_board.json": '{"title": "{{ own }}"}',
        }.items():
            file = tmp_path / "deploy" / path
            file.parent.mkdir(parents=True)
            file.write_text(text)
        manifests = helm_rendered(EVERYTHING, chart)
        (rules,) = of_kind(manifests, "PrometheusRule")
        assert (rules["metadata"]["name"], rules["spec"]["groups"]) == ("release-vlm-gateway-own-rules", groups)
        (board,) = [each for each in of_kind(manifests, "ConfigMap") if "own_board.json" in each["data"]]
        assert board["metadata"]["name"] == "release-vlm-gateway-own-board"
        assert json.loads(board["data"]["own_board.json"]) == {"title": "{{ own }}"}
        assert [fault for each in manifests for fault in faults(each, KUBERNETES_VERSIONS[-1])] == []


class TestHelmTest:
    """The pod of `helm test`: its script against a gateway."""

    @pytest.fixture
    def script(self, rendered):
        container = containers_of(the(rendered["defaults"], "Pod"))["ready"]
        _, dash_c, text, url = container["command"]
        service = the(rendered["defaults"], "Service")
        assert url == f"http://{service['metadata']['name']}:{service['spec']['ports'][0]['port']}/readyz"
        return [sys.executable, dash_c, text]

    def test_it_is_no_endpoint_of_the_service(self, rendered):
        for manifests in rendered.values():
            selector, labels = (
                the(manifests, "Service")["spec"]["selector"],
                the(manifests, "Pod")["metadata"]["labels"],
            )
            assert not selector.items() <= labels.items()

    async def test_it_passes_where_vllm_is_up_and_says_why_where_not(self, script):
        async with model_server() as upstream, live_gateway(upstream.base_url) as gateway:
            await gateway.until_up()
            passed = await self._run(script, gateway)
        async with live_gateway("http://127.0.0.1:9") as gateway:
            failed = await self._run(script, gateway)
        assert (passed.returncode, passed.stdout) == (0, '200 {"status":"ok"}\n')
        assert failed.returncode == 1
        assert re.match(r'503: \{"status":"unavailable","reason":"the model server ', failed.stderr)

    @staticmethod
    async def _run(script, gateway):
        command = [*script, f"http://{gateway.host}:{gateway.port}/readyz"]
        return await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("scheme", ["HTTP", "HTTPS"])
def test_probes_speak_as_the_gateway_does(scheme):
    tls = {"certificate_file": "/run/secrets/tls/tls.crt", "key_file": "/run/secrets/tls/tls.key"}
    values = changed(SMALL, "settings.server.tls", tls) if scheme == "HTTPS" else SMALL
    (container,) = containers_of(pod_of(helm_rendered(values))).values()
    probes = [container[probe] for probe in ("startupProbe", "livenessProbe", "readinessProbe")]
    assert [probe["httpGet"]["scheme"] for probe in probes] == [scheme] * 3
