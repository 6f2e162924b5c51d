"""A model server that answers nonsense: a clean status for the client, everything given back, the gateway alive."""

import httpx
import pytest

from tests.support import odd_answers
from tests.support.live_gateway import CHAT, chat, live_gateway
from tests.support.model_server import error_of, model_server

LIMITS = {"first_byte_timeout_seconds": 1, "gap_timeout_seconds": 1, "total_timeout_seconds": 2}
WHOLE = [*odd_answers.STATUSES, *odd_answers.HEADS, *odd_answers.BODIES, *odd_answers.USAGES]
CASES = [pytest.param(odd, False, id=str(odd)) for odd in WHOLE]
CASES += [pytest.param(odd, True, id=f"{odd}, to a stream") for odd in odd_answers.BODIES + odd_answers.STREAMS]


async def seen_by_a_client(gateway, *, stream):
    """Status and body; what breaks off has no status."""
    try:
        answer = await gateway.http.post(CHAT, json=chat(stream=stream))
    except httpx.RemoteProtocolError:
        return None, b""
    if answer.status_code in {502, 504}:
        message = error_of(answer)["message"]
        assert "\n" not in message
        assert "yyy" not in message
    return answer.status_code, answer.content


@pytest.mark.parametrize(("odd", "stream"), CASES)
async def test_an_odd_answer_hurts_nobody(odd, stream, caplog):
    async with model_server(odd.script) as upstream, live_gateway(upstream.base_url, upstream=LIMITS) as gateway:
        status, body = await seen_by_a_client(gateway, stream=stream)
        if odd.is_faulty:
            assert status in {None, 502, odd.status}
            assert status != 200 or b'"code":"upstream_' in body
        else:
            assert status == odd.status, body[:300]
            assert odd.body is None or body == odd.body
        await gateway.until_released()
        assert sum(gateway.ended().values()) == 1
        assert "gateway_fault" not in gateway.ended()
        assert (await gateway.http.get("/livez")).status_code == 200
    assert "fault of the gateway" not in caplog.text
