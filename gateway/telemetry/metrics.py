"""Counting, and the page that Prometheus reads.

Counting is plain integers in tables whose every cell exists from the start; the page is made at scrape time. What
others own (queue, ledger, upstream) is asked of them then, so no gauge can be stale. The page is made on the event
loop, so it must take less than 5 ms: the many cells of the tables are written here, all else by the library, which
needs thirty times as long for a line.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from math import nan
from typing import TypeVar

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

from gateway.domain.cost import Uncertainty
from gateway.domain.errors import Code
from gateway.domain.image import ImageAction, ImageFormat
from gateway.domain.media import MediaKind
from gateway.domain.outcome import Fate, Outcome, Reason
from gateway.domain.pressure import Rung
from gateway.domain.priority import Priority
from gateway.domain.tenancy import DEFAULT_CLASS
from gateway.telemetry import declarations as declared
from gateway.telemetry.declarations import ONLY_UPSTREAM, OTHER, UNKNOWN
from gateway.telemetry.declaring import Declaration
from gateway.telemetry.request_log import TokensUsed
from gateway.telemetry.tables import CounterTable, Histogram
from gateway.telemetry.tenant_declarations import TENANT_CLASS

_Kind = TypeVar("_Kind")

Reading = float | None | Mapping[str, float | None] | Mapping[tuple[str, ...], float | None]
"""One number, or one for each value of the metric's label or labels; None is unknown."""

_Cells = Mapping[tuple[str, ...], float]

_PLAIN_TEXT = "text/plain; version=0.0.4; charset=utf-8"
# Model names with series of their own: some 70 lines each.
MOST_MODELS = 100
_LONGEST_MODEL = 200
# Of tokens, ten lines for each model and tenant class: so many from the start, and in all.
_FIRST_TOKEN_CELLS = 400
_MOST_TOKEN_CELLS = 4_000


