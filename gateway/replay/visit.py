"""One request at the gate and at the engine, from its question for a place to its one end."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from gateway.domain.decision import Decision, Refusal, Verdict
from gateway.domain.growth import GROWTH_STEP_TOKENS
from gateway.domain.outcome import Ending, Fate, Outcome
from gateway.domain.output import most_output_tokens
from gateway.domain.ticket import Ticket
from gateway.ledger.gate import Gate
from gateway.ledger.lease import Lease
from gateway.replay.lines import Line
from gateway.replay.pace import Recording, Service
from gateway.replay.pricing import Priced
from gateway.replay.tally import Ended, fate_of
from gateway.replay.virtual_time import VirtualTime


class Place(NamedTuple):
    """Where all visits of one simulation take place. `in_work` are those at the engine; `on_ended` is told of each
    that ends.
    """

    gate: Gate
    time: VirtualTime
    recording: Recording
    in_work: "set[Visit]"
    on_ended: Callable[[Line, Ended], None]


class Visit:
    """The log's `number`th request."""

    __slots__ = ("_lease", "_line", "_number", "_place", "_priced", "_result", "_sent_at", "_service", "_ticket")

    def __init__(self, place: Place, number: int, line: Line, priced: Priced, ticket: Ticket) -> None:
        self._place = place
        self._number = number
        self._line = line
        self._priced = priced
        self._ticket = ticket
        self._lease: Lease | None = None
        self._result: Ended | None = None
        self._service = Service(0.0, 0.0, 0)
        self._sent_at = 0.0

    def begin(self) -> None:
        """It asks for its place."""
        line, time = self._line, self._place.time
        decision = self._place.gate.ask(self._ticket, self._decided)
        if decision is not Verdict.WAITING:
            self._decided(decision)
        if line.outcome is Outcome.CLIENT_LEFT and not line.was_sent:
            time.call_later(max(0.0, line.ended - time.now), self._leave)

    def _decided(self, decision: Decision) -> None:
        if isinstance(decision, Refusal):
            self._result = Ended(Fate.REFUSED, decision.reason)
            self._place.on_ended(self._line, self._result)
            return
        if self._priced.exchange.relieved is not None:
            self._priced.exchange.relieved.remember()
        place, now = self._place, self._place.time.now
        wait_seconds = now - self._ticket.arrived
        self._lease = place.gate.lease(self._ticket, wait_seconds)
        self._service = self._taken_of_the_engine()
        self._sent_at = now
        self._result = self._let_in(wait_seconds)
        place.in_work.add(self)
        self._set_timers(self._lease)

    def _taken_of_the_engine(self) -> Service:
        cost, model = self._priced.cost, self._priced.model
        prompt_tokens = cost.prompt_tokens.expected
        most = most_output_tokens(self._priced.request, prompt_tokens // cost.prompts, model.max_model_len)
        others = len(self._place.in_work)
        return self._place.recording.service(self._line, self._number, prompt_tokens, most, others)

    def _let_in(self, wait_seconds: float) -> Ended:
        plan, first_token = self._priced.plan, None
        if self._line.is_streaming:
            first_token = self._sent_at - self._line.arrived + self._service.first_seconds
        shrunk = sum(image.is_resized for image in plan.plans)
        return Ended(fate_of(wait_seconds), None, wait_seconds, first_token, shrunk, len(plan.trimmed))

    def _set_timers(self, lease: Lease) -> None:
        time, service = self._place.time, self._service
        lease.sent(is_streamed=self._line.is_streaming)
        if self._line.is_streaming:
            time.call_later(service.first_seconds, lease.first_event)
        time.call_later(service.whole_seconds, self._end)
        self._grow_later(lease, GROWTH_STEP_TOKENS)

    def _grow_later(self, lease: Lease, tokens: int) -> None:
        """Once the answer has so many."""
        if tokens <= self._service.output_tokens:
            due = self._sent_at + self._service.seconds_at(tokens)
            self._place.time.call_later(due - self._place.time.now, partial(self._grow, lease, tokens))

    def _grow(self, lease: Lease, tokens: int) -> None:
        if lease.is_open:
            lease.grow(tokens)
            self._grow_later(lease, tokens + GROWTH_STEP_TOKENS)

    def _end(self) -> None:
        if self._lease is not None and self._lease.is_open:
            # How fast tokens come is learned from all of them, not only from those beyond what was held.
            self._lease.grow(self._service.output_tokens)
            # Of what was refused nobody knows that it would have failed.
            is_whole = not self._line.was_sent or self._line.outcome is Outcome.FINISHED
            if is_whole:
                self._teach()
            self._close(self._lease, Ending.DONE if is_whole else Ending.IGNORED)

    def _leave(self) -> None:
        if self._lease is not None and self._lease.is_open:
            self._close(self._lease, Ending.IGNORED)
        elif self._result is None:
            self._place.gate.withdraw(self._ticket)
            self._place.on_ended(self._line, Ended(Fate.LEFT))

    def _close(self, lease: Lease, ending: Ending) -> None:
        assert self._result is not None, "it was let in"
        self._place.in_work.remove(self)
        self._place.on_ended(self._line, self._result)
        lease.close(ending)

    def _teach(self) -> None:
        """What the gateway learns from a finished answer that decides about the next."""
        cost, model, tokens = self._priced.cost, self._priced.model, self._service.output_tokens
        self._priced.exchange.models.engine.images.add(self._priced.pictures)
        if self._line.outcome is Outcome.FINISHED and tokens:
            prompt_tokens = cost.prompt_tokens.expected // cost.prompts
            most = most_output_tokens(self._priced.request, prompt_tokens, model.max_model_len)
            model.output.observe(tokens // cost.answers, was_cut=most is not None and tokens >= most * cost.answers)
