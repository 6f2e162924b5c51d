"""Metrics about the GPUs of the model servers, declared as in declarations.py, which has them among its own."""

from gateway.telemetry.declaring import Declaration, Label

_GPU = Label("gpu", None, "The card, by its number on that host.")
OF_GPUS = (
    Declaration("gpu_memory_used_bytes", "gauge", "Memory of a GPU in use, where `gpu.source` is set.", (_GPU,)),
    Declaration("gpu_memory_total_bytes", "gauge", "Memory of a GPU in all, likewise.", (_GPU,)),
    Declaration(
        "gpu_busy_ratio", "gauge", "Share of the last moment in which anything ran on a GPU; NaN if untold.", (_GPU,)
    ),
)
