"""Steps 2 to 9 of the request's story, in order. Plan before admission, execute after it.

A refused request costs a header probe of each image and no pixel. Everything that waits is here and in `admit`,
`transform` and `send`; every decision is a pure function of domain/.
"""

import asyncio
from collections.abc import Mapping, Sequence
from http.client import BAD_REQUEST, TOO_MANY_REQUESTS

from gateway.domain.bill import Bill
from gateway.domain.cost import RequestCost, spare_served
from gateway.domain.errors import Code, GatewayError
from gateway.domain.geometry import Size
from gateway.domain.outcome import Reason
from gateway.domain.promise import NO_PROMISE
from gateway.domain.request import VisionRequest
from gateway.domain.ticket import Ticket
from gateway.imaging.workers import Prepared
from gateway.ledger.gate import SentAwayError
from gateway.models.served import Engine
from gateway.pipeline.aliases import under_served_name
from gateway.pipeline.beside import ONE_THREAD, all_of, in_thread
from gateway.pipeline.elsewhere import Failure, as_error, go_elsewhere
from gateway.pipeline.exchange import Exchange, Parts, Rules
from gateway.pipeline.fitting import price_where_it_fits
from gateway.pipeline.handing_on import handed_on
from gateway.pipeline.naming import name_images, with_digests
from gateway.pipeline.planning import Plan
from gateway.pipeline.reading import read_request
from gateway.pipeline.rewriting import NOT_ISOLATED, Isolated, rewrite
from gateway.pipeline.routing import route
from gateway.pipeline.stored import look_behind
from gateway.pipeline.usage import FIELD_REFUSALS, names_stream_options, wants_usage
from gateway.upstream.client import Answer, Segment
from gateway.upstream.errors import UpstreamDownError, UpstreamError, UpstreamTimeoutError

# When to ask again for a server that went away, and for one that loads its weights.
_DOWN_SECONDS = 5.0
_LOADING_SECONDS = 15.0
# All the images of one request are begun in one turn of the event loop; more than threads can decode need not be.
_IMAGES_AT_ONCE = 64
# What stream options a longer body has, and where it names its model, is looked up in a thread.
_LONG_BYTES = 64 * 1024
_FIRST_ERROR = 400


async def serve(parts: Parts, exchange: Exchange) -> Answer:
    """From a received body to the head of the upstream's answer.

    Raises GatewayError for every refusal. Whatever happens, what was taken is on `exchange.lease`; the caller owns
    both and settles them.
    """
    request = await read_request(parts, exchange)
    if parts.policies.aliases:
        request = under_served_name(parts, exchange, request)
    route(parts, exchange, request)
    if request.previous_id is not None or request.is_background:
        look_behind(parts, exchange, request)
    failure: Failure
    try:
        answer = await _serve_at(parts, exchange, request)
        if answer.status < TOO_MANY_REQUESTS or not go_elsewhere(parts, exchange, request, answer):
            return answer
        answer.finish()
        failure = answer
    except GatewayError as error:
        if not go_elsewhere(parts, exchange, request, error):
            raise
        failure = error
    try:
        return await _serve_at(parts, exchange, request)
    except GatewayError as error:
        if error.status != BAD_REQUEST or error.is_about_an_image:
            raise
        # That it does not fit the other server is no reason for the client not to come back to the first.
        raise as_error(failure) from error


async def _serve_at(parts: Parts, exchange: Exchange, request: VisionRequest) -> Answer:
    """The story with one server. Raises GatewayError."""
    if request.has_remote_images:
        # Nothing is fetched for one that could not even wait.
        exchange.backend.gate.refuse_if_full(exchange.newcomer())
    request, plan, cost, misfit = await price_where_it_fits(parts, exchange, request)
    if misfit is not None:
        raise misfit.error
    if request.needs_engine or request.images:  # the thread that reads pictures is of the server too
        if plan.sources and parts.policies.verifies_all:
            plan, cost = await spare_known_images(parts, exchange, plan, cost)
        await admit(parts, exchange, cost)
    if exchange.relieved is not None:
        exchange.relieved.remember()
    prepared = await transform(parts, exchange, plan) if plan.sources else {}
    keeps_apart = plan.sources or parts.policies.isolation.salts_prefixes
    isolated = await isolate(parts, exchange, request, plan, prepared) if keeps_apart else NOT_ISOLATED
    edits = (exchange, request, plan.sources, prepared, plan.trimmed, parts.policies.trim.marker, isolated)
    reads_again = request.has_stream_options or exchange.alias is not None
    is_long = len(request.images) > _IMAGES_AT_ONCE or (reads_again and len(exchange.body) > _LONG_BYTES)
    asks = wants_usage(parts, exchange, request)
    body = await in_thread(ONE_THREAD, rewrite, *edits, asks) if is_long else rewrite(*edits, asks)
    answer = await send(parts, exchange, body, is_streaming=request.stream)
    if exchange.asks_for_usage and answer.status in FIELD_REFUSALS and await _is_wish_refused(exchange, answer):
        body = await in_thread(ONE_THREAD, rewrite, *edits) if is_long else rewrite(*edits)
        answer = await _forward(parts, exchange, body, is_streaming=request.stream)
        exchange.backend.models.engine.refuses_stream_options = answer.status < _FIRST_ERROR
    return answer


