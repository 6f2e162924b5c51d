"""How fast one engine works, learned from what passes: to the first token, and from token to token.

Pure. Each pace is unknown until a few answers were seen, and follows the load within seconds. What is decided by them
is forecast.py's.
"""

from math import inf

REQUEST_TOKENS = 512
"""A request's own turn keeps an engine about as long as so many tokens of its prompt do."""


class FirstTokenPace:
    """Tokens a second that an engine brings to their first token: of prompts, and REQUEST_TOKENS for each sequence.

    A request whose first token comes t seconds after it was sent, behind others of `ahead` tokens, has seen
    (ahead + own) / t. That is low where requests wait inside the engine, whatever for: a seat, prefill, the image
    thread. So the window, what may be on its way at once, opens while answers begin sooner than the target and closes
    while they begin later: by Little's law it ends where they begin at the target. It is at most twice what was on its
    way at once lately, for an engine with places left says nothing of how it is when these are taken.

    A decayed mean over seconds. No sample counts for more than half of the memory: the first answers of a cold engine
    may take very long.
    """

    __slots__ = ("_most_at_once", "_samples", "_seconds", "_target_seconds", "_tokens")

    _PRIOR_TOKENS = 4_000.0
    _PRIOR_SECONDS = 1.0
    _MEMORY_SECONDS = 6.0
    _ENOUGH_SAMPLES = 5
    _KEPT = 0.95

    def __init__(self, target_seconds: float = inf) -> None:
        self._target_seconds = target_seconds
        self._tokens = self._PRIOR_TOKENS
        self._seconds = self._PRIOR_SECONDS
        self._samples = 0
        self._most_at_once = self._PRIOR_TOKENS / 2

    @property
    def is_known(self) -> bool:
        return self._samples >= self._ENOUGH_SAMPLES

    @property
    def tokens_per_second(self) -> float:
        return self._tokens / self._seconds

    @property
    def window_tokens(self) -> int | None:
        """What may be on its way to the first token at once; None without a target."""
        if self._target_seconds == inf:
            return None
        return int(min(self.tokens_per_second * self._target_seconds, 2 * self._most_at_once))

    def observe(self, tokens: int, seconds: float) -> None:
        """A first token came `seconds` after its request was sent; `tokens` are its own and those that were ahead."""
        if seconds <= 0:
            return
        counted_seconds = min(seconds, self._MEMORY_SECONDS / 2)
        kept = self._MEMORY_SECONDS / (self._MEMORY_SECONDS + counted_seconds)
        self._tokens = self._tokens * kept + tokens * counted_seconds / seconds
        self._seconds = self._seconds * kept + counted_seconds
        self._samples += 1
        self._most_at_once = max(tokens, self._most_at_once * self._KEPT)

    def seconds(self, tokens: int) -> float:
        """How long the last of so many `tokens` on their way takes to its first token; 0 while that is not known."""
        return tokens / self.tokens_per_second if self.is_known else 0.0


class TokenPace:
    """Seconds from token to token of one answer, by how many sequences the engine has.

    A straight line through the last twenty or so answers: least squares, the older the less weight. It never falls with
    the load and never rises faster than in proportion to it.
    """

    __slots__ = ("_load", "_load_load", "_load_pace", "_pace", "_samples", "_tokens", "_weight")

    _KEPT = 0.95
    _ENOUGH_SAMPLES = 5
    _FEWEST_TOKENS = 8

    def __init__(self) -> None:
        self._weight = self._load = self._pace = self._load_load = self._load_pace = self._tokens = 0.0
        self._samples = 0

    @property
    def is_known(self) -> bool:
        return self._samples >= self._ENOUGH_SAMPLES

    def observe(self, tokens: int, seconds: float, sequences: float) -> None:
        """`tokens` of one answer took `seconds` while the engine had `sequences`; a few tokens say nothing."""
        if tokens < self._FEWEST_TOKENS or seconds <= 0 or sequences <= 0:
            return
        pace, kept = seconds / tokens, self._KEPT
        self._weight = self._weight * kept + 1.0
        self._load = self._load * kept + sequences
        self._pace = self._pace * kept + pace
        self._load_load = self._load_load * kept + sequences * sequences
        self._load_pace = self._load_pace * kept + sequences * pace
        self._tokens = self._tokens * kept + tokens
        self._samples += 1

    def seconds(self, tokens: int, sequences: int) -> float:
        """How long `tokens` of one answer take beside others, `sequences` in all; 0 while that is not known."""
        if not self.is_known:
            return 0.0
        mean_load, mean_pace, slope = self._line()
        return tokens * max(0.0, mean_pace + slope * (sequences - mean_load))

    def most_sequences(self, seconds: float) -> int | None:
        """With how many an answer of mean length takes no more than `seconds`; None: with any, as far as is known."""
        mean_load, mean_pace, slope = self._line() if self.is_known else (0.0, 0.0, 0.0)
        if slope <= 0.0 or seconds == inf:
            return None
        pace = seconds * self._weight / self._tokens
        return max(1, int(mean_load + (pace - mean_pace) / slope))

    def _line(self) -> tuple[float, float, float]:
        """Mean load, mean pace, and what one sequence more adds to the pace."""
        mean_load, mean_pace = self._load / self._weight, self._pace / self._weight
        spread = self._load_load / self._weight - mean_load * mean_load
        # Loads that hardly differ tell nothing of the slope.
        if spread < 0.25:
            return mean_load, mean_pace, 0.0
        slope = (self._load_pace / self._weight - mean_load * mean_pace) / spread
        return mean_load, mean_pace, min(max(slope, 0.0), mean_pace / mean_load)
