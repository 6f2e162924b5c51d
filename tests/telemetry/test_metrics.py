"""The page is read back with Prometheus' own parsers."""

import math

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from gateway.domain.errors import Code
from gateway.domain.image import ImageAction, ImageFormat
from gateway.domain.outcome import Outcome, Reason
from gateway.domain.quantities import Resource
from gateway.telemetry import declarations
from gateway.telemetry.declaring import Declaration
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.request_log import TokensUsed

Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def page(metrics: Metrics) -> Series:
    text, content_type = metrics.render()
    assert content_type.startswith("text/plain")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parse_text(text.decode())
        for sample in family.samples
    }


def value(metrics: Metrics, name: str, **labels: str) -> float:
    return page(metrics)[f"gateway_{name}", tuple(sorted(labels.items()))]


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(["tiny"])


ALL = (*declarations.RECORDED, *declarations.OBSERVED)


class TestDeclarations:
    def test_every_metric_is_on_the_page_before_anything_happened(self, metrics: Metrics) -> None:
        text = metrics.render()[0].decode()
        families = {family.name: family for family in parse_text(text)}
        for declaration in ALL:
            family = families[declaration.full_name.removesuffix("_total")]
            assert (family.type, family.documentation) == (declaration.kind, declaration.help)
            labels = {label.name for label in declaration.labels}
            shown = {name for sample in family.samples for name in sample.labels} - {"le"}
            assert shown == (set() if "gpu" in labels else labels), "which cards there are is not known yet"

    def test_every_value_of_every_closed_label_starts_at_zero(self, metrics: Metrics) -> None:
        series = {key: number for key, number in page(metrics).items() if key[0].startswith("gateway_")}
        assert set(series.values()) == {0.0}
        at_run_time = {"model": ("tiny", "other"), "tenant_class": ("default",), "upstream": ("default",), "gpu": ()}
        for declaration in ALL:
            for label in declaration.labels:
                values = label.values or at_run_time[label.name]
                seen = {dict(labels)[label.name] for name, labels in series if name == declaration.full_name}
                assert seen == set(values) - label.later

    def test_the_closed_sets_are_those_of_the_domain(self, metrics: Metrics) -> None:
        series = page(metrics)
        for reason in Reason:
            labels = {"model": "tiny", "priority": "default", "reason": reason.value, "tenant_class": "default"}
            assert ("gateway_rejections_total", tuple(labels.items())) in series
        for resource in Resource:
            assert ("gateway_held", (("resource", resource.label), ("upstream", "default"))) in series
        codes = {dict(labels)["code"] for name, labels in series if name == "gateway_image_errors_total"}
        assert "image_parse_error" in codes
        assert "invalid_json" not in codes

    @pytest.mark.parametrize("declaration", ALL, ids=lambda declaration: declaration.name)
    def test_names_keep_the_rules(self, declaration: Declaration) -> None:
        assert (declaration.kind == "counter") == declaration.name.endswith("_total")
        assert (declaration.kind == "histogram") == bool(declaration.buckets)
        assert list(declaration.buckets) == sorted(set(declaration.buckets))
        assert declaration.help.endswith(".")


