"""Requests made up by schemathesis from the gateway's own document, right and wrong ones: never a 5xx, and nothing that
the document does not say. `make test-schema` makes up more of them.
"""

import json
import os
from collections import Counter

import httpx
import pytest

from tests.clients.talking import Client, Known

pytestmark = pytest.mark.clients

EXAMPLES = int(os.environ.get("SCHEMA_EXAMPLES", "10"))


@pytest.fixture(scope="module")
def schemathesis():
    client = Client("schemathesis", Known("schemathesis", "schema_requests.py", ()))
    yield client
    client.stop()


def test_every_route_keeps_to_its_description(schemathesis, stage, report_line):
    labels = schemathesis.do("labels", stage.gateway.url)["labels"]
    document = httpx.get(f"{stage.gateway.url}/openapi.json").json()
    assert len(labels) == sum(len(item) for item in document["paths"].values())
    total: Counter[str] = Counter()
    failures = []
    for label in labels:
        if label.endswith("/gateway/drain"):
            continue  # it would end the run
        seen = schemathesis.do("route", stage.gateway.url, label=label, examples=EXAMPLES)
        assert "error" not in seen, seen
        report_line(f"schemathesis: {label}: {json.dumps(dict(sorted(seen['statuses'].items())))}")
        failures += [f"{label}: {failure}" for failure in seen["failures"]]
        total.update(seen["statuses"])
    report_line(f"schemathesis: {sum(total.values())} requests, {json.dumps(dict(sorted(total.items())))}")
    assert failures == []
    assert not [status for status in total if status.startswith("5")]
    assert total["200"] > 0
    assert total["400"] > 0
