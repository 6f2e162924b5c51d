import asyncio

import pytest

from benchmarks import clients
from benchmarks.bodies import text_request

BUSY = b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}"
DONE = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}"


@pytest.mark.parametrize(
    ("answer", "httpx_sees", "sdk_sees"),
    [
        (BUSY, {"429": 2}, {"429": 2}),
        (DONE, {"200": 2}, {"200": 2}),
        (b"", {"RemoteProtocolError": 2}, {"APIConnectionError": 2}),
    ],
)
async def test_each_client_reports_what_it_saw(answer, httpx_sees, sdk_sees):
    async def serve(reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))
        writer.write(answer)
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        seen = await clients.see(port, text_request(), count=2)
    assert seen == {"httpx": httpx_sees, "openai": sdk_sees}
