"""What is held of what may be held, who waits for it, and how pressed the engines are."""

from scripts.dashboards import promql
from scripts.dashboards.dashboards import Dashboard
from scripts.dashboards.panels import Panel, Query, Row, graph
from scripts.dashboards.promql import of

_AN_ENGINE = of("upstream", upstream="!")


def _of_the_engine(title: str, description: str, resource: str) -> Panel:
    held = promql.summed(f"gateway_held{of('upstream', resource=resource)}", "upstream")
    capacity = promql.summed(f"gateway_capacity{of('upstream', resource=resource)}", "upstream")
    return graph(
        title,
        f"{description} Without a line for the capacity, it is not known and not enforced.",
        Query(held, "held {{upstream}}"),
        Query(capacity, "capacity {{upstream}}"),
        unit="short",
        runbook="VlmGatewayBudgetExhausted",
    )


def _of_the_gateway(title: str, description: str, resource: str, unit: str) -> Panel:
    labels = of(resource=resource, upstream="")
    return graph(
        title,
        description,
        Query(promql.summed(f"gateway_held{labels}", "instance"), "held {{instance}}"),
        Query(promql.summed(f"gateway_capacity{labels}", "instance"), "capacity {{instance}}"),
        unit=unit,
        runbook="VlmGatewayBudgetExhausted",
    )


_ENGINE = Row(
    "The engines' budget",
    [
        graph(
            "Share held, by resource",
            "Of what each upstream may hold, at the gateway that holds most. At 1, requests wait for this resource.",
            Query(
                promql.highest(
                    promql.ratio(
                        f"gateway_held{_AN_ENGINE}", f"({promql.only_if_any(f'gateway_capacity{_AN_ENGINE}')})"
                    ),
                    "resource",
                    "upstream",
                ),
                "{{resource}} {{upstream}}",
            ),
            unit="percentunit",
            width=16,
            runbook="VlmGatewayBudgetExhausted",
        ),
        graph(
            "KV blocks beyond the sum",
            "Shared: held for answers that end apart, so that not all are needed at once. Above capacity: needed by "
            "answers that grew beyond their reservation, or under a ceiling that fell; nothing new is let in then.",
            Query(promql.summed(f"gateway_overcommit_blocks{of('upstream')}", "upstream"), "above {{upstream}}"),
            Query(promql.summed(f"gateway_overlap_blocks{of('upstream')}", "upstream"), "shared {{upstream}}"),
            unit="short",
            runbook="VlmGatewayPreemptions",
        ),
        _of_the_engine("KV blocks", "Room for prompts and answers; five of a hundred are kept free.", "kv_blocks"),
        _of_the_engine("Sequences", "Answers in the making; learned unless it is set.", "sequences"),
        _of_the_engine("Encoder tokens", "Images on their way to the first token.", "encoder_tokens"),
        _of_the_engine(
            "Pixels to preprocess", "Images that vLLM decodes, on one thread. The rate is learned.", "preprocess_pixels"
        ),
        _of_the_engine(
            "Prompt tokens before their first token",
            "Bounded only where the settings state a level of service.",
            "prefill_tokens",
        ),
        _of_the_engine(
            "Prompt tokens behind images",
            "Of requests whose images are still decoded.",
            "image_prefill_tokens",
        ),
    ],
)

_OWN = Row(
    "The gateway's own",
    [
        _of_the_gateway("Seats", "Requests inside the gateway.", "seats", "short"),
        _of_the_gateway(
            "Bytes of request bodies", "Held from the first byte until the answer begins.", "body_bytes", "bytes"
        ),
        _of_the_gateway(
            "Bytes for decoding images", "Held while an image is checked or encoded.", "decode_bytes", "bytes"
        ),
    ],
)

_LINE = Row(
    "The line",
    [
        graph(
            "Requests that wait",
            "Before each upstream.",
            Query(promql.summed(f"gateway_queue_depth{of('upstream')}", "upstream"), "{{upstream}}"),
            unit="short",
            runbook="VlmGatewayQueueWaitHigh",
        ),
        graph(
            "Tokens that wait",
            "Prompt and reserved output tokens of the requests that wait; output counts four times.",
            Query(promql.summed(f"gateway_queue_cost_tokens{of('upstream')}", "upstream"), "{{upstream}}"),
            unit="short",
            runbook="VlmGatewayQueueWaitHigh",
        ),
        graph(
            "Pause",
            "Nothing is sent for so long, because the upstream turned requests away (429 or 503).",
            Query(promql.highest(f"gateway_admission_pause_seconds{of('upstream')}", "upstream"), "{{upstream}}"),
            unit="s",
        ),
    ],
)

_PRESSURE = Row(
    "Pressure",
    [
        graph(
            "Share of the budget that is let in",
            "Lower after preemptions, beside the load of others, and after the start of an upstream.",
            Query(promql.lowest(f"gateway_ceiling_ratio{of('upstream')}", "upstream"), "{{upstream}}"),
            unit="percentunit",
            most=1,
            width=6,
            runbook="VlmGatewayPreemptions",
        ),
        graph(
            "Pressure",
            "What is held and waited for, divided by all there is, of the resource that is shortest. 1: all is held.",
            Query(
                promql.highest(f"gateway_pressure_ratio{of('upstream')}", "lane", "upstream"), "{{lane}} {{upstream}}"
            ),
            unit="short",
            width=6,
        ),
        graph(
            "Pressure of what was refused",
            "How much more the pressure would be, had those waited that were refused within the last ten seconds.",
            Query(
                promql.highest(f"gateway_pressure_unmet_ratio{of('upstream')}", "lane", "upstream"),
                "{{lane}} {{upstream}}",
            ),
            unit="short",
            width=6,
        ),
        graph(
            "Rungs in force",
            "What the ladder (settings: pressure) does just now, to requests with images and without.",
            Query(
                promql.only_if_any(
                    promql.highest(f"gateway_pressure_rung_in_force{of('upstream')}", "rung", "lane", "upstream")
                ),
                "{{rung}} {{lane}} {{upstream}}",
            ),
            unit="short",
            width=6,
        ),
    ],
)

BUDGET = Dashboard(
    "vlm-gateway-budget",
    "vlm-gateway / Budget and queue",
    "What is held of the budget, who waits for it, and how pressed the engines are.",
    ("job", "instance", "upstream"),
    [_ENGINE, _OWN, _LINE, _PRESSURE],
)