class Metrics:
    """All counting of the process. Each method is called once per event, none costs more than a microsecond or so."""

    def __init__(
        self,
        models: Iterable[str] = (),
        tenant_classes: Iterable[str] = (),
        upstreams: Sequence[str] = (ONLY_UPSTREAM,),
        *,
        is_shadow: bool = False,
    ) -> None:
        self._upstreams = upstreams
        self._requests = CounterTable(declared.REQUESTS)
        classes = self._classes = tuple(dict.fromkeys((DEFAULT_CLASS, *tenant_classes)))
        self._rejections = CounterTable(declared.REJECTIONS, classes)
        self._image_errors = CounterTable(declared.IMAGE_ERRORS)
        self._images = CounterTable(declared.IMAGES)
        self._tokens_saved = CounterTable(declared.TOKENS_SAVED)
        self._bounded = CounterTable(declared.BOUNDED)
        self._media = CounterTable(declared.MEDIA)
        self._relieved = CounterTable(declared.RELIEVED)
        self._sent_elsewhere = CounterTable(declared.SENT_ELSEWHERE, upstreams)
        self._predicted_tokens = CounterTable(declared.PREDICTED_TOKENS)
        self._reported_tokens = CounterTable(declared.REPORTED_TOKENS)
        self._predicted_image_tokens = CounterTable(declared.PREDICTED_IMAGE_TOKENS)
        self._reported_image_tokens = CounterTable(declared.REPORTED_IMAGE_TOKENS)
        self._tokens = CounterTable(declared.TOKENS, classes, _FIRST_TOKEN_CELLS)
        self._counters = _all_of(CounterTable, self)
        self._shadow_decisions = CounterTable(declared.SHADOW_DECISIONS, classes)
        self._shadow_images = CounterTable(declared.SHADOW_IMAGES)
        if is_shadow:
            self._counters += [self._shadow_decisions, self._shadow_images]
        self._queue_wait = Histogram(declared.QUEUE_WAIT)
        self._retry_after = Histogram(declared.RETRY_AFTER)
        self._image_pixels = Histogram(declared.IMAGE_PIXELS)
        self._visual_tokens = Histogram(declared.VISUAL_TOKENS)
        self._transform = Histogram(declared.TRANSFORM)
        self._estimate_error = Histogram(declared.ESTIMATE_ERROR)
        self._overhead = Histogram(declared.OVERHEAD)
        self._first_token = Histogram(declared.FIRST_TOKEN)
        self._histograms = _all_of(Histogram, self)
        self._readers: dict[str, Callable[[], Reading]] = {"models_without_series": self._models_without_series}
        self._build: tuple[str, str, str] | None = None
        self._models: set[str] = set()
        self._folded: dict[str, frozenset[str]] = {}
        self.know_models((OTHER, *models))
        self._registry = _registry(self)

    def know_models(self, models: Iterable[str], by: str = "") -> None:
        """All names that are served now by one upstream, `by`: configured or discovered ones, never those that clients
        send.

        The first MOST_MODELS that were ever known have series of their own, the others count as `other`.
        """
        new = [model for model in dict.fromkeys(models) if model not in self._models]
        room = max(0, MOST_MODELS + 1 - len(self._models))
        opened = [model for model in new if len(model) <= _LONGEST_MODEL][:room]
        self._models.update(opened)
        self._folded[by] = frozenset(new).difference(opened)
        for table in self._counters:
            table.open_cells(opened)

    def request_ended(self, model: str | None, endpoint: str, outcome: Outcome) -> None:
        """`endpoint` is the path; paths that are no endpoint count as `other`."""
        known = endpoint if endpoint in declared.ENDPOINTS else OTHER
        key = self._model(model), known, outcome
        if known in declared.ENDPOINTS_LATER:
            self._requests.open(key)
        self._requests.cells[key] += 1

    def rejected(
        self,
        model: str | None,
        reason: Reason,
        priority: str = Priority.DEFAULT.label,
        tenant_class: str = DEFAULT_CLASS,
    ) -> None:
        """KeyError for a tenant class that was not told at the start."""
        key = self._model(model), reason, priority, tenant_class
        cells = self._rejections.cells
        cells[key if key in cells else (OTHER, reason, priority, tenant_class)] += 1

    def relieved(self, rung: Rung) -> None:
        """A rung of the ladder changed a request, or refused it."""
        self._relieved.cells[(rung,)] += 1

    def bounded(self, why: Uncertainty) -> None:
        """A request was sent on whose images have no exact price."""
        self._bounded.cells[(why,)] += 1

    def sent_elsewhere(self, upstream: str) -> None:
        """KeyError for an upstream that was not told at the start."""
        self._sent_elsewhere.cells[(upstream,)] += 1

    def shadowed(self, model: str | None, decision: Fate | Reason, priority: str, tenant_class: str) -> None:
        """In shadow mode only; KeyError for a tenant class that was not told at the start."""
        key = self._model(model), decision, priority, tenant_class
        cells = self._shadow_decisions.cells
        cells[key if key in cells else (OTHER, decision, priority, tenant_class)] += 1

    def shadow_image(self, action: ImageAction) -> None:
        """In shadow mode only."""
        self._shadow_images.cells[(action,)] += 1

    def image_error(self, code: Code) -> None:
        """Only for codes about an image; KeyError for others."""
        self._image_errors.cells[(code,)] += 1

    def image(
        self,
        image_format: ImageFormat | None,
        action: ImageAction,
        pixels: int | None,
        tokens: int | None,
        saved_tokens: int = 0,
    ) -> None:
        """One image: its size as it came and its cost as it was sent on. None for what a trimmed image never showed."""
        self._images.cells[image_format or UNKNOWN, action] += 1
        self._tokens_saved.cells[(action,)] += saved_tokens
        if pixels is not None:
            self._image_pixels.observe(pixels)
        if tokens is not None:
            self._visual_tokens.observe(tokens)

    def media(self, kind: MediaKind, count: int) -> None:
        """Videos or audio parts of one request that was sent on."""
        self._media.cells[(kind,)] += count

    def queue_wait(self, seconds: float, trace_id: str | None = None) -> None:
        self._queue_wait.observe(seconds, trace_id)

    def retry_after(self, seconds: float) -> None:
        self._retry_after.observe(seconds)

    def transform(self, seconds: float) -> None:
        self._transform.observe(seconds)

    def estimate_error(self, model: str | None, predicted: int, actual: int) -> None:
        """Prompt tokens; an answer that reports none says nothing about the estimate."""
        if actual > 0:
            self._estimate_error.observe(predicted / actual)
            self._predicted_tokens.cells[(self._model(model),)] += predicted
            self._reported_tokens.cells[(self._model(model),)] += actual

    def image_estimate(self, model: str | None, predicted: int, actual: int | None) -> None:
        """Prompt tokens of a request's images; None where the engine does not tell them."""
        if actual is not None:
            self._predicted_image_tokens.cells[(self._model(model),)] += predicted
            self._reported_image_tokens.cells[(self._model(model),)] += actual

    def tokens(self, model: str | None, tenant_class: str, used: TokensUsed) -> None:
        """What one request took of the engine. KeyError for a tenant class that was not told at the start."""
        cells, source = self._tokens.cells, "estimated" if used.is_estimate else "reported"
        model = self._model(model)
        if (model, tenant_class, "text", source) not in cells:
            has_room = self._tokens.open_late(model, tenant_class, _MOST_TOKEN_CELLS)
            model = model if has_room else OTHER
        cells[model, tenant_class, "text", source] += used.text
        cells[model, tenant_class, "output", source] += used.output
        if used.visual:
            cells[model, tenant_class, "visual", source] += used.visual
        if used.media:
            cells[model, tenant_class, "media", source] += used.media
        if used.cached:
            cells[model, tenant_class, "cached", source] += used.cached

    def overhead(self, seconds: float) -> None:
        self._overhead.observe(seconds)

    def first_token(self, seconds: float) -> None:
        self._first_token.observe(seconds)

    def counts_by(self, declaration: Declaration, label: str) -> dict[str, int]:
        """A table's counts, added up by the values of one of its labels. StopIteration for what is no table here."""
        cells = next(table.cells for table in self._counters if table.declaration is declaration)
        position = [each.name for each in declaration.labels].index(label)
        counts: dict[str, int] = {}
        for key, count in cells.items():
            counts[key[position]] = counts.get(key[position], 0) + count
        return counts

    def histogram(self, declaration: Declaration) -> Histogram:
        """StopIteration for what is none."""
        return next(each for each in self._histograms if each.declaration is declaration)

    def observe_gauges(self, **readers: Callable[[], Reading]) -> None:
        """Who to ask for an observed metric at scrape time, by its declared name. KeyError for any other name."""
        names = {declaration.name for declaration in declared.OBSERVED}
        for name in readers:
            if name not in names:
                raise KeyError(name)
        self._readers.update(readers)

    def build_info(self, *, version: str, encoder_id: str, python: str) -> None:
        self._build = (version, encoder_id, python)

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """The page and its content type: OpenMetrics where the `Accept` header has it, else Prometheus' own text."""
        # The library's `choose_encoder` trips over odd versions, and would write other names where that is asked for.
        is_openmetrics = "application/openmetrics-text" in accept
        counters = "".join(table.text(is_openmetrics=is_openmetrics) for table in self._counters).encode()
        if is_openmetrics:
            page: bytes = openmetrics.generate_latest(self._registry)  # type: ignore[no-untyped-call]
            return counters + page, openmetrics.CONTENT_TYPE_LATEST
        return counters + generate_latest(self._registry), _PLAIN_TEXT

    def families(self) -> Iterator[Metric]:
        """All but the tables."""
        for histogram in self._histograms:
            yield histogram.family()
        for declaration in declared.OBSERVED:
            read = self._readers.get(declaration.name)
            yield _family(declaration, _cells(read() if read else self._at_zero(declaration)))
        if self._build is not None:
            yield _family(declared.BUILD_INFO, {self._build: 1})

    def _at_zero(self, declaration: Declaration) -> Reading:
        at_run_time = {
            declared.UPSTREAM: self._upstreams,
            declared.MODEL: sorted(self._models),
            TENANT_CLASS: self._classes,
        }
        values = [label.values or at_run_time.get(label, ()) for label in declaration.labels]
        return dict.fromkeys(product(*values), 0.0) if values else 0.0

    def _models_without_series(self) -> int:
        return len(frozenset[str]().union(*self._folded.values()))

    def _model(self, model: str | None) -> str:
        return model if model in self._models else OTHER


def _all_of(kind: type[_Kind], metrics: Metrics) -> list[_Kind]:
    """Those that it has so far, in the order of the page."""
    return [each for each in vars(metrics).values() if isinstance(each, kind)]


def _registry(metrics: Metrics) -> CollectorRegistry:
    """All but the tables, and what the library tells of the process."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Page(metrics))
    ProcessCollector(registry=registry)
    return registry


class _Page(Collector):
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        return self._metrics.families()


def _cells(reading: Reading) -> _Cells:
    if not isinstance(reading, Mapping):
        return {(): _number(reading)}
    return {key if isinstance(key, tuple) else (key,): _number(value) for key, value in reading.items()}


def _number(value: float | None) -> float:
    return nan if value is None else float(value)


def _family(declaration: Declaration, cells: _Cells) -> Metric:
    kind = CounterMetricFamily if declaration.kind == "counter" else GaugeMetricFamily
    family = kind(declaration.full_name, declaration.help, labels=[label.name for label in declaration.labels])
    for key, value in cells.items():
        family.add_metric(key, value)
    return family
