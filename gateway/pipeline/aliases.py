"""Other names for a model: who asks for one is served as if he had asked for the model itself.

From here on the request has the name that its server knows. The body gets it when it is sent (rewriting.py); the answer
is left as the server gives it, and `x-gateway-model` says who that is.
"""

from gateway.domain.request import VisionRequest
from gateway.pipeline.exchange import Exchange, Rules


def under_served_name(rules: Rules, exchange: Exchange, request: VisionRequest) -> VisionRequest:
    """Before a server is picked for it."""
    name = request.model or ""
    served = rules.policies.aliases.get(name)
    if served is None:
        return request
    exchange.alias = name
    exchange.request = request._replace(model=served)
    return exchange.request


def served_instead(exchange: Exchange) -> str | None:
    """The model that serves, where that is not the name that was asked for."""
    if exchange.fallback is not None:
        return exchange.fallback.name
    return exchange.model_name if exchange.alias else None
