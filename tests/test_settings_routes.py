"""`routes.open`: only what is closed, and can be served, may be named there."""

import pytest
from pydantic import ValidationError

from gateway.settings import Settings


def test_nothing_is_open_by_default():
    assert Settings().routes.open == ()


@pytest.mark.parametrize(
    "path",
    ["/invocations", "/sleep", "/v1/load_lora_adapter", "/fault_tolerance/status", "/inference/v1/generate", "/ping"],
)
def test_closed_routes_may_be_opened(path):
    assert Settings.model_validate({"routes": {"open": [path]}}).routes.open == (path,)


@pytest.mark.parametrize(
    "path",
    ["/v1/chat/completions", "/v1/responses", "/v1/realtime", "/inference/", "/", "sleep", "/sleep/", "/metrics", "*"],
)
def test_nothing_else_may(path):
    with pytest.raises(ValidationError, match=r"routes\.open\.0\n.*no route that can be opened: docs/closed-routes"):
        Settings.model_validate({"routes": {"open": [path]}})
