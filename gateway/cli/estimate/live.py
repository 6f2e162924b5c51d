"""A running gateway's preflight, asked for one body."""

import httpx
import msgspec

from gateway.cli.options import fail
from gateway.wire.report import Report, decode_report
from gateway.wire.routes import PREFLIGHT_PATH

KEY_VARIABLE = "VLM_GATEWAY_KEY"  # without the prefix of settings, which it is not
_TIMEOUT_SECONDS = 60.0
_JSON = {"content-type": "application/json"}


def ask_gateway(url: str, body: bytes, endpoint: str | None = None, api_key: str | None = None) -> Report:
    """The gateway's own verdict on what is for `endpoint`; None: the gateway knows by its fields what it is for.
    What is no verdict ends the command with exit code 2 and a sentence.
    """
    try:
        with httpx.Client(trust_env=False, timeout=_TIMEOUT_SECONDS) as client:
            answer = client.post(
                url.rstrip("/") + PREFLIGHT_PATH,
                params=None if endpoint is None else {"route": endpoint},
                content=body,
                headers=_JSON if api_key is None else _JSON | {"authorization": f"Bearer {api_key}"},
            )
        if answer.status_code == httpx.codes.UNAUTHORIZED:
            fail(f"--live {url}: {_message(answer)} Here: {KEY_VARIABLE} in the environment, or --api-key KEY.")
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
