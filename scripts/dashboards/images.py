"""What pictures come, what is done to them, what that saves, and what was wrong with the others."""

from gateway.domain.image import ImageAction
from scripts.dashboards import promql
from scripts.dashboards.dashboards import Dashboard
from scripts.dashboards.panels import Query, Row, bars, graph, heatmap, number, quantiles
from scripts.dashboards.promql import of

_SMALLER = (ImageAction.RESIZED, ImageAction.TRIMMED)
_IMAGES = "gateway_images_total"

_TOTALS = Row(
    "In this time range",
    [
        number(
            "Images",
            "Images of requests that were sent on, left out ones too.",
            Query(promql.total(f"{_IMAGES}{of()}"), "images"),
            unit="short",
        ),
        number(
            "Made smaller or left out",
            "Share of images that were resized or trimmed from the history.",
            Query(
                promql.ratio(promql.total(f"{_IMAGES}{of(action=_SMALLER)}"), promql.total(f"{_IMAGES}{of()}")),
                "smaller",
            ),
            unit="percentunit",
            most=1,
        ),
        number(
            "Prompt tokens saved",
            "Prompt tokens that the engine did not have to process.",
            Query(promql.total(f"gateway_tokens_saved_total{of()}"), "saved"),
            unit="short",
        ),
        number(
            "Images refused",
            "Requests that were refused for an image.",
            Query(promql.total(f"gateway_image_errors_total{of()}"), "refused"),
            unit="short",
            runbook="Reasons of refusals",
        ),
        number(
            "Worker processes lost",
            "Processes that died at an image or took too long, and were replaced.",
            Query(promql.total(f"gateway_image_workers_lost_total{of()}"), "lost"),
            unit="short",
            red_from=5,
            runbook="VlmGatewayImageWorkersLost",
        ),
    ],
)

_WHAT = Row(
    "What came, and what was done",
    [
        graph(
            "By format",
            "As recognised from the file itself. Images left out were never looked at: unknown.",
            Query(promql.only_if_any(promql.rate(f"{_IMAGES}{of()}", "format")), "{{format}}"),
            unit="cps",
        ),
        graph(
            "By what was done",
            "kept: byte for byte; normalised: encoded anew at its size; resized: encoded smaller; trimmed: left out of "
            "a long conversation.",
            Query(promql.only_if_any(promql.rate(f"{_IMAGES}{of()}", "action")), "{{action}}"),
            unit="cps",
        ),
        graph(
            "Prompt tokens saved, by what",
            "Per second.",
            Query(promql.only_if_any(promql.rate(f"gateway_tokens_saved_total{of()}", "action")), "{{action}}"),
            unit="cps",
        ),
        bars(
            "Refused, by cause",
            "The label is the error's code.",
            Query(promql.only_if_any(promql.total(f"gateway_image_errors_total{of()}", "code")), "{{code}}"),
            unit="short",
            runbook="Reasons of refusals",
        ),
        graph(
            "Images by address",
            "fetched; not_modified and cached: kept from before; shared: fetched for another request at the same time; "
            "refused: by the guard of addresses; failed: by their host.",
            Query(promql.only_if_any(promql.rate(f"gateway_image_fetches_total{of()}", "result")), "{{result}}"),
            unit="cps",
        ),
        graph(
            "Videos and audio",
            "Parts that were sent on, each with the most that it can cost kept for it.",
            Query(promql.only_if_any(promql.rate(f"gateway_media_total{of()}", "kind")), "{{kind}}"),
            unit="cps",
            runbook="Reasons of refusals",
        ),
        graph(
            "Worker processes lost, by cause",
            "died: crashed or were killed; late: ended because an image took too long (images.decode_seconds).",
            Query(
                promql.only_if_any(promql.total_per_step(f"gateway_image_workers_lost_total{of()}", "cause")),
                "{{cause}}",
            ),
            unit="short",
            runbook="VlmGatewayImageWorkersLost",
        ),
    ],
)

_SIZES = Row(
    "How large, and how long it takes",
    [
        graph(
            "Pixels of an image",
            "As it came, after turning it upright.",
            *quantiles("gateway_image_pixels", 0.5, 0.95),
            unit="short",
            width=12,
        ),
        heatmap(
            "Pixels of images",
            "How many images have at most how many pixels.",
            promql.buckets("gateway_image_pixels"),
            unit="short",
            width=12,
        ),
        graph(
            "Prompt tokens of an image",
            "As it was sent on.",
            *quantiles("gateway_visual_tokens", 0.5, 0.95),
            unit="short",
            width=12,
        ),
        heatmap(
            "Prompt tokens of images",
            "How many images cost at most how many prompt tokens.",
            promql.buckets("gateway_visual_tokens"),
            unit="short",
            width=12,
        ),
        graph(
            "Time to check and encode",
            "All images of a request together, waiting for a worker included.",
            *quantiles("gateway_transform_seconds", 0.5, 0.99),
            unit="s",
            width=12,
        ),
        graph(
            "In shadow mode, what would be done",
            "Images of gateways that only tell what they would do.",
            Query(promql.only_if_any(promql.rate(f"gateway_shadow_images_total{of()}", "action")), "{{action}}"),
            unit="cps",
            width=12,
        ),
    ],
)

IMAGES = Dashboard(
    "vlm-gateway-images",
    "vlm-gateway / Images",
    "Formats, sizes, what was done to images and what it saved, fetches, and workers lost.",
    ("job", "instance"),
    [_TOTALS, _WHAT, _SIZES],
)