async def isolate(
    parts: Parts, exchange: Exchange, request: VisionRequest, plan: Plan, prepared: Mapping[int, Prepared]
) -> Isolated:
    """What the server is told in the place of the client's own names and salt."""
    isolation, tenant = parts.policies.isolation, exchange.tenant.name
    salt = None
    if isolation.salts_prefixes and request.needs_engine:
        own = None if request.salt is None else request.salt.text
        salt = isolation.salt(tenant, own, exchange.request_id)
    if not any(source.ref.uuid is not None for source in plan.sources):
        return Isolated({}, salt)
    sources = await with_digests(parts, plan.sources)
    return Isolated(name_images(parts, exchange, sources, plan.plans, prepared), salt)


async def spare_known_images(
    parts: Parts, exchange: Exchange, plan: Plan, cost: RequestCost
) -> tuple[Plan, RequestCost]:
    """Before step 6: images that the engine knows are not charged again. Each is hashed for that, which reads all its
    bytes: so not before it is looked whether the request could at least wait. Raises GatewayError 429.
    """
    exchange.backend.gate.refuse_if_full(exchange.newcomer())
    images = exchange.sent_images = await hash_images(parts, plan)
    sources = tuple(source._replace(digest=digest) for source, (digest, _) in zip(plan.sources, images, strict=True))
    exchange.cost = spare_known(exchange, cost, images)
    return plan._replace(sources=sources), exchange.cost


async def hash_images(parts: Parts, plan: Plan) -> tuple[tuple[bytes, Size], ...]:
    """What the engine's caches know each image by: the hash of its file and the size in which it is sent."""
    digests = [source.digest or await parts.images.digest(source.url.file) for source in plan.sources]
    return tuple(zip(digests, (image.target for image in plan.plans), strict=True))


def spare_known(exchange: Exchange, cost: RequestCost, images: Sequence[tuple[bytes, Size]]) -> RequestCost:
    """The cost without the decoding and encoding of those that the engine has lately served."""
    lately = exchange.models.engine.images
    return spare_served(cost, [image in lately for image in images])


async def admit(parts: Parts, exchange: Exchange, cost: RequestCost) -> None:
    """Step 6: the lease, at once or after waiting. Raises GatewayError 429 or 503."""
    exchange.queued, exchange.capacity = parts.clock(), exchange.backend.gate.capacity
    refuse_what_is_late(exchange, exchange.queued)
    if exchange.bill is not None:
        price_bill(exchange, exchange.bill, cost, exchange.queued)
    ticket = ticket_of(parts, exchange, cost, exchange.queued)
    if len(parts.backends) == 1:
        exchange.lease = await exchange.backend.gate.admit(ticket)
    else:
        await _admit_at_one_of_several(exchange, ticket)


def price_bill(exchange: Exchange, bill: Bill, cost: RequestCost, now: float) -> None:
    """What the request is expected to take of its tenant's quota. Raises GatewayError 400 or 429."""
    pixels = sum(plan.info.size.pixels for plan in exchange.plans)
    bill.price(now, cost.prompt_tokens.expected, len(exchange.plans), pixels)


async def _admit_at_one_of_several(exchange: Exchange, ticket: Ticket) -> None:
    waiting = exchange.backend.waiting
    waiting[ticket] = exchange
    try:
        exchange.lease = await exchange.backend.gate.admit(ticket)
    except SentAwayError:
        error = UpstreamDownError("nothing is sent to it just now, and another is to serve those that wait")
        raise as_gateway_error(error, exchange.models.engine) from error
    finally:
        del waiting[ticket]


def ticket_of(rules: Rules, exchange: Exchange, cost: RequestCost, now: float) -> Ticket:
    """The request as admission sees it."""
    wait_seconds, tenant = max(0.0, rules.policies.queue_wait_seconds - exchange.waited_seconds), exchange.tenant
    if exchange.deadline is not None:
        wait_seconds = min(wait_seconds, max(0.0, exchange.deadline - now))
    first_token_by, answer_by = exchange.due_by()
    return Ticket.of(
        cost,
        now,
        wait_seconds,
        first_token_by=first_token_by,
        answer_by=answer_by,
        likely_tokens=_likely_tokens(exchange, cost),
        lengths=exchange.model.output if exchange.model else None,
        is_streamed=exchange.request is not None and exchange.request.stream,
        is_return=exchange.is_return,
        priority=exchange.priority,
        tenant=tenant.name,
        weight=tenant.weight,
    )


def _likely_tokens(exchange: Exchange, cost: RequestCost) -> int:
    """How long each answer probably becomes; 0 where that is not known yet."""
    model = exchange.model
    assert model is not None, "it has a price"
    return min(model.output.likely_tokens, cost.output_tokens)


