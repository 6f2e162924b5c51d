"""How many tokens a prompt has, counted here: what the gateway would send is priced, and nothing is sent."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple

from gateway.domain.cost import RequestCost
from gateway.domain.errors import Code, GatewayError, unknown_model
from gateway.domain.quantities import Bounds
from gateway.domain.request import VisionRequest
from gateway.models.exact_text import ExactText
from gateway.models.served import ServedModel
from gateway.pipeline.aliases import under_served_name
from gateway.pipeline.beside import ONE_THREAD, in_thread
from gateway.pipeline.exchange import Exchange, Parts
from gateway.pipeline.planning import Plan, image_cost
from gateway.pipeline.pricing import cost_of, price
from gateway.pipeline.reading import read_aside, read_request
from gateway.pipeline.routing import refuse_model
from gateway.pipeline.texts import encode_chat, encode_prompt
from gateway.wire.read import utf8_bytes
from gateway.wire.routes import Kind, Route
from gateway.wire.splice import splice
from gateway.wire.tokenize import parse_tokenize

MOST_LISTED_TOKENS = 1 << 18
"""A list of more takes megabytes, and a few pictures are enough to ask for it."""

# What a tokenizer may put around a plain prompt.
_MOST_SPECIAL_TOKENS = 4
# To list so many takes about a millisecond.
_INLINE_TOKENS = 8192


class TokenCount(NamedTuple):
    """`bounds` include the images; `upper` is None where those are of an unknown family, which may cost yet more.
    `tokens` are None where not known.
    """

    bounds: Bounds
    upper: int | None
    max_model_len: int | None
    tokens: Sequence[int] | None = None
    token_strs: Sequence[str] | None = None

    @property
    def is_exact(self) -> bool:
        return self.bounds.lower == self.bounds.expected == self.upper


async def count_messages(parts: Parts, exchange: Exchange) -> TokenCount:
    """Of an Anthropic body. Raises GatewayError 400 or 404."""
    _, _, cost = await _priced(parts, exchange, Kind.MESSAGE_TOKENS)
    return _count_of(exchange, cost)


async def count_tokenize(parts: Parts, exchange: Exchange) -> TokenCount:
    """Of the body of /tokenize. Raises GatewayError 400 or 404."""
    asked = await read_aside(parse_tokenize, exchange.body)
    placeholders: list[int] = []
    if asked.prompt is None:
        if asked.splices:
            exchange.body = b"".join(splice(exchange.body, asked.splices))
            exchange.hold_beside(len(exchange.body))
        request, plan, cost = await _priced(parts, exchange, Kind.CHAT)
        tokens = await _slim_tokens(parts, exchange, request, plan, cost)
        placeholders = [image_cost(image, _model_of(exchange).family).placeholder for image in plan.plans]
    else:
        model = _known(parts, exchange, parts.policies.aliases.get(asked.model or "", asked.model))
        tokens = await encode_prompt(model, asked.prompt, adds_special_tokens=asked.adds_special_tokens)
        cost = _priced_prompt(parts, exchange, model, asked.prompt, tokens)
    count = _count_of(exchange, cost)
    counter = _model_of(exchange).exact_text
    if tokens is not None and counter is not None and count.is_exact and count.bounds.expected <= MOST_LISTED_TOKENS:
        work = partial(_list, counter, tokens, placeholders, wants_strings=asked.wants_strings)
        is_long = count.bounds.expected > _INLINE_TOKENS
        listed, strings = await in_thread(ONE_THREAD, work) if is_long else work()
        if len(listed) == count.bounds.expected:
            return count._replace(tokens=listed, token_strs=strings)
    if asked.wants_strings:
        raise _no_strings()
    return count


async def _priced(parts: Parts, exchange: Exchange, kind: Kind) -> tuple[VisionRequest, Plan, RequestCost]:
    """As the body of such a request."""
    route = exchange.route
    exchange.route = Route(kind, route.path, route.methods)
    request = await read_request(parts, exchange)
    if parts.policies.aliases:
        request = under_served_name(parts, exchange, request)
    _known(parts, exchange, request.model)
    # These routes take no answer and cut nothing off.
    request = exchange.request = request._replace(truncate_prompt_tokens=None, wants_output=False, needs_engine=False)
    return request, *await price(parts, exchange, request)


def _priced_prompt(
    parts: Parts, exchange: Exchange, model: ServedModel, prompt: str, tokens: Sequence[int] | None
) -> RequestCost:
    text_bytes = utf8_bytes(prompt)
    request = VisionRequest(model.name, extra_text_bytes=text_bytes, wants_output=False, needs_engine=False)
    exchange.request, exchange.model = request, model
    if tokens is None:
        bounds = model.ratio.bounds(text_bytes, 0)
        text = bounds._replace(upper=bounds.upper + _MOST_SPECIAL_TOKENS)
    else:
        text = Bounds.exact(len(tokens))
    cost = exchange.cost = cost_of(parts, exchange, request, model, Plan(), text)
    return cost


def _count_of(exchange: Exchange, cost: RequestCost) -> TokenCount:
    model, bounds = _model_of(exchange), cost.prompt_tokens
    limits = exchange.limits
    assert limits is not None, "it has a price"
    upper = None if model.is_assumed and cost.images else bounds.upper
    return TokenCount(bounds, upper, limits.max_model_len)


async def _slim_tokens(
    parts: Parts, exchange: Exchange, request: VisionRequest, plan: Plan, cost: RequestCost
) -> Sequence[int] | None:
    """Each image as one; None where a list of them all would be too long, or its images are of unknown cost."""
    model = _model_of(exchange)
    if model.is_assumed or cost.prompt_tokens.expected > MOST_LISTED_TOKENS:
        return None
    return await encode_chat(exchange, request, model, plan.trimmed, parts.policies.trim.marker)


def _list(
    counter: ExactText, slim: Iterable[int], placeholders: Sequence[int], *, wants_strings: bool
) -> tuple[list[int], list[str] | None]:
    """All tokens, each image as many as it costs, and how they are spelled."""
    left = iter(placeholders)
    tokens: list[int] = []
    for token in slim:
        tokens += [token] * next(left, 1) if token == counter.image_token_id else [token]
    return tokens, counter.strings(tokens) if wants_strings else None


def _known(parts: Parts, exchange: Exchange, name: str | None) -> ServedModel:
    """As the first server has it that lists the name. Raises GatewayError 404 where all have told, and neither one of
    them nor the settings has it.
    """
    said = [backend.models.lists(name) for backend in parts.backends]
    if True in said:
        exchange.goes_to(parts.backends[said.index(True)])
    elif None not in said and not any(name in backend.models.names for backend in parts.backends):
        listed = {each for backend in parts.backends for each in backend.models.names}
        raise unknown_model(name or "", listed, param="model")
    if exchange.tenant.models is not None:
        refuse_model(parts, exchange, name or "")
    return exchange.models.served(name)


def _model_of(exchange: Exchange) -> ServedModel:
    assert exchange.model is not None, "it has a price"
    return exchange.model


def _no_strings() -> GatewayError:
    return GatewayError(
        Code.INVALID_REQUEST,
        f"`return_token_strs`: the tokens of this prompt are not known here, only their number. They are where the "
        f"model's settings name its folder (`models[].folder`), up to {MOST_LISTED_TOKENS} of them. Leave it out.",
        param="return_token_strs",
    )
