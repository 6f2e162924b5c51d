"""A gateway with ten places before a model server that holds a request for as long as a test wants: under pressure."""

import asyncio
import json
from contextlib import asynccontextmanager

from tests.support.live_gateway import MODEL, live_gateway, until
from tests.support.model_server import answer_chat, model_server, posts

AT_A_TENTH = {"enter": 0.1, "leave": 0.05}
"""One of ten places taken is enough."""


class Pressed:
    """A gateway with ten places, of which one is taken on demand; its ladder has a clock of its own."""

    def __init__(self, gateway, server):
        self.gateway = gateway
        self.server = server
        self.relief = gateway.application._running.proxy._parts.relief
        self.relief.clock = lambda: self.now
        self.now = 0.0
        self._release = None
        self._holding = None

    async def press(self, *parts):
        """A stream with these parts is begun and does not go on."""
        self._release = self.server.release = asyncio.Event()
        before = len(posts(self.server))
        self._holding = asyncio.create_task(self.gateway.chat("Hold this.", *parts, max_tokens=1, stream=True))
        await until(lambda: len(posts(self.server)) > before)

    async def let_go(self):
        if self._holding is not None:
            self._release.set()
            assert (await self._holding).status_code == 200

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
async def pressed_gateway(pressure, *, is_pressed=True, **sections):
    async def script(visit):
        if b"Hold this." in visit.body:
            await server.release.wait()
        await answer_chat(visit)

    sections = {"budget": {"sequences": 10}, "pressure": pressure} | sections
    async with model_server(script) as server, live_gateway(server.base_url, **sections) as gateway:
        pressed = Pressed(gateway, server)
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
