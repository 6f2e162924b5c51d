"""How long answers become: what is reserved for them, and what they have probably generated while nothing shows it.

Pure little models like those of learning.py: each starts from a stated prior, stays within stated bounds, and forgets.
"""

from bisect import bisect_left, bisect_right, insort
from collections import deque
from enum import StrEnum

from gateway.domain.request import VisionRequest


class ReservationRule(StrEnum):
    """How much of an answer is reserved when it begins; what it takes beyond that is charged as it grows.

    QUANTILE: what three quarters of this model's answers do not exceed, so that the pool is shared closely. MAX: the
    most that it may have, so that none outgrows its place, and few get one. NONE: one token.
    """

    QUANTILE = "quantile"
    MAX = "max"
    NONE = "none"


class OutputReservation:
    """How many tokens to reserve for an answer: the 0.75 quantile of finished answers, 512 until there are 30; twice
    the longest of 8 or more, if that is less: the first that finish are the shortest of those that began together.

    The quantile is that of the last 512 samples, by nearest rank (the smallest sample that at least three quarters of
    them do not exceed). Answers cut short, by the client or by their own bound, are no samples.

    What `prior` knows stands in the place of the 512, and of what is not known before there are enough samples.
    """

    __slots__ = ("_prior", "_recent", "_sorted")

    _PRIOR_TOKENS = 512
    _FEW_SAMPLES = 8
    _ENOUGH_SAMPLES = 30
    _KEPT_SAMPLES = 512

    def __init__(self, prior: "OutputReservation | None" = None) -> None:
        self._prior = prior
        self._recent: deque[int] = deque()
        self._sorted: list[int] = []

    def observe(self, output_tokens: int, *, was_cut: bool) -> None:
        """`output_tokens` of one answer, as usage reports them."""
        if was_cut:
            return
        self._recent.append(output_tokens)
        insort(self._sorted, output_tokens)
        if len(self._recent) > self._KEPT_SAMPLES:
            del self._sorted[bisect_left(self._sorted, self._recent.popleft())]

    @property
    def typical_tokens(self) -> int:
        samples = len(self._sorted)
        if samples < self._ENOUGH_SAMPLES:
            prior_tokens = self._PRIOR_TOKENS if self._prior is None else self._prior.typical_tokens
            return prior_tokens if samples < self._FEW_SAMPLES else min(2 * self._sorted[-1], prior_tokens)
        return self._sorted[-(-3 * samples // 4) - 1]

    def reached_tokens(self, generated_tokens: int) -> int:
        """The same quantile of those answers that became longer than `generated_tokens`; 0 until there are enough."""
        first = bisect_right(self._sorted, generated_tokens)
        longer = len(self._sorted) - first
        return 0 if longer < self._ENOUGH_SAMPLES // 3 else self._sorted[first - (-3 * longer // 4) - 1]

    @property
    def likely_tokens(self) -> int:
        """The median; 0 until there are enough samples."""
        samples = len(self._sorted)
        if samples < self._ENOUGH_SAMPLES:
            return 0 if self._prior is None else self._prior.likely_tokens
        return self._sorted[samples // 2]

    def tokens(
        self,
        request: VisionRequest,
        prompt_tokens: int,
        max_model_len: int | None,
        rule: ReservationRule = ReservationRule.QUANTILE,
    ) -> int:
        """Tokens to reserve for each answer to a prompt of `prompt_tokens`; 0 where nothing is generated.

        Where nothing bounds the answer, MAX has no number and reserves as QUANTILE does.
        """
        if not request.wants_output:
            return 0
        if rule is ReservationRule.NONE:
            return 1
        most = most_output_tokens(request, prompt_tokens, max_model_len)
        if most is None:
            return max(1, self.typical_tokens)
        return max(1, most if rule is ReservationRule.MAX else min(self.typical_tokens, most))


def most_output_tokens(request: VisionRequest, prompt_tokens: int, max_model_len: int | None) -> int | None:
    """What vLLM lets one answer have at most: the client's bound, the remainder of the context; None: no bound."""
    remainder = None if max_model_len is None else max_model_len - prompt_tokens
    if request.max_tokens is None or remainder is None:
        return remainder if request.max_tokens is None else request.max_tokens
    return min(request.max_tokens, remainder)


class AnswerSpeed:
    """Tokens per second of one answer, over all its time at the engine; starts at 20.

    A decayed mean over seconds, so one long answer weighs as much as many short ones.
    """

    __slots__ = ("_seconds", "_tokens")

    _PRIOR_TOKENS = 400.0
    _PRIOR_SECONDS = 20.0
    _MEMORY_SECONDS = 600.0

    def __init__(self) -> None:
        self._tokens = self._PRIOR_TOKENS
        self._seconds = self._PRIOR_SECONDS

    @property
    def tokens_per_second(self) -> float:
        return self._tokens / self._seconds

    def observe(self, output_tokens: int, seconds: float) -> None:
        """One answer of `output_tokens` came whole after `seconds`; one without tokens says nothing."""
        if output_tokens <= 0 or seconds <= 0:
            return
        kept = self._MEMORY_SECONDS / (self._MEMORY_SECONDS + seconds)
        self._tokens = (self._tokens + output_tokens) * kept
        self._seconds = (self._seconds + seconds) * kept

    def generated_tokens(self, now: float, sent: float, most_tokens: int | None) -> int:
        """What an answer that shows nothing until its end has probably generated by `now`, if `sent` is when it went.

        A second of an estimate that is too long would only let less in; `most_tokens` (None: no bound) it cannot pass.
        """
        tokens = int((now - sent) * self.tokens_per_second)
        return tokens if most_tokens is None else min(tokens, most_tokens)


class EventTokens:
    """Tokens per event of one model's streams, from the usage that ends them; one, until some say otherwise.

    Several come at once with speculative decoding or `--stream-interval`; then a count of events alone would let
    answers outgrow what is held for them. A decayed mean over events, never below one.
    """

    __slots__ = ("_events", "_tokens", "per_event")

    _PRIOR_EVENTS = 200.0
    _MEMORY_EVENTS = 20_000.0

    def __init__(self) -> None:
        self._tokens = self._events = self._PRIOR_EVENTS
        self.per_event = 1.0

    def observe(self, output_tokens: int, events: int) -> None:
        """A whole stream of so many `events` with tokens; one without says nothing."""
        if events <= 0 or output_tokens <= 0:
            return
        kept = self._MEMORY_EVENTS / (self._MEMORY_EVENTS + events)
        self._tokens = (self._tokens + output_tokens) * kept
        self._events = (self._events + events) * kept
        self.per_event = max(1.0, self._tokens / self._events)
