"""Metrics about tenants and their keys, declared as in declarations.py, which has them among its own."""

from gateway.domain.quota import Quantity
from gateway.telemetry.declaring import Declaration, Label

TENANT_CLASS = Label("tenant_class", None, "The operator's word for the tenant; `default`: whom he did not name.")
RESULTS = ("done", "failed")

OF_TENANTS = (
    Declaration(
        "tenant_quota_used_ratio",
        "gauge",
        "Share of a tenant's quota that is used, from 0 to 1 (above: more was used than expected). Of a class with "
        "several tenants, that of the one who used most of his.",
        (
            TENANT_CLASS,
            Label(
                "quota",
                tuple(quantity.label for quantity in Quantity),
                "`requests`, `tokens`, `images` and `pixels` of a minute, or `concurrency`: requests inside.",
            ),
        ),
    ),
    Declaration("keys", "gauge", "Keys of clients that are in use, those of the settings included."),
    Declaration("keys_stale", "gauge", "1 while the keys file is bad or gone, and older keys are in use."),
    Declaration(
        "key_reloads_total",
        "counter",
        "Times that the keys file was read anew.",
        (Label("result", RESULTS, "`failed`: the file is bad, and the keys that there were stay."),),
    ),
)
