"""Who may see the status page."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from gateway.settings.section import Section

_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]*[a-z0-9])?")


def _host_name(text: str) -> str:
    name = text.lower()
    if not _NAME.fullmatch(name):
        raise ValueError("must be a host's name as browsers send it, without http:// and without a port")
    return name


class StatusPageSettings(Section):
    """`/gateway/`: what is held, waits and was refused, and what a picture would cost. No key is asked for, as nowhere
    here.
    """

    visible_to: Annotated[
        Literal["loopback", "everyone", "nobody"],
        Field(description="loopback: clients on this machine, judged by their connection; nobody: there is no page"),
    ] = "loopback"
    hosts: Annotated[
        tuple[Annotated[str, AfterValidator(_host_name)], ...],
        Field(description="names by which browsers may call the page, beside localhost and plain addresses"),
    ] = ()
