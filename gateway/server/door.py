"""Step 0 of the story: what can be decided from the headers alone, before a byte of the body is read.

Synchronous on purpose: between looking at the queue and taking the seat nothing may be awaited.
"""

import itertools
import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from gateway.domain.errors import Code, GatewayError
from gateway.domain.priority import Priority
from gateway.domain.tenancy import identity_of_name
from gateway.server.content_coding import CODINGS
from gateway.server.receive import too_large

Headers = Sequence[tuple[bytes, bytes]]

_SAFE_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")
_COUNT = re.compile(rb"[0-9]{1,19}")
_MILLISECONDS = re.compile(rb"[0-9]{1,15}(?:\.[0-9]{1,15})?")
_PRIORITIES = {priority.label.encode(): priority for priority in Priority}
_COUNTING = {b"estimate": True, b"upstream": False}
_JSON = b"application/json"
_ANY_FILE = b"application/octet-stream"
_JSON_TYPES = re.compile(rb"application/(?:[a-z0-9.+-]*\+)?json\s*(?:;.*)?", re.IGNORECASE)


@dataclass(slots=True)
class Arrival:
    """What the headers say. `content_length` None means chunked; `client_request_id` is safe to log and echo.

    The token is without `Bearer`; both keys are empty where there is none. `named_as` is what a trusted proxy says.
    """

    content_length: int | None = None
    content_encoding: bytes = b""
    content_type: bytes = b""
    client_request_id: str | None = None
    resize_preset: str | None = None
    expects_continue: bool = False
    is_return: bool = False
    bearer_token: bytes = field(default=b"", repr=False)
    api_key: bytes = field(default=b"", repr=False)
    priority_word: bytes | None = None
    deadline_text: bytes | None = None
    counting_word: bytes | None = None
    named_as: bytes | None = None

    @property
    def identity(self) -> bytes:
        """By which one client is told from another, whatever their tenants are called."""
        return self.key if self.named_as is None else identity_of_name(self.named_as)

    @property
    def key(self) -> bytes:
        """The client's; empty where there is none."""
        return self.bearer_token or self.api_key

    @property
    def priority(self) -> Priority | None:
        """What `x-gateway-priority` asks for; None also where it cannot be read."""
        return None if self.priority_word is None else _PRIORITIES.get(self.priority_word.strip().lower())

    @property
    def deadline_seconds(self) -> float | None:
        """What `x-gateway-deadline-ms` leaves from arrival; None also where it cannot be read."""
        text = self.deadline_text
        if text is None or not _MILLISECONDS.fullmatch(text.strip()):
            return None
        return float(text) / 1000.0 or None

    @property
    def counts_here(self) -> bool | None:
        """What `x-gateway-tokens` asks for; None also where it cannot be read."""
        return None if self.counting_word is None else _COUNTING.get(self.counting_word.strip().lower())

    @property
    def is_coded(self) -> bool:
        return self.content_encoding not in {b"", b"identity"}

    @property
    def is_json(self) -> bool:
        return self.content_type == _JSON or _JSON_TYPES.fullmatch(self.content_type) is not None


def read_headers(headers: Iterable[tuple[bytes, bytes]]) -> Arrival:
    """Names are lower case, as ASGI promises; of those that come twice, the last counts.

    Unknown headers are no business of the door.
    """
    arrival = Arrival()
    for name, value in headers:
        note = _NOTES.get(name)
        if note is not None:
            note(arrival, value)
    return arrival


def _note_length(arrival: Arrival, value: bytes) -> None:
    arrival.content_length = int(value) if _COUNT.fullmatch(value) else None


def _note_type(arrival: Arrival, value: bytes) -> None:
    arrival.content_type = value.strip()


def _note_encoding(arrival: Arrival, value: bytes) -> None:
    arrival.content_encoding = value.strip().lower()


def _note_request_id(arrival: Arrival, value: bytes) -> None:
    arrival.client_request_id = value.decode("ascii") if _SAFE_ID.fullmatch(value) else None


def _note_resize(arrival: Arrival, value: bytes) -> None:
    arrival.resize_preset = value.decode("latin-1").strip().lower()


def _note_priority(arrival: Arrival, value: bytes) -> None:
    arrival.priority_word = value


def _note_deadline(arrival: Arrival, value: bytes) -> None:
    arrival.deadline_text = value


