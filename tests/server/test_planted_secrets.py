"""Keys and tokens that are planted wherever a client or an operator can write one: no line has any of them."""

import json
import logging
import logging.config

from gateway.settings.secrets import secrets_of
from gateway.telemetry.logs import logging_config
from tests.support.live_gateway import image, live_gateway, settings_of
from tests.support.model_server import model_server

PLANTED = ("sk-client-7Yq2", "sk-other-7Yq2", "sk-engine-7Yq2", "user7Yq2", "pass7Yq2", "sig7Yq2")


async def echoing(visit):
    """A server that repeats what it was sent with its refusal, as careless ones do."""
    told = json.dumps({"error": {"message": f"odd: {visit.header('authorization')}", "code": 500}})
    await visit.answer("500 Internal Server Error", told.encode(), "content-type: application/json")


async def ask_in_many_ways(gateway):
    keys = {"authorization": "Bearer sk-client-7Yq2", "x-api-key": "sk-other-7Yq2"}
    address = "https://user7Yq2:pass7Yq2@10.0.0.9/a.png?signature=sig7Yq2"
    await gateway.chat("Hello.", headers=keys)
    await gateway.chat("What?", image(address), headers=keys)
    await gateway.chat("What?", image("data:image/png;base64,AAAA"), headers=keys)
    await gateway.chat("Hello.", headers=keys | {"x-gateway-priority": "odd"})
    await gateway.http.get("/v1/models/none", headers=keys)
    await gateway.http.post("/v1/chat/completions", content=b"{", headers=keys | {"content-type": "application/json"})
    await gateway.http.get("/nowhere?key=sk-client-7Yq2", headers=keys)


async def test_no_line_and_no_page_has_one_of_them(caplog):
    caplog.set_level(logging.DEBUG)
    upstream = {"api_key": "sk-engine-7Yq2"}
    remote = {"remote": {"policy": "inline"}}
    async with (
        model_server(echoing) as server,
        live_gateway(server.base_url, upstream=upstream, images=remote) as gateway,
    ):
        await gateway.until_up()
        await ask_in_many_ways(gateway)
        lines = await gateway.log(7)
        status = gateway.application.status().decode()
        page = (await gateway.http.get("/metrics")).text
    settings = settings_of(server.base_url, upstream=upstream)
    formatter = logging.config.DictConfigurator({}).configure_formatter(
        dict(logging_config("debug", "json", secrets_of(settings))["formatters"]["line"])
    )
    own = "\n".join(map(formatter.format, caplog.records))
    assert own
    for text in (json.dumps(lines), status, page, own):
        assert not [each for each in PLANTED if each in text]
