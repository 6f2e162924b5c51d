"""Routes of vLLM that are closed unless they are named here."""

from typing import Annotated

from pydantic import AfterValidator, Field

from gateway.settings.section import Section
from gateway.wire.closed_routes import can_be_opened


def _closed_path(text: str) -> str:
    if not can_be_opened(text):
        raise ValueError("is no route that can be opened: docs/closed-routes.md lists those that can")
    return text


class RouteSettings(Section):
    """What of vLLM is closed, and why, tells docs/closed-routes.md."""

    open: Annotated[
        tuple[Annotated[str, AfterValidator(_closed_path)], ...],
        Field(
            description="paths of closed routes that every client may call all the same. Except for /invocations, "
            "their bodies go on unread and unpriced, without a place in the line: open none to clients that are not "
            "trusted"
        ),
    ] = ()