class TestCounting:
    def test_requests_by_model_endpoint_and_outcome(self, metrics: Metrics) -> None:
        metrics.request_ended("tiny", "/v1/chat/completions", Outcome.FINISHED)
        metrics.request_ended("tiny", "/v1/chat/completions", Outcome.FINISHED)
        labels = {"model": "tiny", "endpoint": "/v1/chat/completions", "outcome": "finished"}
        assert value(metrics, "requests_total", **labels) == 2

    def test_no_text_of_a_client_becomes_a_label(self, metrics: Metrics) -> None:
        before = set(page(metrics))
        metrics.request_ended("made-up", "/v1/../etc", Outcome.REFUSED)
        metrics.request_ended(None, "/x", Outcome.REFUSED)
        metrics.rejected("made-up", Reason.NOT_FOUND)
        assert set(page(metrics)) == before
        assert value(metrics, "requests_total", model="other", endpoint="other", outcome="refused") == 2
        labels = {"model": "other", "reason": "not_found", "priority": "default", "tenant_class": "default"}
        assert value(metrics, "rejections_total", **labels) == 1

    def test_a_discovered_model_gets_series_and_the_others_keep_theirs(self, metrics: Metrics) -> None:
        labels = {"reason": "queue_full", "priority": "default", "tenant_class": "default"}
        metrics.rejected("tiny", Reason.QUEUE_FULL)
        metrics.know_models(["tiny", "found"])
        metrics.rejected("found", Reason.QUEUE_FULL)
        assert value(metrics, "rejections_total", model="tiny", **labels) == 1
        assert value(metrics, "rejections_total", model="found", **labels) == 1

    def test_of_very_many_models_the_first_hundred_have_series(self) -> None:
        metrics = Metrics(["configured"])
        served = [f"adapter-{index}" for index in range(4096)]
        metrics.know_models(["configured", *served])
        metrics.know_models(["configured", *served])
        metrics.request_ended("adapter-98", "/v1/chat/completions", Outcome.FINISHED)
        metrics.request_ended("adapter-99", "/v1/chat/completions", Outcome.FINISHED)
        labels = {"endpoint": "/v1/chat/completions", "outcome": "finished"}
        assert value(metrics, "requests_total", model="adapter-98", **labels) == 1
        assert value(metrics, "requests_total", model="other", **labels) == 1
        assert value(metrics, "models_without_series") == 4096 - 99
        metrics.know_models(["configured", "adapter-4000"])
        assert value(metrics, "models_without_series") == 1
        assert len(metrics.render()[0]) < 2_000_000

    def test_routes_that_few_use_have_series_once_they_are_used(self, metrics: Metrics) -> None:
        assert '"/v1/messages"' not in metrics.render()[0].decode()
        for _ in range(2):
            metrics.request_ended("tiny", "/v1/messages", Outcome.FINISHED)
        labels = {"model": "tiny", "endpoint": "/v1/messages"}
        assert value(metrics, "requests_total", outcome="finished", **labels) == 2

    def test_a_name_longer_than_a_label_should_be_counts_as_other(self) -> None:
        metrics = Metrics(["x" * 201])
        assert value(metrics, "models_without_series") == 1

    def test_refusals_by_priority_and_tenant_class(self) -> None:
        metrics = Metrics(["tiny"], ["gold", "default"])
        metrics.rejected("tiny", Reason.QUEUE_FULL, "batch", "gold")
        labels = {"model": "tiny", "reason": "queue_full", "priority": "batch"}
        assert value(metrics, "rejections_total", tenant_class="gold", **labels) == 1
        assert value(metrics, "rejections_total", tenant_class="default", **labels) == 0
        with pytest.raises(KeyError):
            metrics.rejected("tiny", Reason.QUEUE_FULL, "batch", "made-up")

    def test_of_many_models_and_many_tenants_the_last_models_are_refused_as_other(self) -> None:
        models = [f"model-{number}" for number in range(100)]
        metrics = Metrics(models, [f"tenant-{number}" for number in range(16)])
        for model in ("model-0", "model-99"):
            metrics.rejected(model, Reason.QUEUE_FULL, "default", "tenant-15")
        labels = {"reason": "queue_full", "priority": "default", "tenant_class": "tenant-15"}
        assert value(metrics, "rejections_total", model="model-0", **labels) == 1
        assert value(metrics, "rejections_total", model="other", **labels) == 1
        assert len(metrics.render()[0]) < 2_000_000

    @pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb", "a\\nb", '{a="b"} 1', "\u00e4\u4e2d\x00"])
    def test_odd_names_can_be_read_back(self, name: str) -> None:
        metrics = Metrics([name])
        metrics.rejected(name, Reason.QUEUE_FULL)
        labels = {"reason": "queue_full", "priority": "default", "tenant_class": "default"}
        assert value(metrics, "rejections_total", model=name, **labels) == 1

    def test_image_errors_by_code(self, metrics: Metrics) -> None:
        metrics.image_error(Code.IMAGE_TOO_LARGE)
        assert value(metrics, "image_errors_total", code="image_too_large") == 1
        with pytest.raises(KeyError):
            metrics.image_error(Code.INVALID_JSON)

    def test_images_with_pixels_tokens_and_what_was_saved(self, metrics: Metrics) -> None:
        metrics.image(ImageFormat.JPEG, ImageAction.RESIZED, 12_000_000, 1_000, 14_301)
        metrics.image(None, ImageAction.TRIMMED, None, None, 500)
        assert value(metrics, "images_total", format="jpeg", action="resized") == 1
        assert value(metrics, "images_total", format="unknown", action="trimmed") == 1
        assert value(metrics, "tokens_saved_total", action="resized") == 14_301
        assert value(metrics, "tokens_saved_total", action="trimmed") == 500
        assert (value(metrics, "image_pixels_sum"), value(metrics, "image_pixels_count")) == (12_000_000, 1)
        assert value(metrics, "visual_tokens_bucket", le="512.0") == 0
        assert value(metrics, "visual_tokens_bucket", le="1024.0") == 1

    @pytest.mark.parametrize(
        ("method", "name"),
        [
            ("queue_wait", "queue_wait_seconds"),
            ("retry_after", "retry_after_seconds"),
            ("transform", "transform_seconds"),
            ("overhead", "overhead_seconds"),
            ("first_token", "time_to_first_token_seconds"),
        ],
    )
    def test_durations_land_in_cumulative_buckets(self, metrics: Metrics, method: str, name: str) -> None:
        for seconds in (0.0, 0.5, 1_000.0):
            getattr(metrics, method)(seconds)
        assert value(metrics, f"{name}_bucket", le="0.5") == 2
        assert value(metrics, f"{name}_bucket", le="+Inf") == 3
        assert value(metrics, f"{name}_count") == 3
        assert value(metrics, f"{name}_sum") == 1_000.5

    def test_exact_estimates_can_be_told_from_near_ones(self, metrics: Metrics) -> None:
        for predicted, actual in ((1_000, 1_000), (9_995, 10_000), (10_005, 10_000), (5, 0)):
            metrics.estimate_error("tiny", predicted, actual)
        below, exact, above = (value(metrics, "estimate_error_ratio_bucket", le=le) for le in ("0.999", "1.0", "1.001"))
        assert (below, exact, above) == (0, 2, 3)

    def test_predicted_and_reported_tokens_are_of_the_same_answers(self, metrics: Metrics) -> None:
        for model, predicted, actual in (("tiny", 1_000, 1_010), ("made-up", 7, 8), ("tiny", 5, 0)):
            metrics.estimate_error(model, predicted, actual)
        for name, tiny, other in (("predicted", 1_000, 7), ("reported", 1_010, 8)):
            assert value(metrics, f"prompt_tokens_{name}_total", model="tiny") == tiny
            assert value(metrics, f"prompt_tokens_{name}_total", model="other") == other


