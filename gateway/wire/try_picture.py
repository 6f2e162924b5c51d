"""A picture that is tried on the status page: the request that it stands for, and the answer. For that page alone."""

import msgspec
import pybase64

from gateway.domain.request import Span
from gateway.wire.report import EstimateReport, VerdictReport

_BEFORE = (
    b'"messages":[{"role":"user","content":[{"type":"image_url",'
    b'"image_url":{"url":"data:application/octet-stream;base64,'
)
_AFTER = b'"}},{"type":"text","text":"What is in this picture?"}]}]}'


class FoundReport(msgspec.Struct):
    """The file as it came. `size` is after orientation; `why` are its header's reasons for encoding it anew."""

    format: str
    size: str
    stored_size: str
    file_bytes: int
    frames: int
    why: list[str]


class FamilyReport(msgspec.Struct):
    """What the picture costs a model of one family, as its checkpoints are shipped: prompt tokens with markers, as it
    came and as this gateway would send it, and the sizes. `trouble` is why it would not be served; what is not known
    then is None.
    """

    family: str
    prompt_tokens: int | None = None
    model_size: str | None = None
    sent_tokens: int | None = None
    sent_size: str | None = None
    trouble: str | None = None


class SentReport(msgspec.Struct):
    """The file as it would be sent. `data` is base64; None where the bytes that came would go on untouched."""

    media_type: str
    size: str
    file_bytes: int
    why: list[str]
    data: msgspec.Raw | None = None


class TryReport(msgspec.Struct):
    """`sent` is None where nothing would be, or where it could not be made now: then `trouble` says why.

    `verdict` and `estimate` are preflight's, of a request that asks a short question about the picture.
    """

    found: FoundReport
    families: list[FamilyReport]
    verdict: VerdictReport
    estimate: EstimateReport | None
    sent: SentReport | None = None
    trouble: str | None = None


def chat_about(file: bytes | bytearray, model: str | None) -> tuple[bytes, Span]:
    """The body of a chat request that asks about the picture, and where in it the file's base64 stands."""
    head = b"{" if model is None else b'{"model":' + msgspec.json.encode(model) + b","
    start = len(head) + len(_BEFORE)
    encoded = pybase64.b64encode(file)
    return b"".join((head, _BEFORE, encoded, _AFTER)), Span(start, start + len(encoded))


def as_json_string(base64: bytes) -> msgspec.Raw:
    """Ready to be written, so that a large file is not read through once more."""
    return msgspec.Raw(b'"' + base64 + b'"')
