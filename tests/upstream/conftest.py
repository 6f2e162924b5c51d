"""The server that the tests of this folder talk to."""

from collections.abc import AsyncIterator

import pytest

from tests.support.raw_http import Stub, answer_ok, raw_http_server


@pytest.fixture
async def stub() -> AsyncIterator[Stub]:
    async with raw_http_server(answer_ok) as stub:
        yield stub