class TestObserving:
    def test_gauges_are_asked_at_scrape_time(self, metrics: Metrics) -> None:
        depth = [3]
        metrics.observe_gauges(
            log_lines_dropped_total=lambda: depth[0],
            held=lambda: {("kv_blocks", "a"): 17, ("kv_blocks", "b"): 0, ("seats", ""): 2},
            capacity=lambda: {("kv_blocks", "a"): None},
            upstream_kv_usage_ratio=lambda: {"a": None, "b": 0.5},
        )
        assert value(metrics, "log_lines_dropped_total") == 3
        depth[0] = 0
        assert value(metrics, "log_lines_dropped_total") == 0
        assert value(metrics, "held", resource="kv_blocks", upstream="a") == 17
        assert value(metrics, "held", resource="kv_blocks", upstream="b") == 0
        assert value(metrics, "held", resource="seats", upstream="") == 2
        assert math.isnan(value(metrics, "capacity", resource="kv_blocks", upstream="a"))
        assert math.isnan(value(metrics, "upstream_kv_usage_ratio", upstream="a"))
        assert value(metrics, "upstream_kv_usage_ratio", upstream="b") == 0.5

    def test_of_several_upstreams_each_has_its_series(self) -> None:
        two = Metrics(["tiny"], upstreams=("a", "b"))
        for name in ("a", "b"):
            assert value(two, "upstream_up", upstream=name) == 0
            assert value(two, "held", resource="kv_blocks", upstream=name) == 0

    def test_what_is_not_declared_cannot_be_observed(self, metrics: Metrics) -> None:
        with pytest.raises(KeyError, match="queue_length"):
            metrics.observe_gauges(queue_length=lambda: 1)

    def test_build_info(self, metrics: Metrics) -> None:
        metrics.build_info(version="0.1.0", encoder_id="pillow-13", python="3.11.7")
        assert value(metrics, "build_info", version="0.1.0", encoder_id="pillow-13", python="3.11.7") == 1


