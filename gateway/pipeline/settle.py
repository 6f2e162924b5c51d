"""Steps 10 and 11: what passes is observed, and every exchange is settled exactly once, whatever its end.

Settling closes the lease. Booking then teaches the learners, counts the metrics and writes the log line; behind a
complete answer it is done once the client has the last byte, for nobody should wait for it.
"""

from gateway.domain.bill import Bill
from gateway.domain.cost import RequestCost, Uncertainty
from gateway.domain.errors import Code, GatewayError
from gateway.domain.image import ImageAction, ImagePlan
from gateway.domain.media import counts_by_kind
from gateway.domain.outcome import Ending, Outcome
from gateway.domain.output import most_output_tokens
from gateway.domain.quantities import Bounds
from gateway.domain.request import VisionRequest
from gateway.models.served import ServedModel
from gateway.pipeline.accounting import account
from gateway.pipeline.back_pressure import BACK_PRESSURE, retry_after_seconds, turned_away
from gateway.pipeline.elsewhere import ended_unasked, failed, failed_alone, worked
from gateway.pipeline.exchange import Exchange, Parts
from gateway.pipeline.ladder import touched_by
from gateway.pipeline.naming import lose_names, note_names
from gateway.pipeline.planning import image_cost
from gateway.pipeline.pricing import told_visual_tokens, visual_bounds
from gateway.pipeline.record import record_of
from gateway.pipeline.stored import expect_id, goes_on, note_id
from gateway.pipeline.would_be import WouldBe
from gateway.telemetry.metrics import Metrics
from gateway.upstream.client import Answer
from gateway.upstream.errors import UpstreamBrokenError
from gateway.wire.declare import planned_action
from gateway.wire.dialects.table import DIALECTS
from gateway.wire.errors import error_status
from gateway.wire.routes import Kind
from gateway.wire.usage import Usage
from gateway.wire.usage_event import UsageEventFilter
from gateway.wire.vllm_errors import LearnedLimits, learn_from_error, learn_from_message, misses_image

# Usage stands at the end of an answer; an error text of vLLM is shorter than this too.
_TAIL_BYTES = 8192
_SURE_SHARE = 20  # where more than so small a part of what images cost is uncertain, nothing is told about the text
_FIRST_ERROR = 400
_PAID = {Outcome.FINISHED, Outcome.CLIENT_LEFT}
_OF_THE_UPSTREAM = {Code.UPSTREAM_ERROR, Code.UPSTREAM_TIMEOUT, Code.UPSTREAM_UNAVAILABLE}


def head_arrived(exchange: Exchange, answer: Answer) -> None:
    """The upstream has answered: the body that came is no longer needed, and a stream will be watched."""
    exchange.let_go_of_body()
    exchange.upstream_status = answer.status
    if exchange.route.kind is Kind.RESPONSES:
        expect_id(exchange, answer.status)
    if exchange.namings and answer.status < _FIRST_ERROR:
        note_names(exchange)
    if answer.status in BACK_PRESSURE:
        exchange.retry_after_seconds = retry_after_seconds(answer.headers)
    if any(name == b"content-type" and value.startswith(b"text/event-stream") for name, value in answer.headers):
        if exchange.model is None:
            return  # of a request that nobody read, nobody knows what its events mean
        exchange.observer = DIALECTS[exchange.route.kind].observer()
        exchange.tokens_per_event = exchange.model.event_tokens.per_event
        if exchange.asks_for_usage:
            exchange.usage_filter = UsageEventFilter()


def chunk_passed(parts: Parts, exchange: Exchange, chunk: bytes) -> None:
    """One piece of the answer went by. Nothing in it is parsed."""
    if exchange.answer_id is not None:
        note_id(parts, exchange, exchange.answer_id, chunk)
    observer = exchange.observer
    if observer is not None:
        observer.feed(chunk)
    if exchange.first_event_at is None and (observer is None or observer.has_begun):
        exchange.first_event_at = parts.clock()
        status = exchange.upstream_status or 0
        if status < 500 and status not in BACK_PRESSURE:
            worked(exchange, exchange.first_event_at)
        if observer is not None and exchange.lease is not None:
            exchange.lease.first_event()
    if observer is None:
        tail = exchange.tail + chunk
        if len(tail) > _TAIL_BYTES:
            exchange.head = exchange.head or tail[:_TAIL_BYTES]
            tail = tail[-_TAIL_BYTES:]
        exchange.tail = tail
    elif exchange.lease is not None:
        exchange.lease.grow(int(observer.events * exchange.tokens_per_event))


