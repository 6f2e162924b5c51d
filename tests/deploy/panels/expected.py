"""What each panel must show at the end of the day, from what the load generator counted: nothing else is asked.

By dashboard and title, a list with one entry for each query of the panel.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from gateway import __version__
from gateway.domain.image import ImageAction
from gateway.telemetry import declarations
from gateway.telemetry.declaring import Declaration
from scripts.dashboards.rejections import FOR_WANT_OF_ROOM
from tests.deploy.panels.house import JOB, MOST_AT_ONCE, SHADOW_JOB
from tests.deploy.panels.quantiles import at_most, quantile
from tests.deploy.panels.tally import Range, Seen, Tally
from tests.support.prometheus import Labels

END = "end"
Values = Mapping[Labels, Range]


@dataclass(frozen=True, slots=True)
class Expected:
    """All series of a query and their values, at a moment, of a job."""

    values: Values
    moment: str = END
    job: str = JOB


Expectations = dict[tuple[str, str], list[Expected]]


def series(names: str, values: Mapping[str | tuple[str, ...], float | Range]) -> Values:
    """`names` are those of the labels, of which the keys of `values` have one each."""
    labels = names.split()
    found = {}
    for key, value in values.items():
        words = (key,) if isinstance(key, str) else key
        known = value if isinstance(value, Range) else Range.exactly(value)
        found[tuple(sorted(zip(labels, words, strict=True)))] = known
    return found


def one(value: float | Range) -> Values:
    """A query without labels."""
    return {(): value if isinstance(value, Range) else Range.exactly(value)}


def count(seen: Iterable[Seen], *names: str) -> Counter[str | tuple[str, ...]]:
    """How many requests, by the fields of that name."""
    keys = [tuple(getattr(each, name) for name in names) for each in seen]
    return Counter(key if len(key) > 1 else key[0] for key in keys)


class Book:
    """The tally as the panels count: in all, per second of the `window`, and by quantiles."""

    def __init__(self, tally: Tally, window_seconds: float) -> None:
        self.tally = tally
        self._window_seconds = window_seconds

    def per_second(self, values: Values) -> Values:
        return {labels: value.times(1 / self._window_seconds) for labels, value in values.items()}

    def share(self, chosen: Callable[[Seen], bool]) -> Expected:
        """Of all requests."""
        seen = self.tally.seen
        return Expected(one(sum(map(chosen, seen)) / len(seen)))

    def quantiles(self, observations: Sequence[Range], histogram: Declaration, *shares: float) -> list[Expected]:
        return [Expected(one(quantile(share, observations, histogram.buckets))) for share in shares]

    def heatmap(self, observations: Sequence[Range], histogram: Declaration) -> list[Expected]:
        counts: dict[str | tuple[str, ...], float | Range] = {
            str(bound): at_most(bound, observations) for bound in histogram.buckets
        }
        counts["+Inf"] = float(len(observations))
        return [Expected(self.per_second(series("le", counts)))]


def expectations(tally: Tally, window_seconds: Mapping[str, float]) -> Expectations:
    """Of all panels but those of budgets and servers as they stand at a moment (standing.py). The day of each job is so
    long as Prometheus saw it.
    """
    book = Book(tally, window_seconds[JOB])
    told = [_overview(book), _rejections(book), _images(book), _estimates(book), _upstream(book)]
    told.append(_shadow(Book(tally, window_seconds[SHADOW_JOB])))
    return {key: panels for each in told for key, panels in each.items()}


def _rates(book: Book, names: str, values: Mapping[str | tuple[str, ...], float]) -> list[Expected]:
    return [Expected(book.per_second(series(names, {key: value for key, value in values.items() if value})))]


def _overview(book: Book) -> Expectations:
    seen, name = book.tally.seen, "overview"
    not_served = [each for each in seen if each.outcome not in {"finished", "refused"}]
    waits = [each.wait for each in seen if each.wait is not None]
    begun = [each.first_token for each in seen if each.first_token is not None]
    overheads = [Range(0.0, each.sent_seconds) for each in seen if each.sent_seconds is not None]
    kinds, by_class = _tokens(seen)
    return {
        (name, "Tokens, by kind"): [Expected(series("kind", kinds))],
        (name, "Tokens, by tenant class"): _rates(book, "tenant_class", by_class),
        (name, "Tokens that nobody reported"): [Expected(one(Range(1e-6, 0.9)))],
        (name, "Requests"): [Expected(one(len(seen)))],
        (name, "Served in full"): [book.share(lambda each: each.outcome == "finished")],
        (name, "Refused"): [book.share(lambda each: each.outcome == "refused")],
        (name, "Broken"): [book.share(lambda each: each.outcome in {"upstream_broke", "gateway_fault"})],
        (name, "Gateways"): [Expected(one(1))],
        (name, "Versions"): [Expected(series("version", {__version__: 1}))],
        (name, "Tasks of the event loop"): [Expected(one(Range(1.0, 500.0)))],
        (name, "Requests by outcome"): _rates(book, "outcome", count(seen, "outcome")),
        (name, "Requests by model"): _rates(book, "model", count(seen, "model")),
        (name, "Requests by endpoint"): _rates(book, "endpoint", count(seen, "endpoint")),
        (name, "Not served, and not refused by the gateway"): _rates(
            book, "outcome model", count(not_served, "outcome", "model")
        ),
        (name, "Queue wait"): book.quantiles(waits, declarations.QUEUE_WAIT, 0.5, 0.99),
        (name, "Time to first token"): book.quantiles(begun, declarations.FIRST_TOKEN, 0.5, 0.95, 0.99),
        (name, "Times to first token"): book.heatmap(begun, declarations.FIRST_TOKEN),
        (name, "Time that the gateway adds"): book.quantiles(overheads, declarations.OVERHEAD, 0.5, 0.99),
    }


def _tokens(seen: Sequence[Seen]) -> tuple[Counter[str | tuple[str, ...]], Counter[str | tuple[str, ...]]]:
    """By kind and by tenant class, of answers whose usage was told."""
    kinds: Counter[str | tuple[str, ...]] = Counter()
    by_class: Counter[str | tuple[str, ...]] = Counter()
    for each in seen:
        if each.tokens is None:
            continue
        visual = sum(picture.tokens or 0 for picture in each.pictures)
        kinds += Counter(text=each.tokens[1] - visual, visual=visual, output=each.answer_tokens)
        by_class[each.tenant] += each.tokens[1] + each.answer_tokens
    return kinds, by_class


# Three requests without a key are inside.
_QUOTA_OF_A_FULL_HOUSE = series("tenant_class quota", {("default", "concurrency"): 3 / MOST_AT_ONCE})


def _rejections(book: Book) -> Expectations:
    tally, name = book.tally, "rejections"
    refusals = tally.refusals
    told = [each.retry_after for each in refusals if each.retry_after is not None]
    waits = [each.wait for each in tally.seen if each.wait is not None]
    image_errors = Counter(each.image_error for each in refusals if each.image_error is not None)
    by_servers = [each for each in tally.seen if each.outcome == "upstream_refused"]
    return {
        (name, "Refusals"): [Expected(one(len(refusals)))],
        (name, "Of all requests"): [book.share(lambda each: each.reason is not None)],
        (name, "For want of room"): [Expected(one(sum(each.reason in FOR_WANT_OF_ROOM for each in refusals)))],
        (name, "Told when to come back"): [Expected(one(len(told)))],
        (name, "Refusals by reason"): [Expected(series("reason", count(refusals, "reason")))],
        (name, "By reason"): _rates(book, "reason", count(refusals, "reason")),
        (name, "By model"): _rates(book, "model", count(refusals, "model")),
        (name, "By tenant class"): _rates(book, "tenant_class", count(refusals, "tenant")),
        (name, "By priority"): _rates(book, "priority", count(refusals, "priority")),
        (name, "Images refused, by cause"): _rates(book, "code", image_errors),
        (name, "Quota used"): [Expected(_QUOTA_OF_A_FULL_HOUSE, "full")],
        (name, "Keys in use"): [Expected(one(2))],
        (name, "Reading the keys file anew"): [Expected(book.per_second(series("result", {"done": 1, "failed": 0})))],
        (name, "Queue wait"): book.quantiles(waits, declarations.QUEUE_WAIT, 0.5, 0.99),
        (name, "Queue waits"): book.heatmap(waits, declarations.QUEUE_WAIT),
        (name, "Retry-After given"): book.quantiles(told, declarations.RETRY_AFTER, 0.5, 0.9),
        (name, "Times to come back"): book.heatmap(told, declarations.RETRY_AFTER),
        (name, "Streams begun while they wait"): [Expected(book.per_second(one(tally.streams_kept_alive)))],
        (name, "Changed or refused under pressure"): _rates(book, "rung", tally.rungs),
        (name, "Refused by the model server itself"): _rates(book, "model", count(by_servers, "model")),
    }


def _shadow(book: Book) -> Expectations:
    decisions = series("decision", book.tally.shadow_decisions)
    actions = series("action", book.tally.shadow_actions)
    return {
        ("rejections", "Gateways in shadow mode"): [Expected(one(1), job=SHADOW_JOB)],
        ("rejections", "What would have become of requests"): [Expected(book.per_second(decisions), job=SHADOW_JOB)],
        ("images", "In shadow mode, what would be done"): [Expected(book.per_second(actions), job=SHADOW_JOB)],
    }


def _images(book: Book) -> Expectations:
    tally, name = book.tally, "images"
    pictures = list(tally.pictures)
    sizes = [Range.exactly(each.pixels) for each in pictures if each.pixels is not None]
    costs = [Range.exactly(each.tokens) for each in pictures if each.tokens is not None]
    smaller = sum(each.action in {ImageAction.RESIZED, ImageAction.TRIMMED} for each in pictures)
    errors = Counter(each.image_error for each in tally.refusals if each.image_error is not None)
    decoded = [Range(0.0, each.sent_seconds) for each in tally.seen if each.pictures and each.sent_seconds is not None]
    return {
        (name, "Images"): [Expected(one(len(pictures)))],
        (name, "Made smaller or left out"): [Expected(one(smaller / len(pictures)))],
        (name, "Prompt tokens saved"): [Expected(one(sum(tally.saved().values())))],
        (name, "Images refused"): [Expected(one(sum(errors.values())))],
        (name, "Worker processes lost"): [Expected(one(sum(tally.workers_lost.values())))],
        (name, "By format"): _rates(book, "format", Counter(each.format for each in pictures)),
        (name, "By what was done"): _rates(book, "action", Counter(each.action for each in pictures)),
        (name, "Prompt tokens saved, by what"): _rates(book, "action", tally.saved()),
        (name, "Refused, by cause"): [Expected(series("code", errors))],
        (name, "Images by address"): _rates(book, "result", tally.fetches),
        (name, "Worker processes lost, by cause"): [Expected(series("cause", tally.workers_lost))],
        (name, "Pixels of an image"): book.quantiles(sizes, declarations.IMAGE_PIXELS, 0.5, 0.95),
        (name, "Pixels of images"): book.heatmap(sizes, declarations.IMAGE_PIXELS),
        (name, "Prompt tokens of an image"): book.quantiles(costs, declarations.VISUAL_TOKENS, 0.5, 0.95),
        (name, "Prompt tokens of images"): book.heatmap(costs, declarations.VISUAL_TOKENS),
        (name, "Time to check and encode"): book.quantiles(decoded, declarations.TRANSFORM, 0.5, 0.99),
    }


def _estimates(book: Book) -> Expectations:
    name, bounds = "estimates", declarations.ESTIMATE_ERROR
    measured = [each for each in book.tally.seen if each.tokens is not None]
    ratios = [Range.exactly(each.tokens[0] / each.tokens[1]) for each in measured if each.tokens is not None]
    predicted: Counter[str | tuple[str, ...]] = Counter()
    reported: Counter[str | tuple[str, ...]] = Counter()
    for each in measured:
        assert each.tokens is not None
        predicted[each.model] += each.tokens[0]
        reported[each.model] += each.tokens[1]

    def between(low: float, high: float) -> Expected:
        return Expected(one(sum(low < ratio.low <= high for ratio in ratios) / len(ratios)))

    quotients = {model: predicted[model] / reported[model] for model in reported}
    return {
        (name, "Answers measured"): [Expected(one(len(ratios)))],
        (name, "Exact"): [between(0.999, 1.0)],
        (name, "Within a tenth"): [between(0.9, 1.1)],
        (name, "Predicted divided by reported"): [Expected(series("model", quotients))],
        (name, "Prompt tokens"): [*_rates(book, "model", predicted), *_rates(book, "model", reported)],
        (name, "Predictions that are off"): [between(0.0, 0.99), between(1.01, float("inf"))],
        (name, "Predicted divided by reported, by answer"): book.quantiles(ratios, bounds, 0.05, 0.5, 0.95),
        (name, "Spread of predictions"): book.heatmap(ratios, bounds),
        (name, "Preemptions"): [Expected(series("upstream", book.tally.preemptions))],
    }


def _upstream(book: Book) -> Expectations:
    tally, name = book.tally, "upstream"
    broke = sum(each.outcome == "upstream_broke" for each in tally.seen)
    return {
        (name, "Preemptions"): [Expected(series("upstream", tally.preemptions))],
        (name, "Sent elsewhere"): _rates(book, "upstream", tally.sent_elsewhere),
        (name, "Sent again"): _rates(book, "upstream", tally.sent_again),
        (name, "No answer, or not all of it"): [Expected(book.per_second(one(broke)))],
    }
