"""Nothing that vLLM takes for media passes uncounted: every key and alias, in every place of every route.

What vLLM makes of each body was asked of vLLM (tests/support/bypass.py); tests/real/test_bypass.py asks it again.
"""

import itertools

import pytest

from gateway.domain.errors import GatewayError
from gateway.wire.dialects.table import DIALECTS
from gateway.wire.routes import Kind, classify, sent_on
from tests.support.bypass import LIST, REFUSED, cases, parts, seen_by_vllm

OPENED = frozenset({"/invocations"})
BY_SLOT = {slot: list(group) for slot, group in itertools.groupby(cases(), lambda case: case.slot)}


def media_here(path: str, body: bytes) -> int | None:
    """Images, videos and audio that the gateway counts; None where it refuses the body."""
    route = classify("POST", path, OPENED)
    if route.kind is Kind.TOKENS:
        route = sent_on(route)
    if route.refusal is not None:
        assert route.refusal.status == 403
        return None
    dialect = DIALECTS[route.kind]
    try:
        if dialect.kind_of is not None:
            dialect = DIALECTS[dialect.kind_of(body)]
        request = dialect.parse(body)
    except GatewayError as error:
        refusal = error
    else:
        return len(request.images) + len(request.media)
    assert refusal.status == 400
    return None


@pytest.mark.parametrize("slot", LIST["slots"])
def test_media_is_counted_as_vllm_counts_it_or_refused(slot: str) -> None:
    seen = seen_by_vllm()[slot]
    for case, theirs in zip(BY_SLOT[slot], seen, strict=True):
        counted = media_here(case.path, case.body)
        assert counted is None or theirs == REFUSED or counted == int(theirs), (case.part, counted, theirs)


@pytest.mark.parametrize(
    "slot",
    [
        "chat, user",
        "chat, tool",
        "batch",
        "tokenize",
        "embeddings, messages",
        "embeddings, input of conversations",
        "pooling, messages",
        "classify, messages",
        "embed, inputs",
        "embed, images",
        "score, both",
        "rerank, documents",
        "messages, user",
        "invocations, messages",
        "invocations, documents",
    ],
)
def test_a_picture_passes_counted_where_pictures_may_come(slot: str) -> None:
    counted = [media_here(case.path, case.body) for case in BY_SLOT[slot]]
    assert any(counted)


def test_the_list_is_whole() -> None:
    assert set(seen_by_vllm()) == set(LIST["slots"])
    assert len(set(parts())) > 400
    assert {path for path, _ in LIST["slots"].values()} >= {
        "/v1/chat/completions", "/v1/chat/completions/batch", "/v1/completions", "/v1/embeddings", "/v2/embed",
        "/pooling", "/classify", "/score", "/rerank", "/tokenize", "/v1/messages", "/v1/responses", "/invocations",
    }  # fmt: skip
