"""Makes tests/data/schemas anew: what the manifests of deploy/ are held against. Needs npm, and packages from PyPI.

    python3.11 -m venv .cache/schemas
    .cache/schemas/bin/pip install kubernetes-validate==1.37.0 check-jsonschema==0.39.0
    .cache/schemas/bin/python scripts/deploy_schemas.py

Only the kinds that deploy/ uses, and without descriptions: the packages take 200 MB. Where each comes from is in the
files. Kubernetes' own and that of Compose are under the Apache licence 2.0; those of operators are types that
@kubernetes-models (MIT) has from the projects' CRDs, so they know names, types and words, but no patterns.
"""

import json
import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import distribution, version
from pathlib import Path
from typing import Any

import kubernetes_validate

FOLDER = Path(__file__).parents[1] / "tests/data/schemas"
KUBERNETES_VERSIONS = tuple(f"1.{minor}" for minor in range(29, 38))
KINDS = (
    *("configmap-v1", "deployment-apps-v1", "networkpolicy-networking-v1", "pod-v1", "poddisruptionbudget-policy-v1"),
    *("service-v1", "serviceaccount-v1"),
)
GENERATOR = "ts-json-schema-generator@2.4.0"
OPERATORS = {
    "ScaledObject": ("@kubernetes-models/keda@2.0.0", "keda.sh/v1alpha1"),
    "HTTPRoute": ("@kubernetes-models/gateway-api@2.0.0", "gateway.networking.k8s.io/v1"),
    "PodMonitor": ("@kubernetes-models/prometheus-operator@6.0.0", "monitoring.coreos.com/v1"),
    "PrometheusRule": ("@kubernetes-models/prometheus-operator@6.0.0", "monitoring.coreos.com/v1"),
}
COMPOSE = "check-jsonschema"
COMPOSE_FILE = "check_jsonschema/builtin_schemas/vendor/compose-spec.json"

Schemas = dict[str, Any]


def main() -> None:
    for each in KUBERNETES_VERSIONS:
        write(
            f"kubernetes-{each}",
            f"kubernetes-validate {version('kubernetes-validate')} of PyPI, Apache-2.0",
            *kubernetes(each),
        )
    with npm_project(GENERATOR, *sorted({package for package, _ in OPERATORS.values()})) as work:
        for kind, (package, group) in OPERATORS.items():
            schema = operator(work, kind, package, group)
            definitions = schema.pop("definitions")
            text = json.dumps([schema, definitions]).replace('"#/definitions/', '"#/$defs/')
            (schema, definitions) = json.loads(text)
            write(kind.lower(), f"{package} of npm, by {GENERATOR}, MIT", {kind: schema}, definitions)
    compose = slim(json.loads(distribution(COMPOSE).locate_file(COMPOSE_FILE).read_text()))
    definitions = compose.pop("$defs")
    write(
        "compose",
        f"{COMPOSE} {version(COMPOSE)} of PyPI, from compose-spec, Apache-2.0",
        {"compose": compose},
        definitions,
    )


def kubernetes(minor: str) -> tuple[Schemas, Schemas]:
    """By kind, and all that they refer to."""
    folder = Path(kubernetes_validate.__file__).parent / f"kubernetes-json-schema/v{minor}.0-local-strict"
    definitions = json.loads((folder / "_definitions.json").read_text())["$defs"]
    found = [json.loads((folder / f"{name}.json").read_text()) for name in KINDS]
    needed: Schemas = {}
    missing = references(found)
    while missing:
        name = missing.pop()
        needed[name] = slim(definitions[name])
        missing |= references(needed[name]) - needed.keys()
    kinds = {schema["properties"]["kind"]["enum"][0]: slim(schema) for schema in found}
    text = json.dumps([kinds, needed]).replace('"/api/_definitions.json#', '"#')
    kinds, needed = json.loads(text)
    return kinds, needed


def references(schema: Any) -> set[str]:
    return set(re.findall(r"#/\$defs/([^\"]+)\"", json.dumps(schema)))


def operator(work: Path, kind: str, package: str, group: str) -> dict[str, Any]:
    name, _, _ = package.rpartition("@")
    types = f"node_modules/{name}/{group}/{kind}.d.ts"
    options = [
        "--path",
        types,
        "--type",
        f"I{kind}",
        "--no-type-check",
        "--tsconfig",
        "tsconfig.json",
        "--out",
        "schema.json",
    ]
    npm(work, "exec", "--", "ts-json-schema-generator", *options)
    schema: dict[str, Any] = slim(json.loads((work / "schema.json").read_text()))
    return schema


def slim(schema: Any) -> Any:
    """Without what only people read."""
    if isinstance(schema, list):
        return [slim(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: slim(value)
        for name, value in schema.items()
        if not (name == "description" and isinstance(value, str)) and not name.startswith("x-kubernetes")
    }


@contextmanager
def npm_project(*packages: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        (work / "package.json").write_text("{}")
        # By this the generator finds one package from the other.
        (work / "tsconfig.json").write_text(
            '{"compilerOptions": {"moduleResolution": "nodenext", "module": "nodenext"}}'
        )
        npm(work, "install", "--ignore-scripts", *packages)
        yield work


def npm(work: Path, *words: str) -> None:
    subprocess.run(["npm", "--silent", "--no-audit", "--no-fund", *words], cwd=work, check=True)  # noqa: S603, S607


def write(name: str, source: str, kinds: Schemas, definitions: Schemas) -> None:
    document = {"source": source, "kinds": kinds, "$defs": definitions}
    text = json.dumps(document, separators=(",", ":"), sort_keys=True)
    (FOLDER / f"{name}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
