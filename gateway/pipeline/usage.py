"""Usage of streams, asked for on the gateway's own account: it makes the books exact where events only count pieces.

Whoever asked himself gets his stream as it comes. Of several answers in one stream each has its own last event, and
what vLLM would have written there is known too late (wire/usage_event.py): for these nothing is asked.
"""

from gateway.domain.request import VisionRequest
from gateway.pipeline.exchange import Exchange, Parts
from gateway.upstream.client import Answer
from gateway.wire.dialects.table import DIALECTS

FIELD_REFUSALS = frozenset({400, 422})
"""How servers refuse a field that they do not know."""

_NAMES = (b"stream_options", b"include_usage")


def wants_usage(parts: Parts, exchange: Exchange, request: VisionRequest) -> bool:
    """Whether to ask for the usage of this request's stream."""
    return (
        request.stream
        and DIALECTS[exchange.route.kind].takes_stream_options
        and not request.include_usage
        and request.prompts * request.n == 1
        and parts.policies.asks_for_usage
        and not exchange.backend.models.engine.refuses_stream_options
    )


async def names_stream_options(refusal: Answer) -> bool:
    """The refusal is about what was asked on top of the request; nothing is left of it then.

    Raises UpstreamError, and nothing is left of it either.
    """
    is_about_it = True
    try:
        text = await refusal.peek()
        is_about_it = any(name in text for name in _NAMES)
    finally:
        if is_about_it:
            refusal.finish()
    return is_about_it