def refuse_half_a_stream(exchange: Exchange) -> None:
    """Raises UpstreamBrokenError where all of a stream has come but its end: it was cut where nothing tells, as behind
    a proxy that closes in order, or by a server that frames its answers by closing.
    """
    observer, status = exchange.observer, exchange.upstream_status or 0
    if observer is not None and status < _FIRST_ERROR and not observer.says_end and observer.error is None:
        raise UpstreamBrokenError("the stream ended without its last event")


def answered(parts: Parts, exchange: Exchange) -> None:
    """The answer is complete, be it a success or the upstream's own refusal. `book` is still to come."""
    status = _final_status(exchange)
    if status < 400:
        _close(parts, exchange, Ending.DONE)
    elif status in BACK_PRESSURE:
        turned_away(exchange, status, exchange.retry_after_seconds)
        _close(parts, exchange, Ending.DROPPED)
        failed_alone(exchange, exchange.ended)
    else:
        _close(parts, exchange, Ending.IGNORED)
        if status >= 500:
            failed(exchange, exchange.ended)


def book(parts: Parts, exchange: Exchange) -> None:
    """Behind `answered`: what the answer teaches, metrics, log line."""
    status = _final_status(exchange)
    if status < 400:
        exchange.usage = exchange.observer.usage if exchange.observer else _told_usage(exchange)
        exchange.backend.models.engine.images.add(exchange.sent_images)
        _learn(exchange)
        _book(parts, exchange, Outcome.FINISHED)
        return
    in_stream = exchange.observer.error if exchange.observer else None
    _learn_limits(
        exchange, learn_from_message(in_stream.message) if in_stream else learn_from_error(status, exchange.tail)
    )
    is_broken = status >= 500 and status not in BACK_PRESSURE
    if exchange.namings and (is_broken or misses_image(status, exchange.tail)):
        lose_names(exchange)
    _book(parts, exchange, Outcome.UPSTREAM_BROKE if is_broken else Outcome.UPSTREAM_REFUSED)


def _told_usage(exchange: Exchange) -> Usage | None:
    """Of a whole answer."""
    dialect = DIALECTS[exchange.route.kind]
    return dialect.usage_of(exchange.head if dialect.usage_is_early and exchange.head else exchange.tail)


def answered_here(parts: Parts, exchange: Exchange) -> None:
    """The gateway gave a whole answer of its own; no model was asked."""
    _close(parts, exchange, Ending.DONE)
    _count(parts, exchange, Outcome.FINISHED)
    _tell(parts, exchange, Outcome.FINISHED, None, 200)


def _final_status(exchange: Exchange) -> int:
    """That of the answer, or of the error at the end of a stream."""
    observer = exchange.observer
    if observer is not None and observer.error is not None:
        return observer.error.status or 500
    return exchange.upstream_status or 0


def refused(parts: Parts, exchange: Exchange, error: GatewayError) -> None:
    """The gateway refused, or could not get an answer from the upstream."""
    outcome = Outcome.UPSTREAM_BROKE if error.code in _OF_THE_UPSTREAM else Outcome.REFUSED
    parts.metrics.rejected(exchange.model_name, error.reason, exchange.priority.label, exchange.tenant.tenant_class)
    if error.is_about_an_image:
        parts.metrics.image_error(error.code)
    if error.retry_after_seconds is not None:
        parts.metrics.retry_after(error.retry_after_seconds)
    _settle(parts, exchange, outcome, error)
    if outcome is Outcome.UPSTREAM_BROKE and exchange.sent_at is not None:
        failed(exchange, exchange.ended)


def client_left(parts: Parts, exchange: Exchange) -> None:
    _settle(parts, exchange, Outcome.CLIENT_LEFT)


def upstream_broke(parts: Parts, exchange: Exchange) -> None:
    """The answer had begun and did not end."""
    _settle(parts, exchange, Outcome.UPSTREAM_BROKE)
    failed(exchange, exchange.ended)


def faulted(parts: Parts, exchange: Exchange) -> None:
    """A fault of the gateway itself."""
    _settle(parts, exchange, Outcome.GATEWAY_FAULT)


def _settle(parts: Parts, exchange: Exchange, outcome: Outcome, error: GatewayError | None = None) -> None:
    if not exchange.is_settled:
        _close(parts, exchange, Ending.IGNORED)
        ended_unasked(exchange, exchange.ended)
        _book(parts, exchange, outcome, error)


def _close(parts: Parts, exchange: Exchange, ending: Ending) -> None:
    exchange.is_settled = True
    exchange.ended = parts.clock()
    exchange.let_go_of_body()
    exchange.backend.unseen.pop(exchange.request_id, None)
    let_go(parts, exchange, ending)


