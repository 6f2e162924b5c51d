"""Answers that are not streamed show nothing until their end, but hold more of the engine's KV cache with every token.

What they hold grows by what they have probably generated, as a stream's does by what it has shown.
"""

from collections.abc import Iterable

from gateway.domain.output import most_output_tokens
from gateway.pipeline.exchange import Exchange


def grow_unseen(exchanges: Iterable[Exchange], now: float) -> None:
    """At each look at the engine. `exchanges` were sent and are not settled; `now` is of the clock of `sent_at`."""
    for exchange in exchanges:
        assert exchange.lease is not None, "what was not admitted is not watched"
        exchange.lease.grow(_generated_tokens(exchange, now))


def _generated_tokens(exchange: Exchange, now: float) -> int:
    """Over all answers of the request."""
    request, cost, model, sent = exchange.request, exchange.cost, exchange.model, exchange.sent_at
    assert request is not None and cost is not None and model is not None and sent is not None, "it was sent"  # noqa: PT018
    if not request.wants_output:
        return 0
    most = most_output_tokens(request, cost.prompt_tokens.expected // cost.prompts, model.max_model_len)
    return cost.answers * model.speed.generated_tokens(now, sent, most)