def _note_counting(arrival: Arrival, value: bytes) -> None:
    arrival.counting_word = value


def _note_retries(arrival: Arrival, value: bytes) -> None:
    arrival.is_return = value not in {b"", b"0"}


def _note_expect(arrival: Arrival, value: bytes) -> None:
    arrival.expects_continue = value.lower() == b"100-continue"


def _note_authorization(arrival: Arrival, value: bytes) -> None:
    scheme, _, token = value.partition(b" ")
    arrival.bearer_token = token.strip() if scheme.lower() == b"bearer" else b""


def _note_api_key(arrival: Arrival, value: bytes) -> None:
    arrival.api_key = value.strip()


# A table costs three fifths of looking each name up in the headers (measured with the eleven headers of an SDK).
_NOTES = {
    b"content-length": _note_length,
    b"content-type": _note_type,
    b"content-encoding": _note_encoding,
    b"x-request-id": _note_request_id,
    b"x-gateway-resize": _note_resize,
    b"x-gateway-priority": _note_priority,
    b"x-gateway-deadline-ms": _note_deadline,
    b"x-gateway-tokens": _note_counting,
    b"x-stainless-retry-count": _note_retries,  # how often OpenAI's SDK has tried before
    b"expect": _note_expect,
    b"authorization": _note_authorization,
    b"x-api-key": _note_api_key,
}


_process = secrets.token_hex(8)
_numbers = itertools.count()


def new_request_id() -> str:
    """The id that vLLM gets, like no other of any gateway. The client's own is never passed on: two could be alike."""
    return f"gw-{_process}{next(_numbers):08x}"


def refuse_length(arrival: Arrival, max_body_bytes: int) -> None:
    """413 where the announced length is already over the limit."""
    if arrival.content_length is not None and arrival.content_length > max_body_bytes:
        raise too_large(arrival.content_length, max_body_bytes)


def refuse_unreadable(arrival: Arrival) -> None:
    """400 for a priority or deadline that says nothing: a typing mistake would else go unnoticed until an overload."""
    if arrival.counting_word is not None and arrival.counts_here is None:
        raise _unreadable("x-gateway-tokens", arrival.counting_word, "estimate or upstream")
    if arrival.priority_word is not None and arrival.priority is None:
        words = ", ".join(priority.label for priority in Priority)
        raise _unreadable("x-gateway-priority", arrival.priority_word, f"one of {words}")
    if arrival.deadline_text is not None and arrival.deadline_seconds is None:
        raise _unreadable("x-gateway-deadline-ms", arrival.deadline_text, "a positive number of milliseconds")


def _unreadable(name: str, value: bytes, what: str) -> GatewayError:
    shown = value.decode("latin-1")[:100]
    return GatewayError(Code.INVALID_REQUEST, f"{name} is {shown!r}; send {what}.", param=name)


def refuse_coding(arrival: Arrival) -> None:
    """415 for a `Content-Encoding` that cannot be undone here."""
    if arrival.is_coded and arrival.content_encoding not in CODINGS:
        shown = arrival.content_encoding.decode("latin-1")[:100]
        raise GatewayError(
            Code.UNSUPPORTED_CONTENT_ENCODING,
            f"Content-Encoding {shown!r} is not supported; use gzip, deflate, br, zstd or none, and no two of them.",
            param="content-encoding",
        )


def refuse_media_type(arrival: Arrival) -> None:
    """JSON only, as vLLM has it; saying it here saves the upload."""
    if not arrival.is_json:
        shown = arrival.content_type.decode("latin-1")[:100] or "nothing"
        raise GatewayError(
            Code.INVALID_REQUEST, f"Content-Type is {shown!r}; send 'application/json'.", param="content-type"
        )


def refuse_other_than_a_picture(arrival: Arrival) -> None:
    """For a body that is the file itself. No page of another site can send these types without being asked first."""
    kind = arrival.content_type.partition(b";")[0].strip().lower()
    if kind != _ANY_FILE and not kind.startswith(b"image/"):
        shown = kind.decode("latin-1")[:100] or "nothing"
        raise GatewayError(
            Code.INVALID_REQUEST,
            f"Content-Type is {shown!r}; send the picture's file as 'application/octet-stream'.",
            param="content-type",
        )
