"""A running gateway's preflight, asked for one body."""

import httpx
import msgspec

from gateway.cli.options import fail
from gateway.wire.report import Report, decode_report
from gateway.wire.routes import PREFLIGHT_PATH

_TIMEOUT_SECONDS = 60.0


def ask_gateway(url: str, body: bytes) -> Report:
    """The gateway's own verdict. What is no verdict ends the command with exit code 2 and a sentence."""
    try:
        with httpx.Client(trust_env=False, timeout=_TIMEOUT_SECONDS) as client:
            answer = client.post(
                url.rstrip("/") + PREFLIGHT_PATH, content=body, headers={"content-type": "application/json"}
            )
        if answer.status_code != httpx.codes.OK:
            fail(f"--live {url}: it answered {answer.status_code}: {_message(answer)}")
        return decode_report(answer.content)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        fail(f"--live {url}: {str(error) or type(error).__name__}. Is a vlm-gateway there?")
    except msgspec.DecodeError as error:
        fail(f"--live {url}: what it answered is no verdict: {error}. Is it a vlm-gateway of this version?")


def _message(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return answer.text[:500]
