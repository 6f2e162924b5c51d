"""Ordinary logging by structlog, so that the gateway's lines, uvicorn's and those of libraries have one shape.

They go to standard error (log_output.py): as JSON, or in colours where a person reads it. Standard output belongs to
the request log, which does without structlog (request_log.py says why). Whatever a library writes, keys have no place
in a line: what looks like one, and each secret of the settings, is blotted out of the finished text.
"""

import logging
import re
import sys
from collections.abc import Collection, Mapping, MutableMapping
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
from structlog.dev import ConsoleRenderer, plain_traceback
from structlog.processors import ExceptionRenderer, JSONRenderer
from structlog.stdlib import ExtraAdder, ProcessorFormatter
from structlog.typing import Processor

from gateway.telemetry.log_output import BackgroundHandler

LogFormat = Literal["auto", "json", "console"]

_BLOT = "[secret]"
_LOOKS_LIKE_A_KEY = re.compile(
    r"""
    (                                                                      # what stays, for it tells what was there
      \b (?: api[-_]?key | access[-_]?token | authorization | password )
      \\?["']? \s* [:=] \s* (?: b?\\?["'] )? (?: (?:bearer|basic) \s+ )?   # in JSON within JSON too
      | \b (?:bearer|basic) \s+
      | \b (?: sk | hf | ghp ) [-_] (?= [A-Za-z0-9_-]{8} )
    )
    (?! \[secret\] ) [^\s"',;&)}\]\\]{4,}
    """,
    re.IGNORECASE | re.VERBOSE,
)
_ADDRESS_WITH_PASSWORD = re.compile(r"(://)[^/\s:@\"]*:[^/\s@\"]+@")

_Event = MutableMapping[str, Any]


def logging_config(
    level: str, log_format: LogFormat = "auto", secrets: Collection[str] = (), *, writes_at_once: bool = False
) -> dict[str, object]:
    """For `logging.config.dictConfig` and uvicorn's `log_config`; `level` as in the settings, e.g. `info`. `auto` is
    for people where standard error is a terminal, JSON elsewhere. None of `secrets` is ever in a line. What
    `writes_at_once` may be held up by whoever reads it: that is for commands that serve nobody.

    uvicorn's access log is off: the request log says more. httpx's line per request is off too: polling would fill it.
    """
    is_console = log_format == "console" or (log_format == "auto" and sys.stderr.isatty())
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "line": {
                "()": LineFormatter,
                "processors": _for_people() if is_console else _for_machines(),
                "foreign_pre_chain": _OF_A_RECORD,
                "secrets": secrets,
            },
        },
        "handlers": {
            "stderr": {"()": logging.StreamHandler if writes_at_once else BackgroundHandler, "formatter": "line"},
        },
        "root": {"level": level.upper(), "handlers": ["stderr"]},
        "loggers": {
            "uvicorn": {"level": level.upper()},
            "uvicorn.access": {"level": "WARNING"},
            "httpx": {"level": "WARNING"},
        },
    }


class LineFormatter(ProcessorFormatter):
    """structlog's, whose lines have no secrets: neither these nor what looks like a key."""

    def __init__(self, *args: Any, secrets: Collection[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        spelled = {spelling for secret in secrets for spelling in (secret, _in_json(secret))}
        # The longest first: one may be the beginning of another.
        self._secrets = sorted(spelled, key=len, reverse=True)

    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        for secret in self._secrets:
            line = line.replace(secret, _BLOT)
        line = _ADDRESS_WITH_PASSWORD.sub(rf"\1{_BLOT}@", line)
        return _LOOKS_LIKE_A_KEY.sub(rf"\g<1>{_BLOT}", line)


def _in_json(text: str) -> str:
    return msgspec.json.encode(text).decode()[1:-1]


def _message(_logger: Any, _method: str, event: _Event) -> _Event:
    """By structlog it is called `event`, which may be the name of a value beside it."""
    event["message"] = event.pop("event")
    return event


def _head(_logger: Any, _method: str, event: _Event) -> _Event:
    """What every line begins with; what uvicorn adds for its own colours is left out."""
    record: logging.LogRecord = event["_record"]
    event.pop("color_message", None)
    head = {
        "time": datetime.fromtimestamp(record.created, UTC),
        "level": record.levelname.lower(),
        "logger": record.name,
        "message": event.pop("message"),
    }
    return head | {name: value for name, value in event.items() if name not in head}


def _traceback(_logger: Any, _method: str, event: _Event) -> _Event:
    if "exception" in event:
        event["traceback"] = event.pop("exception")
    return event


def _short_time(_logger: Any, _method: str, event: _Event) -> _Event:
    event["time"] = f"{event['time']:%H:%M:%S}"
    return event


def _dumps(event: Mapping[str, Any], **_options: Any) -> str:
    return msgspec.json.encode(event, enc_hook=str).decode()


_OF_A_RECORD: list[Processor] = [_message, ExtraAdder(), _head]


def _for_machines() -> list[Processor]:
    """One object per record: time, level, logger, message, whatever was passed as `extra`, and the traceback."""
    return [ProcessorFormatter.remove_processors_meta, ExceptionRenderer(), _traceback, JSONRenderer(_dumps)]


def _for_people() -> list[Processor]:
    """The same in one row, the traceback below it; with colours where standard error shows them."""
    return [
        ProcessorFormatter.remove_processors_meta,
        _short_time,
        ConsoleRenderer(
            colors=sys.stderr.isatty(),
            pad_event_to=0,
            timestamp_key="time",
            event_key="message",
            exception_formatter=plain_traceback,
        ),
    ]
