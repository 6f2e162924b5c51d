"""Headers of a success that say what was done to the request.

`x-gateway-images` has one entry per changed image, in order, joined by `, `:

    0;trimmed, 2;normalised;4000x3000, 3;resized;4000x3000;1148x868;scale=3.484321x3.456221

The sizes are before and after, as a viewer sees them. A coordinate that the model names in the resized picture, times
`scale` (x for x, y for y), is the coordinate in the picture that was sent. Beyond 1 KiB the list ends with `;more=N`.
"""

from collections.abc import Collection, Sequence

from gateway.domain.cost import VisualBounds
from gateway.domain.errors import GatewayError
from gateway.domain.image import ImageAction, ImagePlan
from gateway.domain.outcome import Fate
from gateway.wire.errors import error_status

_LONGEST_LIST_BYTES = 1024


def success_headers(
    *,
    prompt_tokens: int,
    visual_tokens: int,
    queue_seconds: float,
    plans: Sequence[ImagePlan] = (),
    trimmed: Collection[int] = (),
    encoded_anew: Collection[int] = (),
    rungs: str = "",
    served: str | None = None,
    bounds: VisualBounds | None = None,
    media_tokens: int = 0,
) -> list[tuple[bytes, bytes]]:
    """Token counts are the estimate's, `bounds` what those of images lie between where they are not exact, and
    `media_tokens` an upper bound; `trimmed` and `encoded_anew` (not resized) are ordinals of images; `rungs` are those
    of the ladder that changed the request, `served` is the model, where that is not the name that was asked for.
    """
    headers = [
        (b"x-gateway-prompt-tokens", b"%d" % prompt_tokens),
        (b"x-gateway-visual-tokens", b"%d" % visual_tokens),
        (b"x-gateway-queue-ms", b"%d" % round(queue_seconds * 1000)),
        *pressure_header(rungs),
    ]
    if bounds is not None:
        headers.append((b"x-gateway-visual-bounds", str(bounds).encode()))
    if served is not None:
        headers.append((b"x-gateway-model", served.encode("ascii", "backslashreplace")))
    if media_tokens:
        headers.append((b"x-gateway-media-tokens", b"%d" % media_tokens))
    images = declare_images(plans, trimmed, encoded_anew)
    return [*headers, (b"x-gateway-images", images)] if images else headers


def pressure_header(rungs: str) -> list[tuple[bytes, bytes]]:
    """None where `rungs` is empty: pressure changed nothing."""
    return [(b"x-gateway-pressure", rungs.encode())] if rungs else []


def shadow_headers(
    fate: Fate,
    error: GatewayError | None,
    wait_seconds: float,
    *,
    plans: Sequence[ImagePlan] = (),
    trimmed: Collection[int] = (),
    rungs: str = "",
    overload_status: int | None = None,
) -> list[tuple[bytes, bytes]]:
    """In shadow mode, what would have been: `admitted`, `queued;wait-ms=812` (so far),
    `refused;reason=queue_full;status=429`; and what would have been changed, as the headers without `shadow` say it.
    """
    verdict = str(fate)
    if error is not None:
        verdict += f";reason={error.reason};status={error_status(error, overload_status)}"
    elif fate is Fate.QUEUED:
        verdict += f";wait-ms={round(wait_seconds * 1000)}"
    images = declare_images(plans, trimmed)
    named = {b"": verdict.encode(), b"-images": images, b"-pressure": rungs.encode()}
    return [(b"x-gateway-shadow" + name, value) for name, value in named.items() if value]


def planned_action(plan: ImagePlan) -> ImageAction:
    """As far as its header tells."""
    if plan.is_resized:
        return ImageAction.RESIZED
    return ImageAction.NORMALISED if plan.info.why else ImageAction.KEPT


def declare_images(plans: Sequence[ImagePlan], trimmed: Collection[int], encoded_anew: Collection[int] = ()) -> bytes:
    """The value of `x-gateway-images`; empty where no image was changed."""
    if not plans and not trimmed:
        return b""
    entries = {ordinal: f"{ordinal};{ImageAction.TRIMMED}" for ordinal in trimmed}
    for plan in plans:
        if plan.is_resized:
            entries[plan.ordinal] = _resized(plan)
        elif plan.info.why or plan.ordinal in encoded_anew:
            entries[plan.ordinal] = f"{plan.ordinal};{ImageAction.NORMALISED};{plan.info.size}"
    return _shortened([entries[ordinal] for ordinal in sorted(entries)]).encode()


def _resized(plan: ImagePlan) -> str:
    before, after = plan.info.size, plan.target
    scale = f"{before.width / after.width:.6f}x{before.height / after.height:.6f}"
    return f"{plan.ordinal};{ImageAction.RESIZED};{before};{after};scale={scale}"


def _shortened(entries: list[str]) -> str:
    kept: list[str] = []
    total_bytes = 0
    for entry in entries:
        total_bytes += len(entry) + len(", ")
        if total_bytes > _LONGEST_LIST_BYTES:
            break
        kept.append(entry)
    more = len(entries) - len(kept)
    return ", ".join(kept) + (f";more={more}" if more else "")
