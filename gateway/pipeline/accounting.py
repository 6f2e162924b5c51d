"""What a request took of the engine, by kind of token: counted in the metrics, and for the log line.

The engine's own usage stands wherever it came; how much of its prompt were images it may not tell, and then that is the
price. Where no usage came, as when the client left, all of it is reckoned, and marked as such.
"""

from gateway.domain.cost import RequestCost
from gateway.domain.outcome import Outcome
from gateway.models.served import ServedModel
from gateway.pipeline.exchange import Exchange
from gateway.pipeline.pricing import told_visual_tokens
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.request_log import TokensUsed
from gateway.wire.usage import Usage

_FIRST_ERROR = 400


def account(metrics: Metrics, exchange: Exchange, outcome: Outcome) -> None:
    """Once for each request that was sent, when it is over; nothing for one that the engine never worked on."""
    cost, model, usage, request = exchange.cost, exchange.model, exchange.usage, exchange.request
    if exchange.sent_at is None or cost is None or model is None or request is None or not request.needs_engine:
        return
    if usage is None:
        if not _was_worked_on(exchange, outcome):
            return
        usage = exchange.observer.usage if exchange.observer else None
    if usage is None:
        used = _estimated(exchange, cost, model, outcome)
    elif cost.images or cost.media:
        used = _reported(exchange, cost, model, usage)
    else:
        used = TokensUsed(text=usage.prompt_tokens, output=usage.completion_tokens, cached=usage.cached_tokens or 0)
    exchange.used = used
    metrics.tokens(model.name, exchange.tenant.tenant_class, used)


def _was_worked_on(exchange: Exchange, outcome: Outcome) -> bool:
    """As far as can be told: an answer began, or was waited for until the client left."""
    if exchange.upstream_status is None:
        return outcome is Outcome.CLIENT_LEFT
    return exchange.upstream_status < _FIRST_ERROR and outcome is not Outcome.UPSTREAM_REFUSED


def _reported(exchange: Exchange, cost: RequestCost, model: ServedModel, usage: Usage) -> TokensUsed:
    told = told_visual_tokens(exchange, usage, model)
    visual = min(_priced_visual(cost, usage.prompt_tokens) if told is None else told, usage.prompt_tokens)
    rest = usage.prompt_tokens - visual
    media = max(0, rest - cost.text_tokens.expected - _ids(exchange)) if cost.media else 0
    return TokensUsed(
        text=rest - media,
        visual=visual,
        media=media,
        output=usage.completion_tokens,
        cached=usage.cached_tokens or 0,
    )


def _priced_visual(cost: RequestCost, prompt_tokens: int) -> int:
    """Of prices that are bounds, what the text leaves of the prompt."""
    if not cost.uncertain_visual_tokens:
        return cost.visual_tokens
    least = cost.visual_tokens - cost.uncertain_visual_tokens
    return max(least, min(cost.visual_tokens, prompt_tokens - cost.text_tokens.expected))


def _estimated(exchange: Exchange, cost: RequestCost, model: ServedModel, outcome: Outcome) -> TokensUsed:
    visual, media = cost.visual_tokens, cost.media_tokens
    return TokensUsed(
        text=max(0, cost.prompt_tokens.expected - visual - media),
        visual=visual,
        media=media,
        output=_answered_tokens(exchange, cost, model, outcome),
        is_estimate=True,
    )


def _answered_tokens(exchange: Exchange, cost: RequestCost, model: ServedModel, outcome: Outcome) -> int:
    """By the events of a stream; of an answer in one piece what such a one has probably got to in its time."""
    if exchange.counted_tokens is not None:
        return exchange.counted_tokens
    if exchange.observer is not None:
        return int(exchange.observer.events * exchange.tokens_per_event)
    if outcome is Outcome.FINISHED or exchange.sent_at is None:
        return 0
    return cost.answers * model.speed.generated_tokens(exchange.ended, exchange.sent_at, cost.output_tokens)


def _ids(exchange: Exchange) -> int:
    return exchange.request.prompt_token_ids if exchange.request else 0
