"""The Compose project: by the schema of the Compose specification, and whether its parts find each other."""

import re
import shutil
import subprocess

import pytest
import yaml
from typer.testing import CliRunner

from gateway.app import CONTROL_PATHS
from gateway.cli import app
from gateway.settings_sources import load
from tests.deploy.manifests import ROOT
from tests.deploy.schemas import compose_faults

FOLDER = ROOT / "deploy/compose"


@pytest.fixture(scope="module")
def project():
    return yaml.safe_load((FOLDER / "compose.yaml").read_text())


def mounts_of(service):
    """Source by target of what is mounted from this repository."""
    split = [each.split(":") for each in service.get("volumes", ()) if each.startswith(".")]
    return {target: source for source, target, mode in split if mode == "ro"}


def seconds(text):
    return int(re.fullmatch(r"(\d+)s", text)[1])


def test_it_fits_the_schema(project):
    assert compose_faults(project) == []


@pytest.mark.parametrize(
    ("service", "name", "value"),
    [("gateway", "read_onyl", True), ("gateway", "ports", "8080:8080"), ("vllm", "command", 5)],
)
def test_a_name_that_is_misspelt_or_a_wrong_value_is_found(project, service, name, value):
    wrong = project | {"services": project["services"] | {service: project["services"][service] | {name: value}}}
    assert compose_faults(wrong)


def test_the_gateway_starts_with_settings_that_exist(project):
    command, *words = project["services"]["gateway"]["command"]
    help_text = CliRunner().invoke(app, [command, "--help"]).output
    assert all(word in help_text for word in words if word.startswith("--"))
    assert words[words.index("--upstream") + 1] == "http://vllm:8000", "the other service by its name, at its port"
    name, _, value = words[words.index("--set") + 1].partition("=")
    settings = load(flags={name: value}).settings
    assert project["services"]["gateway"]["ports"] == [f"{settings.server.port}:{settings.server.port}"]
    assert seconds(project["services"]["gateway"]["stop_grace_period"]) >= settings.server.drain_seconds + 10


def test_the_gateway_has_no_rights_and_what_it_needs(project):
    gateway = project["services"]["gateway"]
    assert (gateway["read_only"], gateway["cap_drop"]) == (True, ["ALL"])
    assert gateway["security_opt"] == ["no-new-privileges:true"]
    assert gateway["tmpfs"] == ["/tmp"]


def test_the_gateway_ends_before_vllm(project):
    assert project["services"]["gateway"]["depends_on"] == ["vllm"]


def test_only_the_gateway_is_reached_from_outside(project):
    published = {name: service.get("ports", []) for name, service in project["services"].items()}
    assert published.pop("gateway") == ["8080:8080"]
    assert all(port.startswith("127.0.0.1:") for ports in published.values() for port in ports)
    assert published["vllm"] == []


def test_named_volumes_are_declared(project):
    named = [
        each.partition(":")[0]
        for service in project["services"].values()
        for each in service.get("volumes", ())
        if not each.startswith(".")
    ]
    assert set(named) == project["volumes"].keys()


def test_what_is_mounted_is_there(project):
    sources = {source for service in project["services"].values() for source in mounts_of(service).values()}
    made = {"../grafana/dashboards"}  # by `make dashboards`
    assert sources > made
    assert all((FOLDER / source).exists() for source in sources - made)


class TestPrometheus:
    @pytest.fixture
    def config(self, project):
        return yaml.safe_load((FOLDER / self._folder(project) / "prometheus.yaml").read_text())

    @staticmethod
    def _folder(project):
        return mounts_of(project["services"]["prometheus"])["/etc/prometheus"]

    def test_it_reads_the_file_that_is_mounted(self, project):
        assert "--config.file=/etc/prometheus/prometheus.yaml" in project["services"]["prometheus"]["command"]
        assert (FOLDER / self._folder(project) / "prometheus.yaml").is_file()

    def test_it_scrapes_services_of_the_project_at_their_ports(self, project, config):
        jobs = {each["job_name"]: each for each in config["scrape_configs"]}
        targets = {name: job["static_configs"][0]["targets"] for name, job in jobs.items()}
        port = load().settings.server.port
        assert targets == {"vlm-gateway": [f"gateway:{port}"], "vllm": ["vllm:8000"]}
        assert {target.partition(":")[0] for each in targets.values() for target in each} <= project["services"].keys()
        assert "/metrics" in CONTROL_PATHS, "the path where none is given"

    @pytest.mark.system("promtool")
    def test_prometheus_itself_takes_it_with_all_rules(self, project, tmp_path):
        shutil.copytree(FOLDER / self._folder(project), tmp_path / "prometheus")
        done = promtool("check", "config", tmp_path / "prometheus/prometheus.yaml")
        assert done.returncode == 0, done.stdout + done.stderr

    @pytest.mark.system("promtool")
    def test_prometheus_would_find_a_mistake(self, project, tmp_path, config):
        (tmp_path / "prometheus.yaml").write_text(yaml.safe_dump(config | {"scrape_configs": [{"job_nam": "a"}]}))
        assert promtool("check", "config", tmp_path / "prometheus.yaml").returncode != 0


def promtool(*words):
    return subprocess.run(["promtool", *map(str, words)], capture_output=True, text=True, check=False)


class TestGrafana:
    def test_it_is_provisioned_with_what_is_mounted(self, project):
        mounts = mounts_of(project["services"]["grafana"])
        provisioning = FOLDER / mounts["/etc/grafana/provisioning"]
        (provider,) = yaml.safe_load((provisioning / "dashboards/vlm-gateway.yaml").read_text())["providers"]
        assert mounts[provider["options"]["path"]] == "../grafana/dashboards"

    def test_it_asks_the_prometheus_of_the_project(self, project):
        service = project["services"]["grafana"]
        provisioning = FOLDER / mounts_of(service)["/etc/grafana/provisioning"]
        (source,) = yaml.safe_load((provisioning / "datasources/prometheus.yaml").read_text())["datasources"]
        assert source["url"] == "$PROMETHEUS_URL"
        host, _, port = service["environment"]["PROMETHEUS_URL"].removeprefix("http://").partition(":")
        assert project["services"][host]["ports"] == [f"127.0.0.1:{port}:{port}"]
