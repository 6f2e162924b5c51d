"""What clients want, when, and how they behave: functions of a seed. Pure.

The k-th request of a stream is the same at every rate; only the clock is stretched. So every proxy gets the same
requests at the same instants, and a load of 5x is that of 3x, faster.
"""

import math
import random
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from benchmarks.overload.upstream import ServerSize

LARGE = (4000, 3000)
WORDS = ("label", "reads", "which", "of", "these", "parts", "is", "worn", "list", "every", "price", "on", "page", "sum")

# By name: share of the requests, and images as (width, height).
KINDS: dict[str, tuple[float, tuple[tuple[int, int], ...]]] = {
    "text": (0.45, ()),
    "small": (0.25, ((512, 512),)),
    "medium": (0.15, ((1024, 1024),)),
    "12mp": (0.05, (LARGE,)),
    "history": (0.10, ((512, 512),) * 5),
}
FIRST_TURN_IMAGES = 4  # a conversation comes twice: with four images, then with the same four and one more


@dataclass(frozen=True, slots=True)
class Habits:
    """How the clients of a stream behave. `kind` None is the mix; `output_spread` is the lognormal's sigma.

    `retrying` is the share that retries as the OpenAI SDK does, `sdk` the share of those that are that SDK.
    """

    kind: str | None = None
    output_median: int = 24
    output_spread: float = 0.6
    output_most: int = 96
    retrying: float = 0.5
    sdk: float = 0.03
    images: tuple[tuple[int, int], ...] | None = None


@dataclass(frozen=True, slots=True)
class Stream:
    """Part of a scenario's traffic: `load` is a share of the server's capacity in work."""

    name: str
    load: float
    tenants: tuple[str, ...]
    habits: Habits = Habits()


@dataclass(frozen=True, slots=True)
class Request:
    """One thing that one client wants. Its answer has `output_tokens` tokens, which `max_tokens` may not tell."""

    stream: str
    index: int
    at_seconds: float
    tenant: str
    kind: str
    images: tuple[tuple[int, int], ...]
    text: str
    output_tokens: int
    max_tokens: int | None
    retries: int
    is_sdk: bool
    session: int
    backoff_seed: int

    def work_seconds(self, size: ServerSize) -> float:
        return size.work_seconds(len(self.text), self.images, self.output_tokens)


def requests(seed: int, stream: Stream, rate_per_second: float, seconds: float) -> Iterator[Request]:
    """Poisson arrivals of one stream."""
    clock, at_seconds = random.Random(f"{seed}/{stream.name}/clock"), 0.0
    for request in endless(seed, stream):
        at_seconds += clock.expovariate(1.0) / rate_per_second
        if at_seconds >= seconds:
            return
        yield replace(request, at_seconds=at_seconds)


def endless(seed: int, stream: Stream) -> Iterator[Request]:
    """The requests of one stream without their times."""
    histories = index = 0
    while True:
        request = _request(random.Random(f"{seed}/{stream.name}/{index}"), stream, index)
        if request.kind == "history":
            shown = FIRST_TURN_IMAGES + histories % 2
            request = replace(request, session=histories // 2, images=request.images[:shown])
            histories += 1
        yield request
        index += 1


def _request(draw: random.Random, stream: Stream, index: int) -> Request:
    habits = stream.habits
    kind = habits.kind or draw.choices(list(KINDS), [share for share, _ in KINDS.values()])[0]
    output = _output_tokens(draw, habits)
    retries = 2 * (draw.random() < habits.retrying)
    return Request(
        stream=stream.name,
        index=index,
        at_seconds=0.0,
        tenant=draw.choice(stream.tenants),
        kind=kind,
        images=KINDS[kind][1] if habits.images is None else habits.images,
        text=" ".join(draw.choices(WORDS, k=draw.randint(8, 60))),
        output_tokens=output,
        max_tokens=_max_tokens(draw, output),
        retries=retries,
        is_sdk=bool(retries) and draw.random() < habits.sdk,
        session=0,
        backoff_seed=draw.getrandbits(32),
    )


def _output_tokens(draw: random.Random, habits: Habits) -> int:
    drawn = draw.lognormvariate(math.log(habits.output_median), habits.output_spread)
    return min(habits.output_most, max(4, round(drawn)))


def _max_tokens(draw: random.Random, output_tokens: int) -> int | None:
    """How clients set it: exactly, far too large, or not at all."""
    return draw.choices((output_tokens, 4 * output_tokens, None), (0.3, 0.4, 0.3))[0]


def mean_work_seconds(seed: int, habits: Habits, size: ServerSize, count: int = 4_000) -> float:
    """What a request with these habits takes of the server on average."""
    many = islice(endless(seed, Stream("mean", 1.0, ("anyone",), habits)), count)
    return statistics.fmean(request.work_seconds(size) for request in many)


def merged(streams: Sequence[Iterator[Request]]) -> list[Request]:
    """All streams in the order of their arrivals."""
    return sorted((request for stream in streams for request in stream), key=lambda request: request.at_seconds)
