"""The rungs at work on one request, each where the story comes by: as soon as it was read, and where it is planned.

A request that has not met the ladder (`exchange.relieved` is None) passes by. Decisions are domain/pressure.py's and
domain/remembered.py's.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from gateway.domain.errors import GatewayError
from gateway.domain.pressure import Rung, closed_error, share_to_leave, shed_error
from gateway.domain.priority import Priority
from gateway.domain.remembered import ConversationKey, ImageKey, treat
from gateway.domain.request import VisionRequest
from gateway.domain.resize import OPT_OUT, Cap
from gateway.domain.trim import TrimReason, new_images
from gateway.ledger.gate import Gate
from gateway.pipeline.backend import Backend
from gateway.pipeline.exchange import Exchange, Parts
from gateway.pipeline.fallback import fall_back
from gateway.pipeline.reading import read_aside
from gateway.pipeline.relief import Relief, Relieved
from gateway.pipeline.rewriting import ImageSource
from gateway.wire.dialects.table import DIALECTS
from gateway.wire.max_tokens import cap_answer


async def meet_pressure(
    parts: Parts, exchange: Exchange, request: VisionRequest, *, is_asking: bool = False, may_fall_back: bool = True
) -> VisionRequest:
    """Before anything is computed: the request, for another model or with a lower bound on its answers where these
    rungs are in force. Whoever is to serve it, it meets the pressure there.

    Raises GatewayError 429 where the pressure leaves no place for it; who `is_asking` only is promised none.
    """
    relief = parts.relief
    if relief is None or not request.needs_engine:
        return request
    relieved = _look(relief, exchange, request)
    has_answers = DIALECTS[exchange.route.kind].has_answers
    if may_fall_back and Rung.FALLBACK in relieved.in_force and has_answers:
        request = await fall_back(parts, exchange, request)
        if exchange.fallback is not None:
            relieved = _look(relief, exchange, request)
    if not relieved.in_force:
        return request
    refuse_under_pressure(relieved, exchange, exchange.backend.gate, is_asking=is_asking)
    if Rung.MAX_TOKENS in relieved.in_force and has_answers:
        return await _with_fewer_tokens(relieved, exchange, request)
    return request


def _look(relief: Relief, exchange: Exchange, request: VisionRequest) -> Relieved:
    relieved = exchange.relieved = relief.look(exchange.backend.name, on_images=bool(request.images))
    return relieved


def refuse_under_pressure(relieved: Relieved, exchange: Exchange, gate: Gate, *, is_asking: bool = False) -> None:
    """Unless it comes back as promised. Raises GatewayError 429."""
    rung = _refusing(relieved, exchange.priority)
    if rung is not None and not gate.is_expected(exchange.newcomer()):
        raise _refusal(rung, relieved, exchange, gate, is_asking=is_asking)


def refuse_at_the_door(relief: Relief, exchange: Exchange, backends: Sequence[Backend]) -> None:
    """What is certain before the body is read: that every server refuses even a text. Raises GatewayError 429.

    A priority that the client did not ask for in a header may still be asked for in the body.
    """
    newcomer = exchange.newcomer()
    priority = None if exchange.asked_priority is None else exchange.priority
    refusing = []
    for backend in backends:
        relieved = relief.look(backend.name, on_images=False)
        rung = _refusing(relieved, priority)
        if rung is None or backend.gate.is_expected(newcomer):
            return
        refusing.append((relieved, rung, backend.gate))
    exchange.relieved, rung, gate = min(refusing, key=lambda each: each[0].pressure.ratio)
    raise _refusal(rung, exchange.relieved, exchange, gate)


def _refusing(relieved: Relieved, priority: Priority | None) -> Rung | None:
    """Which rung refuses a request of this priority (None: not known yet)."""
    in_force = relieved.in_force
    if Rung.SHED in in_force and priority is not None and priority >= relieved.relief.policy.shed_from:
        return Rung.SHED
    return Rung.REFUSE if Rung.REFUSE in in_force else None


def _refusal(
    rung: Rung, relieved: Relieved, exchange: Exchange, gate: Gate, *, is_asking: bool = False
) -> GatewayError:
    relieved.refused_by = rung
    pressure, band = relieved.pressure, relieved.relief.policy.bands[rung]
    if rung is Rung.SHED:
        return shed_error(pressure, band, exchange.priority)
    share = share_to_leave(pressure.ratio, band.leave)
    return closed_error(pressure, band, gate.promise_after(exchange.newcomer(), share, is_kept=not is_asking))


async def _with_fewer_tokens(relieved: Relieved, exchange: Exchange, request: VisionRequest) -> VisionRequest:
    asked, most = request.max_tokens, relieved.relief.policy.max_tokens
    if asked is not None and asked <= most:
        return request
    dialect = DIALECTS[exchange.route.kind]
    keys, least = dialect.bound_keys, dialect.least_bound
    work = partial(cap_answer, asked_tokens=asked, most_tokens=most, keys=keys, least_of=least)
    cap = await read_aside(work, exchange.body)
    if cap is None:
        return request
    relieved.cap, relieved.asked_tokens = cap, asked
    exchange.request = request._replace(max_tokens=cap.tokens)
    return exchange.request


async def recall_conversation(relieved: Relieved, exchange: Exchange, request: VisionRequest) -> None:
    """Whether the stricter rule holds for it: as when it first came, which may be now."""
    relief = relieved.relief
    if Rung.HISTORY not in relief.policy.bands:
        return
    opening_of = DIALECTS[exchange.route.kind].opening
    opening = await read_aside(lambda body: opening_of(body, request), exchange.body)
    assert relief.workers is not None, "bodies are only where there are workers"
    opened = memoryview(exchange.body)[opening.start : opening.end]
    treat_conversation(relieved, exchange, await relief.workers.hash_of(opened))


def treat_conversation(relieved: Relieved, exchange: Exchange, digest: bytes) -> None:
    """The conversation that begins with what has this hash."""
    relief = relieved.relief
    key = ConversationKey(exchange.tenant.name, exchange.model_name, digest)
    known = relief.conversations.recall(key, relief.clock())
    relieved.conversation = key, Rung.HISTORY in relieved.in_force if known is None else known


async def recall_images(
    relieved: Relieved, exchange: Exchange, request: VisionRequest, sources: Sequence[ImageSource]
) -> Sequence[ImageSource]:
    """Which presets they are brought under: as when they were new, which they may be now. Returns them hashed."""
    relief = relieved.relief
    if Rung.SHRINK not in relief.policy.bands or exchange.resize_preset == OPT_OUT:
        return sources
    assert relief.workers is not None, "bodies are only where there are workers"
    digests, hashed = {}, []
    for source in sources:
        digest = digests[source.ref.ordinal] = await relief.workers.digest(source.url.file)
        hashed.append(source._replace(digest=digest))
    treat_images(relieved, exchange, request, digests)
    return hashed


def treat_images(relieved: Relieved, exchange: Exchange, request: VisionRequest, digests: Mapping[int, bytes]) -> None:
    """The images with these hashes, by ordinal."""
    relief, tenant, model = relieved.relief, exchange.tenant.name, exchange.model_name
    keys = {ordinal: ImageKey(tenant, model, digest, relief.encoder_id) for ordinal, digest in digests.items()}
    preset = relief.policy.preset if Rung.SHRINK in relieved.in_force else None
    treatments = treat(keys, new_images(request.conversations), preset, relief.treatments, relief.clock())
    relieved.images = {keys[ordinal]: treatment for ordinal, treatment in treatments.items()}
    relieved.presets = {ordinal: each.preset for ordinal, each in treatments.items() if each.preset is not None}


def touched_by(exchange: Exchange, relieved: Relieved) -> Iterator[Rung]:
    """The rungs that changed something about this request, also where one that was in force before still does."""
    if any(plan.resize_reason == Cap.PRESSURE for plan in exchange.plans):
        yield Rung.SHRINK
    if exchange.trim_reason is TrimReason.PRESSURE:
        yield Rung.HISTORY
    if relieved.cap is not None:
        yield Rung.MAX_TOKENS
    if exchange.fallback is not None:
        yield Rung.FALLBACK
    if relieved.refused_by is not None:
        yield relieved.refused_by


def declare_rungs(exchange: Exchange) -> str:
    """The value of `x-gateway-pressure`: `shrink, max_tokens;512`; empty where the ladder changed nothing."""
    relieved = exchange.relieved
    if relieved is None:
        return ""
    words = {Rung.MAX_TOKENS: f"{Rung.MAX_TOKENS};{relieved.cap.tokens}"} if relieved.cap else {}
    return ", ".join(words.get(rung, rung) for rung in touched_by(exchange, relieved))
