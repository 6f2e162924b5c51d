"""Errors of the control routes, in the shape that all routes share."""

import random
from collections.abc import Mapping

from fastapi import Response

from gateway.domain.errors import GatewayError
from gateway.wire.errors import error_body, error_headers


def error_response(error: GatewayError, headers: Mapping[str, str]) -> Response:
    """`headers` go along with those of every refusal, for example `Allow`."""
    body = error_body(error)
    response = Response(body, status_code=error.status)
    response.raw_headers = error_headers(error, body, random.random())  # noqa: S311 - spreads clients, guards nothing
    response.headers.update(headers)
    return response
