"""What is learned from the traffic itself: pure little models that are told observations and asked for numbers.

Each starts from a stated prior, stays within stated bounds, and forgets. Nothing here can refuse a request: a learned
capacity may only make it wait. Observing is left to the rooms that see answers and polls.
"""

from bisect import bisect_left, insort
from collections import deque

from gateway.domain.cost import LARGEST_TOKEN_BYTES, template_tokens, text_bounds
from gateway.domain.quantities import Bounds
from gateway.domain.request import VisionRequest


class OutputReservation:
    """How many tokens to reserve for an answer: the 0.75 quantile of finished answers, 512 until there are 30.

    The quantile is that of the last 512 samples, by nearest rank (the smallest sample that at least three quarters of
    them do not exceed). Answers cut short, by the client or by their own bound, are no samples.
    """

    __slots__ = ("_recent", "_sorted")

    _PRIOR_TOKENS = 512
    _ENOUGH_SAMPLES = 30
    _KEPT_SAMPLES = 512

    def __init__(self) -> None:
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
            return self._PRIOR_TOKENS
        return self._sorted[-(-3 * samples // 4) - 1]

    def tokens(self, request: VisionRequest, prompt_tokens: int, max_model_len: int | None) -> int:
        """Tokens to reserve for each answer to a prompt of `prompt_tokens`; 0 where nothing is generated."""
        if not request.wants_output:
            return 0
        bounds = [self.typical_tokens]
        if request.max_tokens is not None:
            bounds.append(request.max_tokens)
        if max_model_len is not None:
            bounds.append(max_model_len - prompt_tokens)
        return max(1, min(bounds))


class TextRatio:
    """Bytes of text per token of one model, from the prompt tokens that usage reports; starts at 3.

    A decayed mean over bytes, so one long prompt weighs as much as many short ones. Kept between 1 byte (byte-level
    vocabularies have no shorter token) and the longest token.
    """

    __slots__ = ("_bytes", "_tokens")

    _PRIOR_BYTES = 3_000.0
    _PRIOR_TOKENS = 1_000.0
    _MEMORY_TOKENS = 100_000.0

    def __init__(self) -> None:
        self._bytes = self._PRIOR_BYTES
        self._tokens = self._PRIOR_TOKENS

    @property
    def bytes_per_token(self) -> float:
        return min(max(self._bytes / self._tokens, 1.0), float(LARGEST_TOKEN_BYTES))

    def observe(self, text_bytes: int, message_count: int, text_tokens: int) -> None:
        """`text_tokens`: reported prompt tokens less those of images; what the template adds is taken off here."""
        tokens = text_tokens - template_tokens(message_count).expected
        if tokens <= 0 or not text_bytes:
            return
        kept = self._MEMORY_TOKENS / (self._MEMORY_TOKENS + tokens)
        self._bytes = (self._bytes + text_bytes) * kept
        self._tokens = (self._tokens + tokens) * kept

    def bounds(self, text_bytes: int, message_count: int, *, uncertain_bytes: int = 0) -> Bounds:
        """Tokens of `text_bytes`, of which `uncertain_bytes` may never reach the prompt."""
        return text_bounds(text_bytes, message_count, self.bytes_per_token, uncertain_bytes=uncertain_bytes)


class PreprocessRate:
    """Pixels per second that the engine decodes and preprocesses, on its one thread; starts at 20 million.

    Only first events of streams show that an image is through, and they come later than that. So they are watched over
    stretches of uninterrupted work, each at least a second long, and until what was on its way at the start is through.
    Where the thread had at least half a backlog all the time, the throughput is the sample: it is what the way to the
    first token carries. Where it had not, the pixels seen through less those on their way at the start are a *lower*
    bound of the rate: believed where it is above the present one. Either moves the rate by half of the difference.

    Answers that are not streamed show nothing. For them `done_at` says when the thread should be through.
    """

    __slots__ = (
        "_backlog_seconds",
        "_busy_until",
        "_carried",
        "_is_loaded",
        "_outstanding",
        "_rate",
        "_seen",
        "_since",
    )

    _PRIOR_RATE = 20e6
    _LOWEST_RATE = 1e6
    _HIGHEST_RATE = 500e6
    _STRETCH_SECONDS = 1.0

    def __init__(self, backlog_seconds: float = 2.0) -> None:
        self._backlog_seconds = backlog_seconds
        self._rate = self._PRIOR_RATE
        self._outstanding = 0
        self._busy_until = 0.0
        self._since = 0.0
        self._seen = 0
        self._carried = 0
        self._is_loaded = False

    @property
    def pixels_per_second(self) -> float:
        return self._rate

    @property
    def capacity_pixels(self) -> int:
        """The backlog that may be on its way at once."""
        return int(self._rate * self._backlog_seconds)

    def sent(self, now: float, pixels: int) -> float:
        """`pixels` go to the engine; returns when its thread should be through with them, work ahead included."""
        if not self._outstanding:
            self._begin_stretch(now)
        self._outstanding += pixels
        self._busy_until = max(self._busy_until, now) + pixels / self._rate
        return self._busy_until

    def seen_through(self, now: float, pixels: int) -> None:
        """The first event of a stream came: its pixels are preprocessed."""
        self._outstanding -= pixels
        self._seen += pixels
        self._is_loaded = self._is_loaded and 2 * self._outstanding >= self.capacity_pixels
        seconds = now - self._since
        needed = self._carried if self._is_loaded else 2 * self._carried
        if seconds >= self._STRETCH_SECONDS and self._seen >= needed:
            self._learn(seconds)
            self._begin_stretch(now)
        elif not self._outstanding and seconds > 0:
            self._learn(seconds)

    def lost_sight(self, now: float, pixels: int) -> None:
        """`pixels` are no longer followed (not streamed, or ended early): the stretch proves nothing more."""
        self._outstanding -= pixels
        self._begin_stretch(now)

    def _begin_stretch(self, now: float) -> None:
        self._since = now
        self._seen = 0
        self._carried = self._outstanding
        self._is_loaded = 2 * self._outstanding >= self.capacity_pixels

    def _learn(self, seconds: float) -> None:
        proven = (self._seen - self._carried) / seconds
        if self._is_loaded:
            sample = self._seen / seconds
        elif proven > self._rate:
            sample = proven
        else:
            return
        moved = self._rate + 0.5 * (sample - self._rate)
        self._rate = min(max(moved, self._LOWEST_RATE), self._HIGHEST_RATE)


class SequenceCeiling:
    """How many sequences the engine runs at once (its `max_num_seqs` is not told); starts at 128.

    Running flat while it has requests waiting, over two polls: that many. Running at the ceiling while requests wait
    here and none there, over two polls: a quarter more. Within a tenth counts as at the ceiling, for some of ours are
    always on their way in or out.
    """

    __slots__ = ("_ceiling", "_last")

    def __init__(self) -> None:
        self._ceiling = 128
        self._last: tuple[bool, int | None] = (False, None)

    @property
    def sequences(self) -> int:
        return self._ceiling

    def observe(self, running: int, waiting: int, queue_depth: int) -> None:
        """One poll: `running` and `waiting` at the engine, `queue_depth` here."""
        is_free = waiting == 0 and queue_depth > 0 and 10 * running >= 9 * self._ceiling
        full_at = running if waiting > 0 and running > 0 else None
        was_free, was_full_at = self._last
        self._last = (is_free, full_at)
        if full_at is not None and full_at == was_full_at:
            self._ceiling = full_at
        elif is_free and was_free:
            self._ceiling += max(1, self._ceiling // 4)
            self._last = (False, None)


class LearnedLimit:
    """A limit that a setting gives or the engine's own 400 names: encoder tokens per image, images per prompt.

    The engine's word is final; the setting stands until it speaks.
    """

    __slots__ = ("_setting", "_told")

    def __init__(self, setting: int | None = None) -> None:
        self._setting = setting
        self._told: int | None = None

    @property
    def value(self) -> int | None:
        known = [limit for limit in (self._setting, self._told) if limit is not None]
        return min(known, default=None)

    def learn(self, limit: int) -> None:
        self._told = limit

    def forget(self) -> None:
        """The engine was restarted, perhaps with another limit: what it said before no longer counts."""
        self._told = None
