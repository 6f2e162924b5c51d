"""Ordinary log lines have one shape, whoever writes them, and no secrets."""

import json
import logging
import logging.config
import sys
from collections.abc import Iterator

import pytest

from gateway.telemetry.logs import LineFormatter, logging_config


def formatter(log_format: str = "json", secrets: tuple[str, ...] = ()) -> logging.Formatter:
    made = logging.config.DictConfigurator({}).configure_formatter(
        dict(logging_config("info", log_format, secrets)["formatters"]["line"])
    )
    assert isinstance(made, LineFormatter)
    return made


def line_of(log_format: str = "json", secrets: tuple[str, ...] = (), **fields: object) -> str:
    record = logging.makeLogRecord({"name": "gateway.app", "levelname": "INFO", "created": 0.0, **fields})
    return formatter(log_format, secrets).format(record)


def formatted(**fields: object) -> dict[str, object]:
    line = line_of(**fields)
    assert "\n" not in line
    return json.loads(line)


def failure() -> object:
    try:
        int("odd")
    except ValueError:
        return sys.exc_info()


class TestJson:
    def test_a_line_has_time_level_logger_and_message(self) -> None:
        line = formatted(msg="%d models\nfound", args=(2,))
        assert line == {
            "time": "1970-01-01T00:00:00Z",
            "level": "info",
            "logger": "gateway.app",
            "message": "2 models\nfound",
        }
        assert [*line] == ["time", "level", "logger", "message"]

    def test_extra_fields_stand_beside_whatever_they_are(self) -> None:
        line = formatted(
            msg="up", upstream="http://127.0.0.1:8000", error=ValueError("odd"), color_message="\x1b[1mup", event="read"
        )
        assert (line["message"], line["event"]) == ("up", "read")
        assert (line["upstream"], line["error"]) == ("http://127.0.0.1:8000", "odd")
        assert "color_message" not in line

    def test_a_traceback_stays_in_its_line(self) -> None:
        line = formatted(msg="failed", exc_info=failure())
        assert "ValueError: invalid literal" in str(line["traceback"])
        assert "exception" not in line


class TestConsole:
    def test_one_row_with_the_time_of_day_first(self) -> None:
        row = line_of("console", msg="%d models", args=(2,), upstream="a")
        assert row.split() == ["00:00:00", "[info", "]", "2", "models", "[gateway.app]", "upstream=a"]

    def test_the_traceback_is_below_it(self) -> None:
        first, *rest = line_of("console", msg="failed", exc_info=failure()).splitlines()
        assert "failed" in first
        assert rest[-1].startswith("ValueError: invalid literal")

    @pytest.mark.parametrize(("is_terminal", "is_json"), [(True, False), (False, True)])
    def test_unasked_it_is_for_terminals(
        self, is_terminal: bool, is_json: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal, raising=False)
        row = line_of("auto", msg="up")
        assert row.startswith("{") is is_json
        assert ("\x1b[" in row) is is_terminal


HIDDEN = "planted-7Yq2"


class TestSecrets:
    @pytest.mark.parametrize("log_format", ["json", "console"])
    @pytest.mark.parametrize(
        "text",
        [
            f"Authorization: Bearer {HIDDEN}",
            f"headers=[(b'authorization', b'Bearer {HIDDEN}')]",
            f'{{"Authorization": "Basic {HIDDEN}="}}',
            f"x-api-key: {HIDDEN}",
            f"api_key='{HIDDEN}'",
            f"GET http://host/metrics?access_token={HIDDEN}&x=1",
            f"cannot reach https://user:{HIDDEN}@proxy:3128/",
            f"key sk-{HIDDEN} is unknown",
            f"HF_TOKEN is hf_{HIDDEN}",
            f"password = {HIDDEN}",
            f'{{"body": {{"api_key": "{HIDDEN}"}}}}',
        ],
    )
    def test_what_looks_like_a_key_is_blotted_out(self, text: str, log_format: str) -> None:
        for line in (line_of(log_format, msg=text), line_of(log_format, msg="%s", args=(text,)),
                     line_of(log_format, msg="odd", error=ValueError(text))):  # fmt: skip
            assert HIDDEN not in line
            assert "[secret]" in line

    def test_the_line_is_still_json(self) -> None:
        line = json.loads(line_of(msg='{"authorization": "Bearer abcdef"}', name="x"))
        assert line["message"] == '{"authorization": "Bearer [secret]"}'

    def test_secrets_of_the_settings_whatever_they_look_like(self) -> None:
        secrets = ("correct", 'horse"battery', "correct-staple")
        message = 'correct-staple, correct, horse"battery'
        assert json.loads(line_of("json", secrets, msg=message))["message"] == "[secret], [secret], [secret]"
        assert "[secret], [secret], [secret]" in line_of("console", secrets, msg=message)

    def test_in_a_traceback_too(self) -> None:
        error = ValueError(f"Bearer {HIDDEN}")
        assert HIDDEN not in line_of(msg="failed", exc_info=(ValueError, error, None))

    @pytest.mark.parametrize(
        "text",
        ["a bearer of news", "tokens: 7", "max_tokens=512", "sk-1", "http://host:80/a@b", "api_key is set"],
    )
    def test_all_else_stays_as_it_is(self, text: str) -> None:
        assert formatted(msg=text)["message"] == text


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
    logging.getLogger().handlers[0].close()  # until then its lines are on their way
    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line)["message"] == "Started server process [7]"
