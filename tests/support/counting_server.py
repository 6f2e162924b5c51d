"""A model server as calibration sees it: something that counts tokens, by the emulator's arithmetic."""

import asyncio
import struct

from gateway.domain.geometry import Size
from gateway.emulator.vision import FAMILIES
from gateway.upstream.counting import Way

TEXT_TOKENS = 20


def size_of(picture):
    return Size(*struct.unpack(">II", picture[16:24]))


class Counting:
    """Counts as a server of the family does. `asked` are its questions; `before` runs ahead of each answer."""

    def __init__(self, family="qwen2_5_vl"):
        self.family = FAMILIES[family]
        self.asked = []
        self.pictures = []
        self.closed = 0
        self.failure = None
        self.expands = set(Way)
        self.before = lambda: None

    async def count(self, way, model, picture):
        size = None if picture is None else size_of(picture)
        self.asked.append((way, model, size))
        self.pictures.append(picture)
        self.before()
        await asyncio.sleep(0)
        if self.failure is not None:
            raise self.failure
        if size is None:
            return TEXT_TOKENS
        visual = self.family.visual_tokens(size.width, size.height) if way in self.expands else 1
        return TEXT_TOKENS + visual + 2

    async def close(self):
        self.closed += 1
