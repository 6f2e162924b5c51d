"""Part of the composition: traces, where they are wanted; the settings have seen to it that they can be had."""

import asyncio
import importlib
from contextlib import AsyncExitStack

from gateway.settings import Settings
from gateway.telemetry.trace import Tracing


def start_tracing(settings: Settings, stack: AsyncExitStack) -> Tracing | None:
    """`stack` ends it, with whatever has not been sent yet."""
    if not settings.tracing.enabled:
        return None
    tracing: Tracing = importlib.import_module("gateway.telemetry.tracing").Tracing()
    stack.push_async_callback(asyncio.to_thread, tracing.close)
    return tracing
