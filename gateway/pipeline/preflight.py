"""What would become of a request: its story up to admission, which is only asked. Nothing is sent, nothing is held."""

from urllib.parse import parse_qs

from gateway.domain.cost import RequestCost
from gateway.domain.errors import Code, GatewayError
from gateway.domain.preflight import Foresight, foresee, never, refused
from gateway.domain.pressure import Rung
from gateway.pipeline.aliases import under_served_name
from gateway.pipeline.estimation import estimate_report
from gateway.pipeline.exchange import Exchange, Parts
from gateway.pipeline.fitting import price_where_it_fits
from gateway.pipeline.ladder import declare_rungs
from gateway.pipeline.planning import Plan
from gateway.pipeline.reading import read_aside, read_request
from gateway.pipeline.routing import route
from gateway.pipeline.stored import look_behind
from gateway.pipeline.story import as_gateway_error, hash_images, spare_known, ticket_of
from gateway.upstream.errors import UpstreamDownError
from gateway.wire.dialect import dialect_of
from gateway.wire.dialects.table import DIALECTS, GENERIC
from gateway.wire.report import PressureReport, Report, verdict_report
from gateway.wire.routes import Kind, Route, classify, open_routes


async def preflight(parts: Parts, exchange: Exchange) -> Report:
    """A refusal is an answer here. Raises GatewayError invalid_json for what is no request of any kind, and
    invalid_request where `?route=` names no route whose bodies are read.
    """
    report, _ = await look_ahead(parts, exchange, _asked_kind(parts, exchange))
    return report


def _asked_kind(parts: Parts, exchange: Exchange) -> Kind | None:
    """By the path of its route, where one is named."""
    path = parse_qs(exchange.query.decode("latin-1"), keep_blank_values=True).get("route", [None])[-1]
    if path is None:
        return None
    kind = classify("POST", path, parts.policies.open_routes).kind
    if DIALECTS[kind] is GENERIC:
        known = ", ".join(each.path for each in open_routes() if DIALECTS[each.kind] is not GENERIC)
        raise GatewayError(Code.INVALID_REQUEST, f"`route` is {path[:100]!r}; name one of {known}.", param="route")
    return kind


async def look_ahead(parts: Parts, exchange: Exchange, kind: Kind | None = None) -> tuple[Report, Plan | None]:
    """The same, with what would be done to its images, where that is known. `kind` None: the body tells it."""
    overload_status = parts.policies.overload_status
    try:
        if kind is None:
            kind = await read_aside(dialect_of, exchange.body)
        exchange.route = Route(kind, exchange.route.path, exchange.route.methods)
        request = await read_request(parts, exchange)
        if parts.policies.aliases:
            request = under_served_name(parts, exchange, request)
        route(parts, exchange, request)
        look_behind(parts, exchange, request)
        request, plan, cost, misfit = await price_where_it_fits(parts, exchange, request, is_asking=True)
    except GatewayError as error:
        if error.code is Code.INVALID_JSON:
            raise
        return Report(verdict_report(refused(error), None, overload_status, _pressure(exchange)), None), None
    if misfit is not None:
        foresight = never(misfit)
    else:
        if plan.sources and parts.policies.verifies_all:
            cost = spare_known(exchange, cost, await hash_images(parts, plan))
        foresight = _foreseen(parts, exchange, cost)
    estimate = estimate_report(parts, exchange, plan, cost)
    return Report(verdict_report(foresight, request, overload_status, _pressure(exchange)), estimate), plan


def _pressure(exchange: Exchange) -> PressureReport | None:
    relieved = exchange.relieved
    if relieved is None:
        return None
    in_force = [rung.value for rung in Rung if rung in relieved.in_force]
    pressure = relieved.pressure
    changes = declare_rungs(exchange) or None
    return PressureReport(pressure.ratio, pressure.unmet, pressure.resource.label, in_force, changes)


def _foreseen(parts: Parts, exchange: Exchange, cost: RequestCost) -> Foresight:
    model, limits, engine, gate = exchange.model, exchange.limits, exchange.models.engine, exchange.backend.gate
    assert model is not None and limits is not None, "it has a price"  # noqa: PT018
    if not engine.is_up:
        return refused(as_gateway_error(UpstreamDownError("it did not answer when last looked at"), engine))
    ticket = ticket_of(parts, exchange, cost, parts.clock())
    return foresee(
        gate.would_decide(ticket),
        cost,
        limits,
        None if model.is_assumed else model.family,
        gate.statistics().holdings,
        gate.policy,
        longest_wait_seconds=ticket.deadline - ticket.arrived,
    )
