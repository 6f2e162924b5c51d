"""Which headers pass between client and vLLM. Pure functions over raw pairs.

The verdict on a list of names is remembered, since a client sends the same with every request.
Three kinds never pass: those of one connection (RFC 9110 §7.6.1), those that this gateway writes itself, and those
by which a client could steer vLLM past the gateway.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache

from gateway.wire.hand_on import NO_HEADERS, OwnHeaders

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
    b"x-amzn-sagemaker-adapter-alias",  # these three put another model, or a session, in place of the body's
    b"x-amzn-sagemaker-adapter-identifier",
    b"x-amzn-sagemaker-session-id",
    b"x-data-parallel-rank",  # picks an engine past the balancing of vLLM
    b"x-request-id",  # two requests under one id upset vLLM, so it gets one of ours
    b"x-vllm-priority",  # stands above what the body asks for, in the engine's own queue
}
CREDENTIALS = frozenset({b"authorization", b"x-api-key"})
_NOT_TO_CLIENT = _OF_ONE_CONNECTION | {
    b"date",  # the gateway's own server writes both
    b"server",
    b"x-request-id",
}
_OURS = b"x-gateway-"
_REMEMBERED = 128  # lists of names; one may have as many bytes as all headers of a request


def request_headers(
    raw: Sequence[tuple[bytes, bytes]],
    *,
    request_id: str,
    upstream_key: str | None,
    withheld: frozenset[bytes] = CREDENTIALS,
    own_headers: OwnHeaders = NO_HEADERS,
) -> list[tuple[str, str]]:
    """Headers of the request to vLLM from the client's (names in lower case, as ASGI hands them over).

    `withheld` stay here, as does all that `own_headers` name; with `upstream_key` that key goes along. Values that are
    not UTF-8 get replacement characters, for the client library can send no others.
    """
    names = tuple([name for name, _ in raw])
    nominating = _nominating(raw) if b"connection" in names else b""
    passing = _towards_vllm(names, nominating, withheld, tuple(own_headers))
    kept = [(name, raw[index][1].decode("utf-8", "replace")) for index, name in passing]
    kept.append(("accept-encoding", "identity"))
    kept.append(("x-request-id", request_id))
    if upstream_key is not None:
        kept.append(("authorization", f"Bearer {upstream_key}"))
    kept.extend((name, value) for name, value in own_headers.items() if value is not None)
    return kept


def answer_headers(raw: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Headers of vLLM's answer that the client gets, names in lower case: the end-to-end ones, content-type and
    content-length among them.
    """
    names = tuple([name.lower() for name, _ in raw])
    passing = _towards_client(names, _nominating(raw) if b"connection" in names else b"")
    return [(names[index], raw[index][1]) for index in passing]


@lru_cache(maxsize=_REMEMBERED)
def _towards_vllm(
    names: tuple[bytes, ...], nominating: bytes, withheld: frozenset[bytes], own_names: tuple[str, ...]
) -> tuple[tuple[int, str], ...]:
    """Which of a request's names pass, as text."""
    local = _NOT_TO_VLLM | _nominated(nominating) | withheld
    local |= frozenset(name.encode() for name in own_names)
    return tuple((index, names[index].decode("latin-1")) for index in _passing(names, local))


@lru_cache(maxsize=_REMEMBERED)
def _towards_client(names: tuple[bytes, ...], nominating: bytes) -> tuple[int, ...]:
    """Which of an answer's names pass."""
    return tuple(_passing(names, _NOT_TO_CLIENT | _nominated(nominating)))


def _passing(names: Sequence[bytes], local: frozenset[bytes]) -> Iterator[int]:
    return (index for index, name in enumerate(names) if name not in local and not name.startswith(_OURS))


def _nominating(pairs: Sequence[tuple[bytes, bytes]]) -> bytes:
    return b",".join([value for name, value in pairs if name.lower() == b"connection"])


def _nominated(nominating: bytes) -> frozenset[bytes]:
    """Names that `Connection` declares to be of this connection only."""
    return frozenset(name.strip().lower() for name in nominating.split(b","))