def let_go(parts: Parts, exchange: Exchange, ending: Ending = Ending.IGNORED) -> None:
    """Of what it holds at the engine; also for `finally`. An answer that is made in the background holds it on."""
    lease = exchange.lease
    if lease is None or not lease.is_open or exchange.is_left_working:
        return
    if parts.background is not None and goes_on(exchange, ending):
        exchange.is_left_working = True
        if exchange.bill is not None:
            exchange.bill.stay()
        parts.background.hold(exchange)
    else:
        lease.close(ending)


def _book(parts: Parts, exchange: Exchange, outcome: Outcome, error: GatewayError | None = None) -> None:
    account(parts.metrics, exchange, outcome)
    if exchange.bill is not None:
        _close_bill(parts, exchange, exchange.bill, outcome)
    _count(parts, exchange, outcome)
    if exchange.would_be is not None:
        _count_in_shadow(parts, exchange, exchange.would_be)
    _tell(parts, exchange, outcome, error, _status(parts, exchange, outcome, error))


def _close_bill(parts: Parts, exchange: Exchange, bill: Bill, outcome: Outcome) -> None:
    """Who got no answer pays for none; who left an answer has had it made. What the server counted stands above what
    was expected.
    """
    tokens = exchange.usage.prompt_tokens if exchange.usage else None
    bill.close(parts.clock(), tokens=tokens, is_void=outcome not in _PAID)


def _tell(parts: Parts, exchange: Exchange, outcome: Outcome, error: GatewayError | None, status: int | None) -> None:
    """The log, the list of the last refusals and the trace, as far as there are any."""
    is_refusal = error is not None or exchange.would_be is not None
    if not (parts.log.is_on or is_refusal or exchange.trace is not None):
        return
    record = record_of(exchange, outcome, error, status, parts.clock())
    parts.log.write(record)
    if is_refusal:
        parts.refusals.note(record)
    if exchange.trace is not None:
        exchange.trace.end(record)


def _status(parts: Parts, exchange: Exchange, outcome: Outcome, error: GatewayError | None) -> int | None:
    if outcome is Outcome.CLIENT_LEFT:
        return 499
    if exchange.is_kept_alive:
        return 200
    if error is not None:
        return error_status(error, parts.policies.overload_status)
    return 500 if outcome is Outcome.GATEWAY_FAULT else exchange.upstream_status


def _learn(exchange: Exchange) -> None:
    usage, cost, request, model = exchange.usage, exchange.cost, exchange.request, exchange.model
    if cost is None or request is None or model is None:
        return
    if usage is None:
        _learn_from_events(exchange, cost, request, model)
        return
    # What these images really cost, or how much of the text was kept, is not known.
    told = told_visual_tokens(exchange, usage, model)
    is_guess = told is None and (model.is_assumed or _SURE_SHARE * cost.uncertain_visual_tokens > cost.visual_tokens)
    is_guess = (is_guess and bool(cost.images)) or request.truncate_prompt_tokens is not None
    is_guess = is_guess or not exchange.is_priced_as_sent or bool(cost.media) or bool(request.conversation_lengths)
    if cost.text_tokens.lower != cost.text_tokens.upper and not is_guess:
        visual_tokens = cost.visual_tokens if told is None else told
        text_tokens = usage.prompt_tokens - visual_tokens - request.prompt_token_ids
        model.ratio.observe(request.text_bytes, len(request.messages), text_tokens, has_system=request.has_system)
    # Of an unknown family an image that cost little says nothing of the next one.
    is_whole = request.truncate_prompt_tokens is None and not cost.media
    if exchange.plans and is_whole and not model.is_assumed:
        seen = -cost.text_tokens + (usage.prompt_tokens - request.prompt_token_ids)
        # Less than the upper bound of what may be less is no sign of a cap.
        least = [image_cost(plan, model.family).least_prompt for plan in exchange.plans]
        model.image_cap.observe(least, seen if told is None else Bounds.exact(told))
    if request.wants_output:
        _learn_output(usage.completion_tokens, usage.prompt_tokens, exchange, cost, request, model)
        events = _token_events(exchange, cost) - DIALECTS[exchange.route.kind].usage_events
        model.event_tokens.observe(usage.completion_tokens, events)


def _learn_from_events(exchange: Exchange, cost: RequestCost, request: VisionRequest, model: ServedModel) -> None:
    tokens = int(_token_events(exchange, cost) * model.event_tokens.per_event)
    if tokens:
        exchange.counted_tokens = tokens
        _learn_output(tokens, cost.prompt_tokens.expected, exchange, cost, request, model)


