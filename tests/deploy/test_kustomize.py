"""The kustomize base, its overlays and components, as `kubectl kustomize` puts them together."""

import asyncio
import os
import sys
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from tests.deploy.manifests import KUSTOMIZE, ROOT, kustomized
from tests.deploy.schemas import KUBERNETES_VERSIONS, faults
from tests.deploy.wiring import (
    SECONDS_TO_LEAVE,
    assert_can_decode_pictures,
    assert_gateway_is_known,
    assert_is_demand,
    assert_is_safe,
    assert_is_wired,
    containers_of,
    pod_of,
    settings_in,
    the,
)
from tests.support.live_gateway import live_gateway
from tests.support.model_server import model_server

OVERLAYS = {name: KUSTOMIZE / "overlays" / name for name in ("sidecar", "standalone")}


@pytest.fixture(scope="module")
def rendered(tmp_path_factory):
    """Each overlay, and one of a user's own on top of the sidecar."""
    own = tmp_path_factory.mktemp("own")
    above = os.path.relpath(KUSTOMIZE, own)
    components = [f"{above}/components/{name}" for name in ("podmonitor", "scaling")]
    overlay = {"namespace": "vlm", "resources": [f"{above}/overlays/sidecar"], "components": components}
    (own / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    return {name: kustomized(folder) for name, folder in {**OVERLAYS, "own": own}.items()}


@pytest.mark.parametrize("name", [*OVERLAYS, "own"])
@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
def test_every_manifest_fits_the_schema(rendered, name, version):
    assert [fault for manifest in rendered[name] for fault in faults(manifest, version)] == []


@pytest.mark.parametrize("name", [*OVERLAYS, "own"])
def test_the_parts_find_each_other_and_the_gateway_knows_what_it_gets(rendered, name):
    manifests = rendered[name]
    assert_is_wired(manifests)
    assert_gateway_is_known(manifests)
    assert_is_safe(pod_of(manifests), "gateway")
    assert_can_decode_pictures(pod_of(manifests))


def test_the_image_is_that_of_this_version(rendered):
    project = (ROOT / "pyproject.toml").read_text()
    for manifests in rendered.values():
        _, _, tag = containers_of(pod_of(manifests))["gateway"]["image"].partition(":")
        assert f'\nversion = "{tag}"\n' in project


def test_two_standalone_gateways_reach_vllm_at_its_service(rendered):
    assert the(rendered["standalone"], "Deployment")["spec"]["replicas"] == 2
    assert str(settings_in(rendered["standalone"]).upstream.url) == "http://vllm:8000/"


class TestSidecar:
    def test_the_gateway_starts_before_vllm_and_ends_after_it(self, rendered):
        spec = pod_of(rendered["sidecar"])["spec"]
        assert [(each["name"], each["restartPolicy"]) for each in spec["initContainers"]] == [("gateway", "Always")]
        assert [each["name"] for each in spec["containers"]] == ["vllm"]

    def test_nobody_gets_past_the_gateway(self, rendered):
        manifests = rendered["sidecar"]
        flags = dict(flag.removeprefix("--").split("=", 1) for flag in self._vllm(manifests)["args"])
        assert flags["host"] == "127.0.0.1"
        assert str(settings_in(manifests).upstream.url) == f"http://127.0.0.1:{flags['port']}/"
        assert "ports" not in self._vllm(manifests)

    def test_vllm_is_ended_by_no_probe_for_that_would_drain_the_gateway(self, rendered):
        assert not {"livenessProbe", "startupProbe"} & self._vllm(rendered["sidecar"]).keys()

    def test_the_time_that_vllm_waits_is_within_what_the_pod_has(self, rendered):
        manifests = rendered["sidecar"]
        url, timeout_seconds = self._drain_call(manifests)
        (drain_seconds,) = parse_qs(urlsplit(url).query)["timeout_seconds"]
        grace_seconds = pod_of(manifests)["spec"]["terminationGracePeriodSeconds"]
        assert int(drain_seconds) == settings_in(manifests).server.drain_seconds
        assert int(drain_seconds) < timeout_seconds < grace_seconds - SECONDS_TO_LEAVE

    async def test_before_it_ends_vllm_has_the_gateway_drain(self, rendered):
        manifests = rendered["sidecar"]
        url, _ = self._drain_call(manifests)
        assert urlsplit(url).netloc == f"127.0.0.1:{settings_in(manifests).server.port}"
        (route,) = containers_of(pod_of(manifests))["gateway"]["env"]
        assert route == {"name": "GATEWAY_SERVER__DRAIN_ROUTE", "value": "true"}
        server = {"drain_route": route["value"], "drain_grace_seconds": 0.2}
        async with model_server() as upstream, live_gateway(upstream.base_url, server=server) as gateway:
            python, dash_c, script = self._hook(manifests)
            here = script.replace(f"http://{urlsplit(url).netloc}", f"http://{gateway.host}:{gateway.port}")
            process = await asyncio.create_subprocess_exec(sys.executable, dash_c, here)
            assert (python, await process.wait()) == ("python3", 0)
            assert gateway.application.why_not_ready() == "the gateway is shutting down"
            assert gateway.application.is_drained()

    def test_its_page_has_the_times_that_it_has(self, rendered):
        page = (ROOT / "docs/sidecar.md").read_text()
        spec, (url, _) = pod_of(rendered["sidecar"])["spec"], self._drain_call(rendered["sidecar"])
        assert f"`POST {urlsplit(url).path}?{urlsplit(url).query}`" in page
        assert f"`terminationGracePeriodSeconds` is {spec['terminationGracePeriodSeconds']}:" in page

    def test_without_a_spare_gpu_the_old_pod_goes_first(self, rendered):
        strategy = the(rendered["sidecar"], "Deployment")["spec"]["strategy"]
        assert strategy == {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}

    @staticmethod
    def _vllm(manifests):
        return containers_of(pod_of(manifests))["vllm"]

    def _hook(self, manifests):
        return self._vllm(manifests)["lifecycle"]["preStop"]["exec"]["command"]

    def _drain_call(self, manifests):
        """What is called, and how long that may take."""
        *_, script = self._hook(manifests)
        (url,) = [word.strip('"') for word in script.split() if word.startswith('"http')]
        return url, int(script.partition("timeout=")[2].partition(")")[0])


class TestScaling:
    def test_it_scales_the_pods_of_the_overlay(self, rendered):
        manifests = rendered["own"]
        target = the(manifests, "ScaledObject")["spec"]["scaleTargetRef"]
        deployment = the(manifests, "Deployment")
        assert (target["kind"], target["name"]) == ("Deployment", deployment["metadata"]["name"])
        assert "replicas" not in deployment["spec"], "or each apply would take back what KEDA has done"

    def test_it_scales_by_what_has_no_place(self, rendered):
        assert_is_demand(the(rendered["own"], "ScaledObject"), settings_in(rendered["own"]))


@pytest.mark.parametrize("name", OVERLAYS)
def test_a_folder_that_the_docs_name_is_there(name):
    text = (ROOT / "docs/kubernetes.md").read_text()
    assert f"kubectl apply -k {OVERLAYS[name].relative_to(ROOT)}\n" in text
