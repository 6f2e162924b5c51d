"""What is learned from the traffic itself: pure little models that are told observations and asked for numbers.

Each starts from a stated prior, stays within stated bounds, and forgets. Nothing here can refuse a request: a learned
capacity may only make it wait. Observing is left to the rooms that see answers and polls.
"""

from collections.abc import Sequence

from gateway.domain.quantities import Bounds
from gateway.domain.text_tokens import LARGEST_TOKEN_BYTES, template_tokens, text_bounds


class TextRatio:
    """Bytes of text per token of one model, from the prompt tokens that usage reports; starts at 3, or at what the
    model's server made of a sample, if that is less: a sample is one text, and what is asked may be denser.

    A decayed mean over bytes, so one long prompt weighs as much as many short ones. Kept between 1 byte (byte-level
    vocabularies have no shorter token) and the longest token.

    Of a conversation whose `has_system` is false, the template may write a system message of its own, which the sample
    showed.
    """

    __slots__ = ("_bytes", "_default_system_tokens", "_is_taught", "_tokens")

    _PRIOR_BYTES = 3_000.0
    _PRIOR_TOKENS = 1_000.0
    _MEMORY_TOKENS = 100_000.0

    def __init__(self) -> None:
        self._bytes = self._PRIOR_BYTES
        self._tokens = self._PRIOR_TOKENS
        self._default_system_tokens = 0
        self._is_taught = False

    @property
    def bytes_per_token(self) -> float:
        return min(max(self._bytes / self._tokens, 1.0), float(LARGEST_TOKEN_BYTES))

    def sampled(self, text_bytes: int, text_tokens: int, template: int) -> None:
        """The server counted a text by itself, and the tokens that its template writes around one message of a user.

        What usage has taught since the start is of the requests themselves, and stands.
        """
        if self._is_taught:
            return
        self._bytes = min(self._bytes, self._tokens * text_bytes / max(1, text_tokens))
        usual = template_tokens(1)
        self._default_system_tokens = max(0, min(template, usual.upper) - usual.expected)

    def observe(self, text_bytes: int, message_count: int, text_tokens: int, *, has_system: bool = True) -> None:
        """`text_tokens`: reported prompt tokens less those of images; what the template adds is taken off here."""
        written = template_tokens(message_count).expected + self._written_by_default(
            message_count, has_system=has_system
        )
        tokens = text_tokens - written
        if tokens <= 0 or not text_bytes:
            return
        kept = self._MEMORY_TOKENS / (self._MEMORY_TOKENS + tokens)
        self._bytes = (self._bytes + text_bytes) * kept
        self._tokens = (self._tokens + tokens) * kept
        self._is_taught = True

    def bounds(
        self, text_bytes: int, message_count: int, *, uncertain_bytes: int = 0, has_system: bool = True
    ) -> Bounds:
        """Tokens of `text_bytes`, of which `uncertain_bytes` may never reach the prompt."""
        bounds = text_bounds(text_bytes, message_count, self.bytes_per_token, uncertain_bytes=uncertain_bytes)
        expected = bounds.expected + self._written_by_default(message_count, has_system=has_system)
        return bounds._replace(expected=expected, upper=max(bounds.upper, expected))

    def _written_by_default(self, message_count: int, *, has_system: bool) -> int:
        return self._default_system_tokens if message_count and not has_system else 0


class ImageTokenCap:
    """Most prompt tokens of one image, where the server was started with a smaller maximum than its model's own.

    vLLM tells it nowhere, but usage does: where a prompt was much shorter than its images should have made it, they
    were all cut to the same number. `most` is None until then, and again once images were surely more; calibration may
    know it from the start, and then it `is_bound`: of other shapes than were measured images may be cut to less.
    """

    __slots__ = ("is_bound", "most")

    _CERTAIN_SHARE = 0.8
    _CERTAIN_TOKENS = 256

    _LEAST_SHARE = 3  # both sides become whole units, and two that are nearly full may become one

    def __init__(self, most: int | None = None, *, is_bound: bool = False) -> None:
        self.most = most
        self.is_bound = is_bound

    def observe(self, image_tokens: Sequence[int], seen: Bounds) -> None:
        """Images that without a cap make `image_tokens` made `seen` in all: what usage says, less the text."""
        expected = sum(image_tokens)
        if seen.upper < min(expected * self._CERTAIN_SHARE, expected - self._CERTAIN_TOKENS):
            self.most, self.is_bound = _level(image_tokens, seen.expected), False
        elif seen.lower > sum(map(self.within, image_tokens)):
            self.most = None

    def within(self, tokens: int) -> int:
        """Of an image that without a cap makes `tokens`."""
        return tokens if self.most is None else min(tokens, self.most)

    def least_within(self, tokens: int) -> int:
        """What is sure to come of it: one that is nearly as much as the bound may be cut too."""
        if self.most is None or not self.is_bound or tokens <= self.most * self._CERTAIN_SHARE:
            return self.within(tokens)
        return self.most // self._LEAST_SHARE