def refuse_what_is_late(exchange: Exchange, now: float) -> None:
    """Nobody waits any more for what comes after its own deadline. Raises GatewayError 429."""
    if exchange.deadline is not None and exchange.deadline <= now:
        given, gone = exchange.deadline - exchange.arrived, now - exchange.arrived
        raise GatewayError(
            Code.RATE_LIMIT_EXCEEDED,
            f"The request had {given * 1000:.0f} ms by x-gateway-deadline-ms, and {gone * 1000:.0f} ms after its "
            "arrival it was not yet received and read. Send it faster, or give it longer.",
            reason=Reason.WOULD_MISS_DEADLINE,
            retry_after_seconds=NO_PROMISE.seconds,
        )


async def transform(parts: Parts, exchange: Exchange, plan: Plan) -> dict[int, Prepared]:
    """Step 7: check the images and encode anew those that need it; the new ones by ordinal.

    Raises GatewayError for a damaged image, 503 if all together take too long.
    """
    begun, seconds = parts.clock(), parts.policies.transform_seconds
    try:
        async with asyncio.timeout(seconds):
            results = await _prepare(parts, plan)
    except TimeoutError as error:
        raise GatewayError(
            Code.SERVER_IS_OVERLOADED,
            f"The {len(plan.sources)} images of the request were not all decoded within {seconds:g} seconds "
            "(images.transform_seconds). Send fewer or smaller ones, or come back when others are done.",
            retry_after_seconds=NO_PROMISE.seconds,
        ) from error
    exchange.transform_seconds += parts.clock() - begun
    prepared = {
        source.ref.ordinal: result
        for source, result in zip([each for each in plan.sources if each.named is None], results, strict=True)
        if result is not None
    }
    exchange.encoded_anew = tuple(prepared)
    # An image that came several times is encoded once.
    exchange.hold_beside(sum(len(base64) for base64 in {id(p): p.base64 for p in prepared.values()}.values()))
    return prepared


async def _prepare(parts: Parts, plan: Plan) -> list[Prepared | None]:
    """In the order of those that came along."""
    results: list[Prepared | None] = []
    pairs = [pair for pair in zip(plan.sources, plan.plans, strict=True) if pair[0].named is None]
    for start in range(0, len(pairs), _IMAGES_AT_ONCE):
        results += await all_of(
            [
                parts.images.prepare(source.url.file, image.info, image.target, source.ref.param, source.digest)
                for source, image in pairs[start : start + _IMAGES_AT_ONCE]
            ]
        )
    return results


async def send(parts: Parts, exchange: Exchange, body: Sequence[Segment] | None, *, is_streaming: bool) -> Answer:
    """Step 9: the body goes out, the head of the answer comes back. Raises GatewayError 502, 503 or 504."""
    exchange.sent_at = parts.clock()
    exchange.backend.breaker.sent(exchange.sent_at)
    if exchange.bill is not None:
        exchange.bill.sent(exchange.sent_at)
    if exchange.lease is not None:
        exchange.lease.sent(is_streamed=is_streaming)
        if not is_streaming:
            exchange.backend.unseen[exchange.request_id] = exchange
    return await _forward(parts, exchange, body, is_streaming=is_streaming)


async def _forward(parts: Parts, exchange: Exchange, body: Sequence[Segment] | None, *, is_streaming: bool) -> Answer:
    """One way to the upstream and back. Raises GatewayError 502, 503 or 504."""
    path = exchange.path if not exchange.query else f"{exchange.path}?{exchange.query.decode('latin-1')}"
    try:
        return await exchange.backend.upstream.send(
            exchange.method,
            path,
            exchange.headers,
            body,
            request_id=exchange.request_id,
            is_streaming=is_streaming,
            own_headers=handed_on(parts.policies.hand_on, exchange, parts.clock()),
        )
    except UpstreamError as error:
        raise as_gateway_error(error, exchange.backend.models.engine) from error


async def _is_wish_refused(exchange: Exchange, answer: Answer) -> bool:
    """What the gateway asked for is why the upstream refuses; nothing is left of `answer` then. Raises GatewayError."""
    try:
        return await names_stream_options(answer)
    except UpstreamError as error:
        raise as_gateway_error(error, exchange.backend.models.engine) from error


def as_gateway_error(error: UpstreamError, engine: Engine) -> GatewayError:
    """What the client is told of a failure of the upstream."""
    if isinstance(error, UpstreamDownError):
        what = "is still loading or not there yet" if engine.is_loading else "cannot be reached"
        return GatewayError(
            Code.UPSTREAM_UNAVAILABLE,
            f"The model server {what}: {error}",
            reason=Reason.UPSTREAM_LOADING if engine.is_loading else Reason.UPSTREAM_DOWN,
            retry_after_seconds=_LOADING_SECONDS if engine.is_loading else _DOWN_SECONDS,
        )
    if isinstance(error, UpstreamTimeoutError):
        return GatewayError(Code.UPSTREAM_TIMEOUT, f"The model server was silent for too long: {error}")
    return GatewayError(Code.UPSTREAM_ERROR, f"The model server gave no whole answer: {error}.")
