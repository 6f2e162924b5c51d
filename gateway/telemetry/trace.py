"""What the rest of the gateway knows of traces; tracing.py makes them where an extra is installed."""

from collections.abc import Sequence
from typing import Protocol

from gateway.telemetry.request_log import RequestRecord

Headers = Sequence[tuple[bytes, bytes]]


class Trace(Protocol):
    """The span of one request. `id`: what others may name it by; None where it is not kept."""

    id: str | None

    def onward(self, headers: Headers) -> Headers:
        """Those of the request to the model server."""
        ...

    def end(self, record: RequestRecord) -> None:
        """The request has ended, as its record says."""
        ...


class Tracing(Protocol):
    """Begins a trace for each request, below what the client's headers name."""

    def begin(self, headers: Headers) -> Trace: ...

    def close(self) -> None:
        """Sends what is still here. Blocking."""
        ...
