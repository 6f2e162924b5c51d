"""Mistakes that would reach a cluster are found by the schemas that the other tests here go by."""

from copy import deepcopy

import pytest

from tests.deploy.manifests import helm_rendered
from tests.deploy.schemas import FOLDER, KUBERNETES_VERSIONS, faults
from tests.deploy.value_sets import EVERYTHING

SOUND = {each["kind"]: each for each in helm_rendered(EVERYTHING)}
SOUND["PrometheusRule"] = {
    "apiVersion": "monitoring.coreos.com/v1",
    "kind": "PrometheusRule",
    "metadata": {"name": "rules"},
    "spec": {"groups": [{"name": "own", "rules": [{"alert": "Odd", "expr": "up == 0", "for": "5m"}]}]},
}


def with_fault(kind, path, value):
    """The sound manifest with `value` at a dotted path; None takes it away."""
    manifest = deepcopy(SOUND[kind])
    *above, last = path.split(".")
    node = manifest
    for name in above:
        node = node[int(name) if name.isdigit() else name]
    if value is None:
        del node[last]
    else:
        node[last] = value
    return manifest


@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
@pytest.mark.parametrize(
    ("kind", "path", "value", "why"),
    [
        ("ScaledObject", "spec.triggers.0.metadata.threshold", 8, "8 is not of type 'string'"),
        ("ScaledObject", "spec.triggers.0.metadata.ignoreNullValues", False, "False is not of type 'string'"),
        ("ScaledObject", "spec.triggers.0.metaData", {}, "'metaData' was unexpected"),
        ("ScaledObject", "spec.fallback.behavior", "currentReplicasIfHighest", "is not one of ['static'"),
        ("ScaledObject", "spec.scaleTargetRef.name", None, "'name' is a required property"),
        ("HTTPRoute", "spec.rules.0.timeout", {"request": "0s"}, "'timeout' was unexpected"),
        ("HTTPRoute", "spec.rules.0.matches.0.path.type", "Prefix", "'Prefix' is not one of"),
        ("PodMonitor", "spec.podMetricsEndpoint", [], "'podMetricsEndpoint' was unexpected"),
        ("PodMonitor", "spec.podMetricsEndpoints.0.port", 8080, "8080 is not of type 'string'"),
        ("PrometheusRule", "spec.groups.0.rules.0.summary", "x", "'summary' was unexpected"),
        ("PrometheusRule", "spec.groups.0.rules.0.for", 300, "300 is not of type 'string'"),
        ("Deployment", "spec.template.spec.containers.0.readinesProbe", {}, "'readinesProbe' was unexpected"),
        ("Deployment", "spec.template.spec.terminationGracePeriodSeconds", "135", "'135' is not of type 'integer'"),
        ("Deployment", "apiVersion", "apps/v1beta1", "'apps/v1beta1' is not one of"),
        ("Service", "spec.ports.0.port", "http", "'http' is not of type 'integer'"),
        ("NetworkPolicy", "spec.ingres", [], "'ingres' was unexpected"),
        ("PodDisruptionBudget", "spec.maxUnavailabel", 1, "'maxUnavailabel' was unexpected"),
        ("ConfigMap", "data", {"gateway.yaml": {}}, "{} is not of type 'string'"),
        ("ServiceAccount", "automountToken", False, "'automountToken' was unexpected"),
    ],
)
def test_it_is_found(version, kind, path, value, why):
    assert faults(SOUND[kind], version) == []
    found = faults(with_fault(kind, path, value), version)
    assert any(why in line for line in found), found


@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
def test_a_sidecar_is_known_to_every_version(version):
    pod = deepcopy(SOUND["Pod"])
    pod["spec"]["initContainers"] = [pod["spec"]["containers"][0] | {"name": "first", "restartPolicy": "Always"}]
    assert faults(pod, version) == []
    pod["spec"]["initContainers"][0]["restartPolicies"] = "Always"
    assert "'restartPolicies' was unexpected" in str(faults(pod, version))


def test_no_schema_is_there_for_nothing():
    of_kubernetes = {f"kubernetes-{version}.json" for version in KUBERNETES_VERSIONS}
    operators = {f"{kind.lower()}.json" for kind in ("HTTPRoute", "PodMonitor", "PrometheusRule", "ScaledObject")}
    assert {path.name for path in FOLDER.iterdir()} == of_kubernetes | operators | {"compose.json"}
