"""What /openapi.json says of the routes, and the page that shows it."""

import base64
import hashlib
import json
import re

import jsonschema
import pytest

from gateway.domain.errors import Code, GatewayError
from gateway.server.openapi import document as documents
from gateway.server.openapi.operations import OPERATIONS
from gateway.wire import completions, headers
from gateway.wire.chat import ChatFields
from gateway.wire.dialects import pooling
from gateway.wire.routes import Kind, Route, open_routes
from gateway.wire.watched import Watched
from tests.support.live_gateway import CHAT, chat, image, live_gateway
from tests.support.model_server import model_server
from tests.support.pictures import data_url, encoded, picture


@pytest.fixture
async def gateway(stack):
    server = await stack.enter_async_context(model_server())
    gateway = await stack.enter_async_context(live_gateway(server.base_url))
    await gateway.until_up()
    return gateway


@pytest.fixture
async def document(gateway):
    return (await gateway.http.get("/openapi.json")).json()


def check(document, name, instance):
    schema = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
    jsonschema.Draft202012Validator(schema).validate(instance)


async def test_every_open_route_is_described(document):
    described = {path for path, item in document["paths"].items() if {"post", "get"} & item.keys()}
    assert {route.path for route in open_routes()} <= described
    assert {"/livez", "/readyz", "/startupz", "/version", "/metrics", "/v1/models/{model}"} <= described


async def test_each_has_words_of_its_own():
    without = {route.path for route in open_routes()} - OPERATIONS.keys() - {"/gateway/preflight"}
    assert not without, "gateway/server/openapi/operations.py has no record of these"


def test_a_route_without_words_is_there_all_the_same(monkeypatch):
    monkeypatch.setattr(documents, "open_routes", lambda: (Route(Kind.GENERIC, "/v9/new", ("POST",)),))
    document = {"info": {}, "paths": {}}
    documents.complete(document)
    assert document["paths"]["/v9/new"]["post"]["summary"] == "Goes on to vLLM"


async def test_closed_routes_are_not_described(document):
    assert not {"/invocations", "/sleep", "/v1/audio/transcriptions"} & document["paths"].keys()


async def test_every_reference_leads_somewhere(document):
    names = set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(document)))
    assert names <= document["components"]["schemas"].keys()


async def test_statuses_are_those_of_the_codes(document):
    statuses = {str(GatewayError(code, "").status) for code in Code}
    for path in OPERATIONS.keys() & document["paths"].keys():
        (operation,) = document["paths"][path].values()
        assert operation["responses"].keys() == statuses | {"200", "529"}


async def test_headers_are_those_that_are_declared(document):
    operation = document["paths"][CHAT]["post"]
    asked = {header.name for header in headers.HEADERS if header.carrier is headers.Carrier.REQUEST}
    assert {each["name"] for each in operation["parameters"]} < asked
    assert "x-gateway-visual-tokens" in operation["responses"]["200"]["headers"]
    assert "retry-after-ms" in operation["responses"]["429"]["headers"]


@pytest.mark.parametrize(
    ("name", "struct", "unsaid"),
    [
        ("ChatRequest", ChatFields, {"truncate_prompt_tokens"}),
        ("CompletionRequest", completions._Body, {"prompt_embeds", "truncate_prompt_tokens"}),
        ("EmbeddingRequest", pooling._Body, {"data", "padding", "truncate_prompt_tokens"}),
    ],
)
async def test_what_is_read_is_described(document, name, struct, unsaid):
    """Fields with rules have a page of their own."""
    schema = document["components"]["schemas"][name]
    described = set().union(*(each["properties"] for each in schema.get("anyOf", [schema])))
    assert set(struct.__struct_fields__) - set(Watched.__struct_fields__) - described <= unsaid


async def test_bodies_and_answers_are_as_described(gateway, document):
    body = chat("Hm?", image(data_url(encoded(picture(28, 28)))), max_tokens=4)
    check(document, "ChatRequest", body)
    check(document, "Completion", (await gateway.http.post(CHAT, json=body)).json())
    wrong = {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}
    refused = await gateway.http.post(CHAT, json=wrong)
    assert refused.status_code == 400
    check(document, "Error", refused.json())
    with pytest.raises(jsonschema.ValidationError):
        check(document, "ChatRequest", {"messages": "Hm?"})
    check(document, "AnthropicError", (await gateway.http.post("/v1/messages", content=b"x")).json())
    check(document, "Models", (await gateway.http.get("/v1/models")).json())


class TestPage:
    async def test_it_shows_every_route_and_body(self, gateway, document):
        text = (await gateway.http.get("/docs")).text
        for path in document["paths"]:
            assert f"<code>{path}</code>" in text
        assert text.count("<details") == text.count("</details>")
        for name in document["components"]["schemas"]:
            assert f'<details id="{name}">' in text

    async def test_it_needs_nothing_from_elsewhere(self, gateway):
        page = await gateway.http.get("/docs")
        assert "<script" not in page.text
        assert re.findall(r'(?:src|href)="([^"]*)"', page.text) == ["data:,", "openapi.json"]
        style = page.text.partition("<style>")[2].partition("</style>")[0]
        digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
        assert f"style-src 'sha256-{digest}'" in page.headers["content-security-policy"]
