"""What a router between this gateway and vLLM is told in headers. Off unless a header is named."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from gateway.domain.priority import Priority
from gateway.settings.section import Section
from gateway.wire.hand_on import Carried

_KEPT = frozenset({"x-request-id", "x-api-key", "x-data-parallel-rank"})


def _header_name(name: str) -> str:
    if not re.fullmatch("x-[a-z0-9-]{1,62}", name):
        raise ValueError("must be a header's name in lower case that begins with x-")
    if name in _KEPT:
        raise ValueError("means something else to vLLM, or is the gateway's own")
    return name


_HeaderName = Annotated[str, AfterValidator(_header_name)]
_Word = Annotated[str, Field(pattern="^[!-~]{1,253}$")]


class ObjectiveSettings(Section):
    """What `objective` says of each class of requests: names of resources in the router's cluster."""

    critical: Annotated[_Word, Field(description="the name for the class critical: the most urgent class")] = "critical"
    interactive: Annotated[_Word, Field(description="the name for the class interactive: of people who wait")] = (
        "interactive"
    )
    default: Annotated[_Word, Field(description="the name for the class default: of those that say nothing")] = (
        "default"
    )
    batch: Annotated[_Word, Field(description="the name for the class batch: of what can wait")] = "batch"

    def of(self, priority: Priority) -> str:
        name: str = getattr(self, priority.label)
        return name


class HandOnSettings(Section):
    """In shadow mode nothing is handed on."""

    headers: dict[_HeaderName, Carried] = Field(
        default_factory=dict,
        description="what a router is told of each request, by header; what clients write there is left out",
    )
    objectives: ObjectiveSettings = ObjectiveSettings()
