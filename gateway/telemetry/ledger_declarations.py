"""Metrics about a budget that several gateways share, declared as in declarations.py, which has them among its own."""

from gateway.telemetry.declaring import Declaration, Label


def of_ledger(upstream: Label) -> tuple[Declaration, ...]:
    return (
        Declaration(
            "ledger_gateways",
            "gauge",
            "Gateways that share the upstream's budget, with this one; only where `ledger.redis_url` is set.",
            (upstream,),
        ),
        Declaration(
            "ledger_cut_off",
            "gauge",
            "1 while Redis is silent for so long that the gateway uses a fixed share of the budget.",
            (upstream,),
        ),
        Declaration(
            "ledger_failures_total", "counter", "Calls to the shared budget that Redis did not answer.", (upstream,)
        ),
    )
