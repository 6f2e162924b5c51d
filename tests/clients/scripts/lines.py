"""How tests talk to a client: a line of JSON on its input says what to do, one on its output what the client saw.

These scripts run in the clients' own environment and import nothing of the project. A line has `do`, `url` (of the
gateway, without /v1) and what the action takes; `{"ready": true}` comes once all is imported.
"""

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

MODEL = "tiny"
KEY = "sk-clients"
QUESTION = "What is in it?"

Action = Callable[..., dict[str, Any]]


def serve(actions: Mapping[str, Action]) -> None:
    """Until the input ends."""
    tell({"ready": True})
    for line in sys.stdin:
        asked = json.loads(line)
        tell(_seen(actions[asked.pop("do")], asked))


def tell(what: Mapping[str, Any]) -> None:
    sys.__stdout__.write(json.dumps(what) + "\n")
    sys.__stdout__.flush()


def _seen(action: Action, asked: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return action(**asked)
    except Exception as error:  # noqa: BLE001 - which it is, is what tests ask
        return {
            "error": type(error).__name__,
            "module": type(error).__module__.partition(".")[0],
            "status": getattr(error, "status_code", None),
            "message": str(error),
        }
