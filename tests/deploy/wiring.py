"""What schemas cannot see: do parts of a deployment find each other, and does the gateway know what it gets?"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from typer.testing import CliRunner

from gateway.app import CONTROL_PATHS
from gateway.cli import app
from gateway.domain.outcome import Reason
from gateway.settings import Settings
from gateway.settings_sources import load

Manifest = Mapping[str, Any]

USER = 65532
SECONDS_TO_LEAVE = 10  # after draining: the server's own end, and the kubelet's slack


WANT_OF_ROOM = {
    Reason.QUEUE_FULL,
    Reason.QUEUE_BYTES,
    Reason.WOULD_MISS_DEADLINE,
    Reason.DEADLINE_PASSED,
    Reason.KV_BUDGET,
    Reason.ENCODER_BUDGET,
    Reason.PREPROCESS_BUDGET,
    Reason.SHED_PRIORITY,
    Reason.UPSTREAM_BACKPRESSURE,
}
"""Reasons that another vLLM would take away; another gateway, a sound picture or a shorter prompt is not among them."""


def of_kind(manifests: Sequence[Manifest], kind: str) -> list[Manifest]:
    return [each for each in manifests if each["kind"] == kind]


def the(manifests: Sequence[Manifest], kind: str) -> Manifest:
    (only,) = of_kind(manifests, kind)
    return only


def pod_of(manifests: Sequence[Manifest]) -> Manifest:
    return the(manifests, "Deployment")["spec"]["template"]


def containers_of(pod: Manifest) -> dict[str, Manifest]:
    spec = pod["spec"]
    return {each["name"]: each for each in [*spec.get("initContainers", ()), *spec["containers"]]}


def environment_of(container: Manifest) -> dict[str, str]:
    return {each["name"]: each["value"] for each in container.get("env", ())}


def settings_in(manifests: Sequence[Manifest]) -> Settings:
    """As the gateway in the pod reads them. Raises SettingsError for a name or a value that it does not know."""
    pod = pod_of(manifests)
    gateway = containers_of(pod)["gateway"]
    command, flag, path = gateway["args"]
    assert flag in CliRunner().invoke(app, [command, "--help"]).output
    folder, _, file = path.rpartition("/")
    volume = _volume_at(pod, gateway, folder)
    config_maps = {each["metadata"]["name"]: each["data"] for each in of_kind(manifests, "ConfigMap")}
    text = config_maps[volume["configMap"]["name"]][file]
    return load(file_text=text, environment=environment_of(gateway), read_secret=lambda _path: "k").settings


def _volume_at(pod: Manifest, container: Manifest, path: str) -> Manifest:
    (mount,) = [each for each in container["volumeMounts"] if each["mountPath"] == path]
    (volume,) = [each for each in pod["spec"]["volumes"] if each["name"] == mount["name"]]
    return volume


def assert_is_wired(manifests: Sequence[Manifest]) -> None:
    """Every reference from one manifest to another, or within one, leads somewhere."""
    pod = pod_of(manifests)
    names = {(each["kind"], each["metadata"]["name"]) for each in manifests}
    for selector in _selectors(manifests):
        assert selector.items() <= pod["metadata"]["labels"].items(), selector
    service = the(manifests, "Service")
    for port in service["spec"]["ports"]:
        _assert_leads_to_the_gateway(port["targetPort"], pod)
    for backend in _backends(manifests):
        assert ("Service", backend["name"]) in names
        assert backend["port"] in {port["port"] for port in service["spec"]["ports"]}
    assert ("ServiceAccount", pod["spec"]["serviceAccountName"]) in names | {("ServiceAccount", "default")}
    volumes = [each["name"] for each in pod["spec"]["volumes"]]
    mounts = [mount["name"] for each in containers_of(pod).values() for mount in each["volumeMounts"]]
    assert sorted(volumes) == sorted(set(mounts)), "each volume is used, and each mount has one"


def _assert_leads_to_the_gateway(target_port: int | str, pod: Manifest) -> None:
    by_name = _ports_of(pod)
    is_sidecar = any(each["name"] == "gateway" for each in pod["spec"].get("initContainers", ()))
    # Before 1.32 names of a sidecar's ports are not found (kubernetes#127958).
    assert target_port in (by_name.values() if is_sidecar else {*by_name, *by_name.values()})


def _selectors(manifests: Sequence[Manifest]) -> Iterator[Mapping[str, str]]:
    for each in manifests:
        spec = each.get("spec", {})
        if each["kind"] == "Service":
            yield spec["selector"]
        if each["kind"] in {"Deployment", "PodDisruptionBudget", "PodMonitor"}:
            yield spec["selector"]["matchLabels"]
        if each["kind"] == "NetworkPolicy":
            yield spec["podSelector"]["matchLabels"]


def _backends(manifests: Sequence[Manifest]) -> Iterator[Manifest]:
    for route in of_kind(manifests, "HTTPRoute"):
        for rule in route["spec"]["rules"]:
            yield from rule["backendRefs"]


def _ports_of(pod: Manifest) -> dict[str, int]:
    gateway = containers_of(pod)["gateway"]
    return {each["name"]: each["containerPort"] for each in gateway["ports"]}


def assert_gateway_is_known(manifests: Sequence[Manifest]) -> None:
    """Its port, probes, times and metrics are those that it has with the settings in the manifests."""
    pod, settings = pod_of(manifests), settings_in(manifests)
    gateway = containers_of(pod)["gateway"]
    assert _ports_of(pod) == {"http": settings.server.port}
    probes = {kind: gateway[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")}
    assert {probe["path"] for probe in probes.values()} <= CONTROL_PATHS
    # The first two are 200 whatever becomes of vLLM (tests/test_app.py).
    assert {kind: probe["path"] for kind, probe in probes.items()} == {
        "startup": "/startupz",
        "liveness": "/livez",
        "readiness": "/readyz",
    }
    assert {probe["port"] for probe in probes.values()} == {"http"}
    assert pod["spec"]["terminationGracePeriodSeconds"] >= settings.server.drain_seconds + SECONDS_TO_LEAVE
    for monitor in of_kind(manifests, "PodMonitor"):
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        assert endpoint["port"] in _ports_of(pod)
        assert endpoint["path"] in CONTROL_PATHS


def assert_is_safe(pod: Manifest, container: str) -> None:
    """What the restricted Pod Security Standard asks for, and more."""
    spec, own = pod["spec"], containers_of(pod)[container]
    assert spec["automountServiceAccountToken"] is False
    assert spec["enableServiceLinks"] is False
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert own["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": USER,
        "runAsGroup": USER,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert own["resources"]["requests"]["memory"] == own["resources"]["limits"]["memory"]


def assert_can_decode_pictures(pod: Manifest) -> None:
    """With a root that cannot be written to, worker processes need these two in memory."""
    gateway = containers_of(pod)["gateway"]
    for path in ("/dev/shm", "/tmp"):
        assert _volume_at(pod, gateway, path)["emptyDir"]["medium"] == "Memory"


def assert_is_demand(scaled_object: Manifest, settings: Settings) -> None:
    """What KEDA asks for is what vLLM has, what waits and what was refused for want of room; no answer is an error."""
    (trigger,) = scaled_object["spec"]["triggers"]
    assert trigger["metadata"]["ignoreNullValues"] == "false"
    assert trigger["metricType"] == "AverageValue", "with others KEDA has no fallback"
    assert scaled_object["spec"]["fallback"]["replicas"] > 0
    query = trigger["metadata"]["query"]
    assert re.findall(r"gateway_\w+", query) == [
        "gateway_upstream_requests_in_flight",
        "gateway_queue_depth",
        "gateway_rejections_total",
    ]
    assert set(re.search(r'reason=~"([^"]+)"', query)[1].split("|")) == WANT_OF_ROOM
    assert query.endswith(f"* {settings.queue.wait_seconds:g}"), "as long as each refused one would have waited"
