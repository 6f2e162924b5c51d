"""Step 0 of the story: what can be decided from the headers alone, before a byte of the body is read.

Synchronous on purpose: between looking at the queue and taking the seat nothing may be awaited.
"""

import itertools
import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gateway.domain.errors import Code, GatewayError
from gateway.server.receive import CODINGS, too_large

Headers = Sequence[tuple[bytes, bytes]]

_SAFE_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")
_COUNT = re.compile(rb"[0-9]{1,19}")
_JSON = b"application/json"
_JSON_TYPES = re.compile(rb"application/(?:[a-z0-9.+-]*\+)?json\s*(?:;.*)?", re.IGNORECASE)


@dataclass(slots=True)
class Arrival:
    """What the headers say. `content_length` None means chunked; `client_request_id` is safe to log and echo."""

    content_length: int | None = None
    content_encoding: bytes = b""
    content_type: bytes = b""
    client_request_id: str | None = None
    resize_preset: str | None = None
    expects_continue: bool = False
    is_return: bool = False

    @property
    def is_coded(self) -> bool:
        return self.content_encoding not in {b"", b"identity"}

    @property
    def is_json(self) -> bool:
        return self.content_type == _JSON or _JSON_TYPES.fullmatch(self.content_type) is not None


def read_headers(headers: Iterable[tuple[bytes, bytes]]) -> Arrival:
    """Names are lower case, as ASGI promises. Unknown headers are no business of the door."""
    arrival = Arrival()
    for name, value in headers:
        if name == b"content-length":
            arrival.content_length = int(value) if _COUNT.fullmatch(value) else None
        elif name == b"content-type":
            arrival.content_type = value.strip()
        elif name == b"content-encoding":
            arrival.content_encoding = value.strip().lower()
        elif name == b"x-request-id":
            arrival.client_request_id = value.decode("ascii") if _SAFE_ID.fullmatch(value) else None
        elif name == b"x-gateway-resize":
            arrival.resize_preset = value.decode("latin-1").strip().lower()
        elif name == b"x-stainless-retry-count":  # OpenAI's SDK says how often it has tried
            arrival.is_return = value not in {b"", b"0"}
        elif name == b"expect":
            arrival.expects_continue = value.lower() == b"100-continue"
    return arrival


_process = secrets.token_hex(8)
_numbers = itertools.count()


def new_request_id() -> str:
    """The id that vLLM gets, like no other of any gateway. The client's own is never passed on: two could be alike."""
    return f"gw-{_process}{next(_numbers):08x}"


def refuse_length(arrival: Arrival, max_body_bytes: int) -> None:
    """413 where the announced length is already over the limit."""
    if arrival.content_length is not None and arrival.content_length > max_body_bytes:
        raise too_large(arrival.content_length, max_body_bytes)


def refuse_coding(arrival: Arrival) -> None:
    """415 for a `Content-Encoding` that cannot be undone here."""
    if arrival.is_coded and arrival.content_encoding not in CODINGS:
        shown = arrival.content_encoding.decode("latin-1")[:100]
        raise GatewayError(
            Code.UNSUPPORTED_CONTENT_ENCODING,
            f"Content-Encoding {shown!r} is not supported; use gzip, deflate or none.",
            param="content-encoding",
        )


def refuse_media_type(arrival: Arrival) -> None:
    """JSON only, as vLLM has it; saying it here saves the upload."""
    if not arrival.is_json:
        shown = arrival.content_type.decode("latin-1")[:100] or "nothing"
        raise GatewayError(
            Code.INVALID_REQUEST, f"Content-Type is {shown!r}; send 'application/json'.", param="content-type"
        )
