"""How a tenant's quota stands, as headers: OpenAI's names for requests and tokens, own names for the rest."""

from collections.abc import Iterable

from gateway.domain.quota import Level, Quantity

_NAMES = {
    Quantity.REQUESTS: (
        b"x-ratelimit-limit-requests",
        b"x-ratelimit-remaining-requests",
        b"x-ratelimit-reset-requests",
    ),
    Quantity.TOKENS: (
        b"x-ratelimit-limit-tokens",
        b"x-ratelimit-remaining-tokens",
        b"x-ratelimit-reset-tokens",
    ),
    Quantity.IMAGES: (
        b"x-gateway-limit-images",
        b"x-gateway-remaining-images",
        b"x-gateway-reset-images",
    ),
    Quantity.PIXELS: (
        b"x-gateway-limit-pixels",
        b"x-gateway-remaining-pixels",
        b"x-gateway-reset-pixels",
    ),
}


def quota_headers(levels: Iterable[Level]) -> list[tuple[bytes, bytes]]:
    """Three for each."""
    headers: list[tuple[bytes, bytes]] = []
    for level in levels:
        values = (b"%d" % level.limit, b"%d" % level.remaining, spelled(level.reset_seconds).encode())
        headers += zip(_NAMES[level.quantity], values, strict=True)
    return headers


def spelled(seconds: float) -> str:
    """As OpenAI has it, which is as Go has it: `0s`, `17ms`, `8.64s`, `6m0s`, `1h0m0s`."""
    milliseconds = round(seconds * 1000)
    if milliseconds < 1000:
        return f"{milliseconds}ms" if milliseconds else "0s"
    minutes, rest = divmod(milliseconds, 60_000)
    hours, minutes = divmod(minutes, 60)
    text = f"{rest / 1000:.3f}".rstrip("0").rstrip(".") + "s"
    if hours:
        return f"{hours}h{minutes}m{text}"
    return f"{minutes}m{text}" if minutes else text