def _token_events(exchange: Exchange, cost: RequestCost) -> int:
    """Events with tokens of a whole stream, and that with its usage where it has one."""
    observer = exchange.observer
    if observer is None or not observer.is_done:
        return 0
    return max(0, observer.events - DIALECTS[exchange.route.kind].opening_events * cost.answers)


def _learn_output(
    tokens: int,
    prompt_tokens: int,
    exchange: Exchange,
    cost: RequestCost,
    request: VisionRequest,
    model: ServedModel,
) -> None:
    most = most_output_tokens(request, prompt_tokens // cost.prompts, model.max_model_len)
    was_cut = most is not None and tokens >= most * cost.answers
    model.output.observe(tokens // cost.answers, was_cut=was_cut)
    if exchange.sent_at is not None:
        model.speed.observe(tokens // cost.answers, exchange.ended - exchange.sent_at)


def _learn_limits(exchange: Exchange, learned: LearnedLimits | None) -> None:
    if learned is None:
        return
    if learned.image_limit is not None:
        exchange.backend.models.engine.image_limit.learn(learned.image_limit)
    if learned.encoder_cache_size is not None:
        exchange.backend.models.engine.encoder_tokens.learn(learned.encoder_cache_size)


def _count(parts: Parts, exchange: Exchange, outcome: Outcome) -> None:
    metrics = parts.metrics
    metrics.request_ended(exchange.model_name, _endpoint(exchange), outcome)
    if exchange.relieved is not None:
        for rung in touched_by(exchange, exchange.relieved):
            metrics.relieved(rung)
    if exchange.queued is not None:
        metrics.queue_wait(exchange.queue_seconds, None if exchange.trace is None else exchange.trace.id)
    if exchange.sent_at is not None and exchange.received is not None:
        _count_sent(metrics, exchange, exchange.sent_at - exchange.received)
    if exchange.observer is not None and exchange.first_event_at is not None:
        metrics.first_token(exchange.first_event_at - exchange.arrived)
    if exchange.transform_seconds:
        metrics.transform(exchange.transform_seconds)
    if exchange.cost is not None and exchange.model is not None:
        _count_price(metrics, exchange, exchange.cost, exchange.model)


def _count_price(metrics: Metrics, exchange: Exchange, cost: RequestCost, model: ServedModel) -> None:
    bounds = visual_bounds(model, cost)
    if bounds is not None and exchange.sent_at is not None:
        metrics.bounded(bounds.why)
    # What is kept for an unknown family, or for videos and audio, is no prediction.
    is_predicted = (bounds is None or bounds.why is not Uncertainty.UNKNOWN_FAMILY) and not cost.media
    usage = exchange.usage
    if usage is not None and exchange.is_priced_as_sent and is_predicted:
        metrics.estimate_error(exchange.model_name, cost.prompt_tokens.expected, usage.prompt_tokens)
        metrics.image_estimate(exchange.model_name, cost.visual_tokens, told_visual_tokens(exchange, usage, model))


def _count_sent(metrics: Metrics, exchange: Exchange, seconds: float) -> None:
    """`seconds` lie between the last byte of the body that came and the first that went on."""
    # What a server took that failed is not the gateway's own.
    if exchange.came_from is None:
        metrics.overhead(seconds - exchange.queue_seconds - exchange.fetch_seconds)
    for plan in exchange.plans:
        saved = plan.tokens_before - plan.tokens
        metrics.image(plan.info.format, _action(exchange, plan), plan.info.size.pixels, plan.tokens, saved)
    if exchange.cost is not None and exchange.cost.media:
        for kind, parts in counts_by_kind(exchange.cost.media).items():
            metrics.media(kind, parts)
    saved = exchange.trimmed_tokens
    for _ in exchange.trimmed:
        metrics.image(None, ImageAction.TRIMMED, None, None, saved)
        saved = 0


def _count_in_shadow(parts: Parts, exchange: Exchange, would_be: WouldBe) -> None:
    refusal = would_be.refusal
    decision = would_be.fate if refusal is None else refusal.reason
    parts.metrics.shadowed(exchange.model_name, decision, exchange.priority.label, exchange.tenant.tenant_class)
    for plan in would_be.plans:
        parts.metrics.shadow_image(planned_action(plan))
    for _ in would_be.trimmed:
        parts.metrics.shadow_image(ImageAction.TRIMMED)


def _endpoint(exchange: Exchange) -> str:
    return "/v1/models" if exchange.route.kind is Kind.MODELS else exchange.route.path


def _action(exchange: Exchange, plan: ImagePlan) -> ImageAction:
    if plan.is_resized:
        return ImageAction.RESIZED
    return ImageAction.NORMALISED if plan.ordinal in exchange.encoded_anew else ImageAction.KEPT
