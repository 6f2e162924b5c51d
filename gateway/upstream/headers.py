"""Which headers pass between client and vLLM. Pure functions over raw pairs; names arrive and leave in lower case.

Three kinds never pass: those of one connection (RFC 9110 §7.6.1), those that this gateway writes itself, and those
by which a client could steer vLLM past the gateway.
"""

from collections.abc import Iterable

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
    raw: Iterable[tuple[bytes, bytes]], *, request_id: str, upstream_key: str | None
) -> list[tuple[bytes, bytes]]:
    """Headers of the request to vLLM from the client's (names in lower case, as ASGI hands them over).

    With `upstream_key` the client's own credentials stay here and that key goes in their place.
    """
    raw = list(raw)
    dropped = _NOT_TO_VLLM | _nominated(raw)
    if upstream_key is not None:
        dropped |= _CREDENTIALS
    kept = [pair for pair in raw if pair[0] not in dropped and not pair[0].startswith(_OURS)]
    kept.append((b"accept-encoding", b"identity"))
    kept.append((b"x-request-id", request_id.encode()))
    if upstream_key is not None:
        kept.append((b"authorization", b"Bearer " + upstream_key.encode()))
    return kept


def answer_headers(raw: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Headers of vLLM's answer that the client gets: end-to-end ones, content-type and content-length among them."""
    pairs = [(name.lower(), value) for name, value in raw]
    dropped = _NOT_TO_CLIENT | _nominated(pairs)
    return [pair for pair in pairs if pair[0] not in dropped and not pair[0].startswith(_OURS)]


def _nominated(pairs: list[tuple[bytes, bytes]]) -> frozenset[bytes]:
    """Names that `Connection` declares to be of this connection only."""
    nominations = [value for name, value in pairs if name == b"connection"]
    return frozenset(name.strip().lower() for value in nominations for name in value.split(b","))
