"""Which headers pass between client and vLLM. Pure functions over raw pairs.

The verdict on a name is remembered, since the same few names come with every request.
Three kinds never pass: those of one connection (RFC 9110 §7.6.1), those that this gateway writes itself, and those
by which a client could steer vLLM past the gateway.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache

_OF_ONE_CONNECTION = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
_NOT_TO_VLLM = _OF_ONE_CONNECTION | {
    b"accept-encoding",  # answers must come readable: usage is looked for in them
    b"content-length",  # the body may have been rewritten
    b"expect",  # the body is here already
    b"host",
    b"x-data-parallel-rank",  # picks an engine past the balancing of vLLM
    b"x-request-id",  # two requests under one id upset vLLM, so it gets one of ours
}
_CREDENTIALS = frozenset({b"authorization", b"x-api-key"})
_NOT_TO_CLIENT = _OF_ONE_CONNECTION | {
    b"date",  # the gateway's own server writes both
    b"server",
    b"x-request-id",
}
_OURS = b"x-gateway-"


def request_headers(
    raw: Sequence[tuple[bytes, bytes]], *, request_id: str, upstream_key: str | None
) -> list[tuple[str, str]]:
    """Headers of the request to vLLM from the client's (names in lower case, as ASGI hands them over).

    With `upstream_key` the client's own credentials stay here and that key goes in their place. Values that are not
    UTF-8 get replacement characters, for the client library can send no others.
    """
    local = _nominated(raw) if upstream_key is None else _nominated(raw) | _CREDENTIALS
    kept = [
        (known, value.decode("utf-8", "replace"))
        for name, value in raw
        if (known := _towards_vllm(name)) is not None and name not in local
    ]
    kept.append(("accept-encoding", "identity"))
    kept.append(("x-request-id", request_id))
    if upstream_key is not None:
        kept.append(("authorization", f"Bearer {upstream_key}"))
    return kept


def answer_headers(raw: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Headers of vLLM's answer that the client gets, names in lower case: the end-to-end ones, content-type and
    content-length among them.
    """
    pairs = [(name.lower(), value) for name, value in raw]
    local = _nominated(pairs)
    return [pair for pair in pairs if _is_for_client(pair[0]) and pair[0] not in local]


@lru_cache(maxsize=1024)
def _towards_vllm(name: bytes) -> str | None:
    return None if name in _NOT_TO_VLLM or name.startswith(_OURS) else name.decode("latin-1")


@lru_cache(maxsize=1024)
def _is_for_client(name: bytes) -> bool:
    return name not in _NOT_TO_CLIENT and not name.startswith(_OURS)


def _nominated(pairs: Sequence[tuple[bytes, bytes]]) -> frozenset[bytes]:
    """Names that `Connection` declares to be of this connection only."""
    nominations = [value for name, value in pairs if name == b"connection"]
    return frozenset(name.strip().lower() for value in nominations for name in value.split(b","))
