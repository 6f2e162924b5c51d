"""Ordinary log lines are JSON of one shape."""

import json
import logging
import logging.config
import sys
from collections.abc import Iterator

import pytest

from gateway.telemetry.logs import JsonFormatter, logging_config


def formatted(**fields: object) -> dict[str, object]:
    record = logging.makeLogRecord({"name": "gateway.app", "levelname": "INFO", "created": 0.0, **fields})
    line = JsonFormatter().format(record)
    assert "\n" not in line
    return json.loads(line)


def test_a_line_has_time_level_logger_and_message() -> None:
    assert formatted(msg="%d models\nfound", args=(2,)) == {
        "time": "1970-01-01T00:00:00Z",
        "level": "info",
        "logger": "gateway.app",
        "message": "2 models\nfound",
    }


def test_extra_fields_stand_beside_whatever_they_are() -> None:
    line = formatted(msg="up", upstream="http://127.0.0.1:8000", error=ValueError("odd"), color_message="\x1b[1mup")
    assert (line["upstream"], line["error"]) == ("http://127.0.0.1:8000", "odd")
    assert "color_message" not in line


def test_a_traceback_stays_in_its_line() -> None:
    try:
        int("odd")
    except ValueError:
        line = formatted(msg="failed", exc_info=sys.exc_info())
    assert "ValueError: invalid literal" in str(line["traceback"])


@pytest.fixture
def restored_logging() -> Iterator[None]:
    """Loggers as a fresh process has them: servers of earlier tests leave levels and handlers of their own."""
    loggers = [logging.getLogger(name) for name in (None, "uvicorn", "uvicorn.error", "uvicorn.access", "httpx")]
    before = [(logger.handlers[:], logger.level, logger.propagate) for logger in loggers]
    for logger in loggers[1:]:
        logger.handlers[:], logger.propagate = [], True
        logger.setLevel(logging.NOTSET)
    yield
    for logger, (handlers, level, propagate) in zip(loggers, before, strict=True):
        logger.handlers[:], logger.propagate = handlers, propagate
        logger.setLevel(level)


@pytest.mark.usefixtures("restored_logging")
def test_the_configuration_covers_uvicorn_and_quiets_the_poller(capsys: pytest.CaptureFixture[str]) -> None:
    logging.config.dictConfig(logging_config("info"))
    logging.getLogger("uvicorn.error").info("Started server process [%d]", 7)
    logging.getLogger("uvicorn.access").info("GET /health")
    logging.getLogger("httpx").info("HTTP Request: GET /health")
    logging.getLogger("gateway.x").debug("too fine")
    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line)["message"] == "Started server process [7]"