def _level(amounts: Sequence[int], total: int) -> int:
    """The number to which all that are larger have to be cut for a sum of `total`, which is less than theirs."""
    left, largest_first = total, sorted(amounts, reverse=True)
    while largest_first[-1] < left // len(largest_first):
        left -= largest_first.pop()
    return max(left // len(largest_first), 1)


class PreprocessRate:
    """Pixels per second that the engine decodes and preprocesses, on its one thread; starts at 20 million.

    Only first events of streams show that an image is through, and they come later than that. So they are watched over
    stretches of uninterrupted work, each at least a second long, and until what was on its way at the start is through.
    Where the thread had at least half a backlog all the time, the throughput is the sample: it is what the way to the
    first token carries. Where it had not, the pixels seen through less those on their way at the start are a *lower*
    bound of the rate: believed where it is above the present one. Either moves the rate by half of the difference.

    Answers that are not streamed show nothing. For them `done_at` says when the thread should be through.

    The backlog is rounded to whole images: half of a large one more. Else a backlog of less than two never carries more
    than one at a time, and what that one takes to its first token, engine and all, would stay the rate for ever.
    """

    __slots__ = (
        "_backlog_seconds",
        "_busy_until",
        "_carried",
        "_is_loaded",
        "_largest",
        "_outstanding",
        "_rate",
        "_seen",
        "_since",
    )

    _PRIOR_RATE = 20e6
    _LOWEST_RATE = 1e6
    _HIGHEST_RATE = 500e6
    _STRETCH_SECONDS = 1.0
    _LARGEST_KEPT = 0.95

    def __init__(self, backlog_seconds: float = 2.0) -> None:
        self._backlog_seconds = backlog_seconds
        self._rate = self._PRIOR_RATE
        self._largest = 0.0
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
        return int(self._rate * self._backlog_seconds + self._largest / 2)

    def sent(self, now: float, pixels: int) -> float:
        """`pixels` go to the engine; returns when its thread should be through with them, work ahead included."""
        if not self._outstanding:
            self._begin_stretch(now)
        self._largest = max(float(pixels), self._largest * self._LARGEST_KEPT)
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

    Running flat while it has requests waiting, over two polls: that many, but no less than half with each poll, for an
    engine that warms up runs flat too, and not while the KV pool is nearly full, for then they wait for blocks. Running
    at the ceiling while requests wait here and none there, over two polls: a quarter more. Within a tenth counts as at
    the ceiling, for some of ours are always on their way in or out.

    An engine with a queue limit of its own (`--max-num-queued-reqs`) never lets requests wait, it turns them away: then
    the ceiling is what it kept, at once. It stands for 60 looks, and then rises by one, two, four ... until the next
    refusal. Unless the engine's count of such refusals rose within two looks before or after, there was another reason,
    and the ceiling is what it was before.
    """

    __slots__ = (
        "_ceiling",
        "_doubted_looks",
        "_held_looks",
        "_last",
        "_looks_since_rise",
        "_rejections",
        "_step",
        "_undoubted",
    )

    _HELD_LOOKS = 60
    _DOUBTED_LOOKS = 2
    _NEARLY_FULL = 0.8

    def __init__(self) -> None:
        self._ceiling = 128
        self._last: tuple[bool, int | None] = (False, None)
        self._step = self._ceiling
        self._held_looks = 0
        self._undoubted: int | None = None
        self._doubted_looks = 0
        self._rejections: int | None = None
        self._looks_since_rise = self._DOUBTED_LOOKS + 1

    @property
    def sequences(self) -> int:
        return self._ceiling

    def observe(
        self,
        running: int,
        waiting: int,
        queue_depth: int,
        rejections: int | None = None,
        *,
        kv_usage: float | None = None,
    ) -> None:
        """One poll: `running` and `waiting` at the engine, `queue_depth` here. `rejections` are all that the engine has
        counted at its queue limit, None where it counts none; `kv_usage` is its pool's, from 0 to 1.
        """
        self._judge_refusal(rejections)
        is_free = waiting == 0 and queue_depth > 0 and 10 * running >= 9 * self._ceiling
        is_for_seats = waiting > 0 and (kv_usage is None or kv_usage < self._NEARLY_FULL)
        full_at = running + self._next_up(running) if is_for_seats and running > 0 else None
        was_free, was_full_at = self._last
        self._last = (is_free, full_at)
        if full_at is not None and full_at == was_full_at:
            self._ceiling = max(full_at, self._ceiling // 2)
        elif self._held_looks:
            self._held_looks -= 1
        elif is_free and was_free:
            self._ceiling += min(self._step, max(1, self._ceiling // 4))
            self._step = min(2 * self._step, self._ceiling)
            self._last = (False, None)

    @staticmethod
    def _next_up(running: int) -> int:
        """How many more to send than run, so that a seat that falls free is taken in the next step."""
        return max(1, running // 8)

    def turned_away(self, kept: int) -> None:
        """The engine turned a request away while it kept `kept` sequences."""
        if self._undoubted is None:
            self._undoubted = self._ceiling
        self._doubted_looks = self._DOUBTED_LOOKS
        self._ceiling = max(1, min(self._ceiling, kept))

    def _judge_refusal(self, rejections: int | None) -> None:
        before, self._rejections = self._rejections, rejections
        self._looks_since_rise = 0 if (rejections or 0) > (before or 0) else self._looks_since_rise + 1
        if self._undoubted is None:
            return
        if self._looks_since_rise <= self._DOUBTED_LOOKS:
            self._undoubted, self._step, self._held_looks = None, 1, self._HELD_LOOKS
        elif self._doubted_looks:
            self._doubted_looks -= 1
        else:
            self._ceiling, self._undoubted = self._undoubted, None


class LearnedLimit:
    """A limit that a setting gives or the engine's own 400 names: encoder tokens per image, images per prompt.

    The engine's word is final; the setting stands until it speaks.
    """

    __slots__ = ("_setting", "value")

    def __init__(self, setting: int | None = None) -> None:
        self._setting = setting
        self.value = setting

    def learn(self, limit: int) -> None:
        self.value = limit if self._setting is None else min(limit, self._setting)

    def forget(self) -> None:
        """The engine was restarted, perhaps with another limit: what it said before no longer counts."""
        self.value = self._setting
