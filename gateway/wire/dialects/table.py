"""The one table of the routes whose bodies are read. A new route is one record here, and its path in routes.py."""

from collections.abc import Mapping, Sequence

from gateway.wire.chat import parse_chat
from gateway.wire.completions import parse_completions
from gateway.wire.dialect import invoked_kind
from gateway.wire.dialects.anthropic import MESSAGE_TOKENS, MESSAGES
from gateway.wire.dialects.batch import BATCH
from gateway.wire.dialects.cohere_embed import COHERE_EMBED
from gateway.wire.dialects.pooling import EMBEDDINGS, POOLING
from gateway.wire.dialects.record import Dialect, RenderingOf
from gateway.wire.dialects.responses import RESPONSES
from gateway.wire.dialects.scoring import RERANK, SCORE
from gateway.wire.dialects.tokenize import TOKENIZE
from gateway.wire.generic import parse_generic
from gateway.wire.routes import Kind


def _as_it_is(slim: bytes, _rendering_of: RenderingOf) -> Sequence[bytes]:
    return (slim,)


CHAT = Dialect(
    parse=parse_chat,
    bound_keys=("max_completion_tokens", "max_tokens"),
    chats=_as_it_is,
    takes_stream_options=True,
    opening_events=1,
)
COMPLETIONS = Dialect(parse=parse_completions, takes_stream_options=True)
GENERIC = Dialect(parse=parse_generic, has_answers=False, needs_engine=False)
INVOCATIONS = Dialect(parse=parse_generic, kind_of=invoked_kind)

DIALECTS: Mapping[Kind, Dialect] = dict.fromkeys(Kind, GENERIC) | {
    Kind.CHAT: CHAT,
    Kind.BATCH: BATCH,
    Kind.MESSAGES: MESSAGES,
    Kind.RESPONSES: RESPONSES,
    Kind.MESSAGE_TOKENS: MESSAGE_TOKENS,
    Kind.COMPLETIONS: COMPLETIONS,
    Kind.EMBEDDINGS: EMBEDDINGS,
    Kind.POOLING: POOLING,
    Kind.COHERE_EMBED: COHERE_EMBED,
    Kind.SCORE: SCORE,
    Kind.RERANK: RERANK,
    Kind.TOKENIZE: TOKENIZE,
    Kind.INVOCATIONS: INVOCATIONS,
}
"""By how a route is served; what goes through unread in shadow mode has GENERIC, of which then little is asked."""
