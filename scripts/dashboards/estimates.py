"""How well the price that was predicted agrees with what the engine reported, and what follows where it does not.

All on prompt tokens: only of these does the gateway claim to know the number beforehand.
"""

from scripts.dashboards import promql
from scripts.dashboards.dashboards import Dashboard
from scripts.dashboards.panels import Query, Row, graph, heatmap, number, quantiles
from scripts.dashboards.promql import RANGE, RATE, of

_ERROR = "gateway_estimate_error_ratio"


def _between(low: str, high: str, function: str, window: str) -> str:
    """Share of the answers whose ratio is above `low` and at most `high`, which are bounds of buckets."""
    counts = [f"sum({function}({_ERROR}_bucket{of(le=bound)}[{window}]))" for bound in (high, low)]
    return f"({counts[0]} - {counts[1]}) / sum({function}({_ERROR}_count{of()}[{window}]))"


def _at_most(bound: str) -> str:
    return promql.ratio(promql.rate(f"{_ERROR}_bucket{of(le=bound)}"), promql.rate(f"{_ERROR}_count{of()}"))


def _tokens(which: str) -> str:
    return promql.rate(f"gateway_prompt_tokens_{which}_total{of('model')}", "model")


def _image_tokens(which: str) -> str:
    return promql.rate(f"gateway_image_tokens_{which}_total{of('model')}", "model")


_TOTALS = Row(
    "In this time range",
    [
        number(
            "Answers measured",
            "Answers whose usage told the prompt's tokens.",
            Query(promql.total(f"{_ERROR}_count{of()}"), "answers"),
            unit="short",
        ),
        number(
            "Exact",
            "Share of predictions that were right to a thousandth.",
            Query(_between("0.999", "1.0", "increase", RANGE), "exact"),
            unit="percentunit",
            most=1,
            runbook="VlmGatewayEstimateDrift",
        ),
        number(
            "Within a tenth",
            "Share of predictions between 0.9 and 1.1 times what was reported.",
            Query(_between("0.9", "1.1", "increase", RANGE), "within a tenth"),
            unit="percentunit",
            most=1,
            runbook="VlmGatewayEstimateDrift",
        ),
    ],
)

_DRIFT = Row(
    "Predicted and reported",
    [
        graph(
            "Predicted divided by reported",
            "All prompt tokens of a model together. Above 1 the gateway lets in less than would fit, below 1 more than "
            "does.",
            Query(promql.ratio(_tokens("predicted"), _tokens("reported")), "{{model}}"),
            unit="short",
            width=12,
            runbook="VlmGatewayEstimateDrift",
        ),
        graph(
            "Prompt tokens",
            "Per second.",
            Query(promql.only_if_any(_tokens("predicted")), "predicted {{model}}"),
            Query(promql.only_if_any(_tokens("reported")), "reported {{model}}"),
            unit="cps",
            width=12,
        ),
        graph(
            "Predictions that are off",
            "Share of predictions that were too low or too high by more than a hundredth.",
            Query(_at_most("0.99"), "too low"),
            Query(_between("1.01", "+Inf", "rate", RATE), "too high"),
            unit="percentunit",
            most=1,
            runbook="VlmGatewayEstimateDrift",
        ),
        graph(
            "Predicted divided by reported, by answer",
            "Quantiles over answers, as fine as the buckets are.",
            *quantiles(_ERROR, 0.05, 0.5, 0.95),
            unit="short",
            runbook="VlmGatewayEstimateDrift",
        ),
        heatmap(
            "Spread of predictions",
            "How many answers have at most which ratio; exact ones lie in the bucket of 1.",
            promql.buckets(_ERROR),
            unit="short",
        ),
    ],
)

_BOUNDS = Row(
    "Prices that are bounds",
    [
        graph(
            "Requests with images of no exact price",
            "Per second. A place is kept for the most that the images may cost; why no one number is known.",
            Query(promql.only_if_any(promql.rate(f"gateway_bounded_requests_total{of()}", "why")), "{{why}}"),
            unit="reqps",
            width=12,
        ),
        graph(
            "Models of unknown family",
            "Served models of which nothing says what their images cost. vlm-gateway check tells what would.",
            Query(promql.highest(f"gateway_models_of_unknown_family{of('upstream')}", "upstream"), "{{upstream}}"),
            unit="short",
            width=12,
        ),
    ],
)

_EFFECT = Row(
    "What the engine says",
    [
        graph(
            "KV: held here and used there",
            "Share of the budget that is held for requests, and the engine's own KV usage. Used above held: others use "
            "the engine, or estimates are too low.",
            Query(
                promql.ratio(
                    promql.summed(f"gateway_held{of('upstream', resource='kv_blocks')}", "upstream"),
                    promql.summed(f"gateway_capacity{of('upstream', resource='kv_blocks')}", "upstream"),
                ),
                "held {{upstream}}",
            ),
            Query(promql.highest(f"gateway_upstream_kv_usage_ratio{of('upstream')}", "upstream"), "used {{upstream}}"),
            unit="percentunit",
            width=12,
            runbook="VlmGatewayPreemptions",
        ),
        graph(
            "Preemptions",
            "Requests that the engine threw out of its KV cache to make room for others, and computes again.",
            Query(
                promql.only_if_any(
                    promql.total_per_step(f"gateway_upstream_preemptions_total{of('upstream')}", "upstream")
                ),
                "{{upstream}}",
            ),
            unit="short",
            width=12,
            runbook="VlmGatewayPreemptions",
        ),
    ],
)

_CALIBRATION = Row(
    "What servers count themselves",
    [
        graph(
            "Calibration, by state",
            "What came of asking an idle server what a few small pictures cost with each model. Only models whose "
            "family agrees, or was found, have exact prices.",
            Query(
                promql.only_if_any(
                    promql.highest(f"gateway_calibration_state{of('model', 'upstream')}", "model", "upstream", "state")
                ),
                "{{model}} at {{upstream}}: {{state}}",
            ),
            unit="short",
            most=1,
            runbook="VlmGatewayCalibrationDisagrees",
        ),
        graph(
            "Pictures that cost another number of tokens",
            "Of the eight at most that a server was asked about.",
            Query(
                promql.only_if_any(
                    promql.highest(
                        f"gateway_calibration_disagreeing_pictures{of('model', 'upstream')}", "model", "upstream"
                    )
                ),
                "{{model}} at {{upstream}}",
            ),
            unit="short",
            runbook="VlmGatewayCalibrationDisagrees",
        ),
        graph(
            "Tokens of images: predicted divided by reported",
            "Of servers that tell them apart from the text (`--enable-prompt-tokens-details`). These are predicted "
            "exactly where the family is right, so it is 1.",
            Query(promql.ratio(_image_tokens("predicted"), _image_tokens("reported")), "{{model}}"),
            unit="short",
            runbook="VlmGatewayImageTokenDrift",
        ),
    ],
)

ESTIMATES = Dashboard(
    "vlm-gateway-estimates",
    "vlm-gateway / Estimate quality",
    "Predicted prompt tokens beside those that the engine reported.",
    ("job", "instance", "model", "upstream"),
    [_TOTALS, _DRIFT, _CALIBRATION, _BOUNDS, _EFFECT],
)