class TestPage:
    def test_openmetrics_where_it_is_asked_for(self, metrics: Metrics) -> None:
        metrics.request_ended("tiny", "/v1/completions", Outcome.CLIENT_LEFT)
        text, content_type = metrics.render("application/openmetrics-text; version=1.0.0")
        assert content_type.startswith("application/openmetrics-text")
        assert text.endswith(b"# EOF\n")
        samples = [sample for family in parse_openmetrics(text.decode()) for sample in family.samples]
        assert sum(sample.value for sample in samples if sample.name == "gateway_requests_total") == 1

    @pytest.mark.parametrize(
        "accept",
        [
            "text/plain;version=1.0.0values",
            "application/openmetrics-text;version=x",
            "text/plain;version=1.0.0;escaping=dots",
            ",;=\x00",
        ],
    )
    def test_no_accept_header_is_a_fault_or_changes_a_name(self, metrics: Metrics, accept: str) -> None:
        text = metrics.render(accept)[0].decode()
        assert '\ngateway_queue_depth{upstream="default"} 0.0\n' in text
        assert 'gateway_image_errors_total{code="empty_image_file"} 0.0\n' in text

    def test_the_process_is_on_it_too(self, metrics: Metrics) -> None:
        assert page(metrics)["process_resident_memory_bytes", ()] > 0


class TestTokens:
    def test_each_kind_by_who_took_it_and_whether_it_was_reported(self) -> None:
        metrics = Metrics(["tiny"], ["gold"])
        metrics.tokens("tiny", "gold", TokensUsed(text=5, visual=64, media=9, output=3, cached=32))
        metrics.tokens("tiny", "gold", TokensUsed(text=7, output=1, is_estimate=True))
        metrics.tokens("a client's", "default", TokensUsed(text=2))
        found = {key[1]: number for key, number in page(metrics).items() if key[0] == "gateway_tokens_total" and number}
        assert {tuple(dict(key).values()): number for key, number in found.items()} == {
            ("text", "tiny", "reported", "gold"): 5,
            ("visual", "tiny", "reported", "gold"): 64,
            ("media", "tiny", "reported", "gold"): 9,
            ("output", "tiny", "reported", "gold"): 3,
            ("cached", "tiny", "reported", "gold"): 32,
            ("text", "tiny", "estimated", "gold"): 7,
            ("output", "tiny", "estimated", "gold"): 1,
            ("text", "other", "reported", "default"): 2,
        }

    def test_of_many_the_later_ones_have_all_their_series_once_their_first_tokens_came(self) -> None:
        metrics = Metrics([f"model-{number}" for number in range(100)])
        first = {"model": "model-0", "tenant_class": "default", "kind": "text", "source": "reported"}
        assert value(metrics, "tokens_total", **first) == 0
        labels = {"model": "model-99", "tenant_class": "default"}
        assert 'model="model-99",source' not in metrics.render()[0].decode()
        metrics.tokens("model-99", "default", TokensUsed(text=5))
        assert value(metrics, "tokens_total", kind="text", source="reported", **labels) == 5
        assert value(metrics, "tokens_total", kind="cached", source="estimated", **labels) == 0

    def test_where_there_is_no_room_for_more_it_counts_as_other(self) -> None:
        models = [f"model-{number}" for number in range(100)]
        classes = [f"tenant-{number}" for number in range(16)]
        metrics = Metrics(models, classes)
        for model in models:
            for tenant_class in classes:
                metrics.tokens(model, tenant_class, TokensUsed(text=1))
        found = {key: number for key, number in page(metrics).items() if key[0] == "gateway_tokens_total"}
        assert len(found) == 4_000
        assert sum(found.values()) == 1_600
        assert (
            value(metrics, "tokens_total", model="other", tenant_class="tenant-15", kind="text", source="reported") > 0
        )

    def test_a_tenant_class_that_nobody_told_is_an_error(self, metrics: Metrics) -> None:
        with pytest.raises(KeyError):
            metrics.tokens("tiny", "new", TokensUsed(text=1))
