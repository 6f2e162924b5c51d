"""When a request would have its first token and its end, and whether that is too late for it.

A request goes through the line, then with others to its first token, then from token to token. Line and first token
are one pipe, measured in the same unit: prompt tokens, with REQUEST_TOKENS for each sequence (pace.py). How fast the
line moves is measured while somebody waits. Nothing is predicted from what is not known yet, so nobody is refused then.
"""

from collections.abc import Iterable
from copy import copy
from math import inf, sqrt
from typing import NamedTuple

from gateway.domain.flow_pace import FlowPaces
from gateway.domain.pace import REQUEST_TOKENS, FirstTokenPace, TokenPace
from gateway.domain.promise import DrainRate
from gateway.domain.quantities import Held, Resource, begun_before
from gateway.domain.slo import ServiceLevel
from gateway.domain.ticket import Newcomer, Ticket


class Ahead(NamedTuple):
    """Requests that go before another, what they take to their first token, and the sum of the squares of that.

    `debt_tokens` is what its tenant owes others of the turns to come, as turns are charged.
    """

    requests: int = 0
    tokens: int = 0
    squares: int = 0
    debt_tokens: float = 0.0

    @classmethod
    def of(cls, tickets: Iterable[Ticket], promised: int = 0, debt_tokens: float = 0.0) -> "Ahead":
        """`promised` are those that will come back, however large."""
        tokens = [ticket.prefill_tokens for ticket in tickets] + [REQUEST_TOKENS] * promised
        return cls(len(tokens), sum(tokens), sum(each * each for each in tokens), debt_tokens)

    def plus(self, ticket: Ticket) -> "Ahead":
        """With one more."""
        tokens = ticket.prefill_tokens
        return self._replace(
            requests=self.requests + 1, tokens=self.tokens + tokens, squares=self.squares + tokens * tokens
        )


class Miss(NamedTuple):
    """What would come too late; both in seconds from now."""

    what: str
    expected_seconds: float
    due_seconds: float


