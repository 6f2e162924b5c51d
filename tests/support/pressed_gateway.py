"""A gateway with ten places before a model server that holds a request for as long as a test wants: under pressure."""

import asyncio
import json
from contextlib import AsyncExitStack, asynccontextmanager

from tests.support.live_gateway import MODEL, live_gateway, until
from tests.support.model_server import answer_chat, model_server, posts

AT_A_TENTH = {"enter": 0.1, "leave": 0.05}
"""One of ten places taken is enough."""


class Pressed:
    """A gateway with ten places, of which one is taken on demand; its ladder has a clock of its own."""

    def __init__(self, gateway, servers, release):
        self.gateway = gateway
        self.server, *_ = self.servers = servers
        self.relief = gateway.application._running.proxy._parts.relief
        self.relief.clock = lambda: self.now
        self.now = 0.0
        self._release = release
        self._holding = []

    async def press(self, *parts):
        """A stream with these parts is begun and does not go on."""
        self._release.clear()
        before = self._received
        holding = self.gateway.chat("Hold this.", *parts, max_tokens=1, stream=True)
        self._holding.append(asyncio.create_task(holding))
        await until(lambda: self._received > before)

    @property
    def _received(self):
        return sum(len(posts(server)) for server in self.servers)

    async def let_go(self):
        self._release.set()
        assert {answer.status_code for answer in await asyncio.gather(*self._holding)} <= {200}
        self._holding = []

    async def ease(self):
        """Nothing is held any more, and has not been for a while."""
        await self.let_go()
        await self.gateway.until_released()
        self.now += 60.0

    async def chat(self, *messages, headers=None, **fields):
        """The answer's headers and the body that the model server got."""
        body = {"model": MODEL, "messages": list(messages)} | fields
        answer = await self.gateway.http.post("/v1/chat/completions", json=body, headers=headers)
        assert answer.status_code == 200, answer.text
        return answer.headers, json.loads(posts(self.server)[-1].body)


@asynccontextmanager
async def pressed_gateway(pressure, *, is_pressed=True, has_two=False, **sections):
    release = asyncio.Event()

    async def script(visit):
        if b"Hold this." in visit.body:
            await release.wait()
        await answer_chat(visit)

    sections = {"budget": {"sequences": 10}, "pressure": pressure} | sections
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(model_server(script)) for _ in range(1 + has_two)]
        where = {name: server.base_url for name, server in zip("ab", servers, strict=False)}
        gateway = await stack.enter_async_context(live_gateway(where if has_two else where["a"], **sections))
        pressed = Pressed(gateway, servers, release)
        await gateway.until_up()
        if is_pressed:
            await pressed.press()
        try:
            yield pressed
        finally:
            await pressed.let_go()


def sent_images(body):
    return [
        part
        for message in body["messages"]
        if isinstance(message["content"], list)
        for part in message["content"]
        if part["type"] == "image_url"
    ]