class Forecast:
    """For one engine. The paces are observed by whoever sees answers (ledger/gate.py), the line by admission.py.

    `begin_seconds` is within what answers are to begin once they were sent, `answer_seconds` what levels of service
    leave for an answer from its first token on. `is_bound` says that there are such levels, by which it is limited what
    is let in.
    """

    __slots__ = ("_answer_seconds", "first_token", "flows", "is_bound", "line", "token", "turns")

    _LINE_MEMORY_SECONDS = 8.0
    _ROOM = 1.5
    _LINE_ROOM = 2.5
    """A line may come to move so many times slower or faster than it did: a part of a level's time of waiting keeps an
    engine busy, and who waits in vain learns it late. With 2.0, one refusal in fifty came late at five times the
    capacity, with 2.5 one in a hundred."""
    _ROOMY_REQUESTS = 16
    """Of the room a shorter line gets the square of its share. An engine of one turn a second would else refuse who is
    next in line: it wants for work then, and polite tenants, who wait for few, are refused for what many wait for."""
    _TURNS_MISSED = 3.0

    def __init__(self, *, begin_seconds: float = inf, answer_seconds: float = inf) -> None:
        self._answer_seconds = answer_seconds
        self.first_token = FirstTokenPace(begin_seconds)
        self.token = TokenPace()
        self.is_bound = min(begin_seconds, answer_seconds) < inf
        self.line = DrainRate(self._LINE_MEMORY_SECONDS)
        self.turns = DrainRate(self._LINE_MEMORY_SECONDS)
        self.flows = FlowPaces()

    @classmethod
    def of(cls, soonest: ServiceLevel) -> "Forecast":
        """An eighth of the time to the first token is the engine's, the rest is for waiting here, where turns are fair.

        What is left then is for the answer.
        """
        first, total = soonest
        return cls(begin_seconds=first / 8, answer_seconds=total - first if first < inf else total)

    def copy(self) -> "Forecast":
        """With the same paces, and a line that goes its own way from now on."""
        other = copy(self)
        other.line, other.turns, other.flows = copy(self.line), copy(self.turns), self.flows.copy()
        return other

    @property
    def most_sequences(self) -> int | None:
        """With how many at the engine answers end in time; None: with any, as far as is known."""
        return self.token.most_sequences(self._answer_seconds)

    def miss(self, ticket: Ticket, now: float, ahead: Ahead | None, held: Held) -> Miss | None:
        """What would come too late; None: nothing, or it cannot be told. `ahead` of it in the line (None: it need not
        wait).
        """
        wait = 0.0 if ahead is None else self._wait_seconds(ticket, ahead, now)
        first = wait + self._begins_within(ticket, held)
        if now + first > ticket.first_token_by:
            return Miss("first token", first, ticket.first_token_by - now)
        end = first + self.token.seconds(ticket.likely_tokens, held(Resource.SEQUENCES) + 1)
        if now + end > ticket.answer_by:
            return Miss("end of the answer", end, ticket.answer_by - now)
        return None

    def flow_seconds(self, newcomer: Ticket | Newcomer, debt_tokens: float, now: float) -> float:
        """How long those of its flow take to have their turns, with room; `debt_tokens` is what its tenant owes."""
        return self._LINE_ROOM * self.flows.seconds(newcomer, debt_tokens, now)

    def start_by(self, ticket: Ticket | Newcomer, held: Held) -> float:
        """When it must leave the line, at the latest."""
        first = self._begins_within(ticket, held)
        rest = self.token.seconds(ticket.likely_tokens, held(Resource.SEQUENCES))
        return min(ticket.first_token_by - first, ticket.answer_by - first - rest)

    def lost(self, waiting: Iterable[Ticket], now: float, held: Held) -> list[Ticket]:
        """Those of the line, in its order, that come too late though it moved as much faster as it may, and a standard
        deviation.
        """
        ahead, lost = Ahead(), []
        for ticket in waiting:
            wait = self._line_seconds(ahead.tokens - sqrt(ahead.squares), now) / self._LINE_ROOM
            if now + wait > self.start_by(ticket, held):
                lost.append(ticket)
            else:
                ahead = ahead.plus(ticket)
        return lost

    def _begins_within(self, ticket: Ticket | Newcomer, held: Held) -> float:
        """How long it takes to its first token at the engine, with some room: there it is out of hand."""
        under_way = sum(map(held, begun_before(is_image=ticket.is_image)))
        return self._ROOM * self.first_token.seconds(under_way + ticket.prefill_tokens)

    def _wait_seconds(self, ticket: Ticket, ahead: Ahead, now: float) -> float:
        """The longer of what the line as it stands says and what its flow has seen lately, with room."""
        room = 1.0 + (self._LINE_ROOM - 1.0) * min(1.0, ahead.requests / self._ROOMY_REQUESTS) ** 2
        return room * max(self._turn_seconds(ahead, now), self.flows.seconds(ticket, ahead.debt_tokens, now))

    def _turn_seconds(self, ahead: Ahead, now: float) -> float:
        """How long until all of these have left the line and one more had its turn; 0 while that is not known.

        Where seats are short a large request takes no longer than a small one; where prefill is, it does. The shorter
        counts. An engine that has just filled up lets the line stand still, which its mean pace tells only later.
        """
        turns_a_second = self.turns.per_second(now)
        if not turns_a_second:
            return 0.0
        seconds = min(self._line_seconds(ahead.tokens, now), ahead.requests / turns_a_second) + 1.0 / turns_a_second
        return seconds * max(1.0, self.turns.idle_seconds(now) * turns_a_second / self._TURNS_MISSED)

    def _line_seconds(self, tokens: float, now: float) -> float:
        tokens_a_second = self.line.per_second(now)
        return tokens / tokens_a_second if tokens_a_second else 0.0

    def waiting(self, ticket: Ticket, now: float) -> None:
        """It joined the line: from now on the line's pace shows."""
        self.line.resume(now)
        self.turns.resume(now)
        self.flows.joined(ticket, now)

    def let_in(self, ticket: Ticket, now: float) -> None:
        """One that waited left the line for the engine."""
        self.line.count(now, ticket.prefill_tokens)
        self.turns.count(now)
        self.flows.let_in(ticket, now)

    def left(self, ticket: Ticket, now: float) -> None:
        """It is not in the line any more, for whatever reason."""
        self.flows.left(ticket, now)

    def nobody_waits(self, now: float) -> None:
        self.line.pause(now)
        self.turns.pause(now)
