"""How `estimate` prints what it found."""

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gateway.cli.estimate.estimation import Estimate, ImageLine, Priced
from gateway.cli.options import wide_console
from gateway.domain.cost import MemoryView
from gateway.domain.quantities import Bounds
from gateway.wire.errors import error_body

_UNKNOWN = "-"


def print_estimate(found: Estimate) -> None:
    """Images, cost, verdict."""
    console = wide_console()
    if found.priced is not None:
        _print_priced(console, found.priced)
    _print_verdict(console, found)


def _print_priced(console: Console, priced: Priced) -> None:
    model, limits = priced.model, priced.limits
    context = "context unknown, not enforced: give --max-model-len"
    if limits.max_model_len is not None:
        context = f"context {limits.max_model_len:,} tokens"
    line = f"Model {model.name}: family {model.family.name} ({model.family_source}), {context}"
    console.print(line, markup=False, soft_wrap=True)
    if priced.images:
        console.print(_images_table(priced.images))
    console.print(_cost_table(priced))


def _images_table(images: tuple[ImageLine, ...]) -> Table:
    table = _table("Images", "where", "format", "size", "KiB", "action", "why", "sent as", "model sees", "tokens")
    for image in images:
        tokens = _UNKNOWN if image.tokens is None else f"{image.tokens_before:,} -> {image.tokens:,}"
        kib = _UNKNOWN if image.file_bytes is None else f"{image.file_bytes / 1024:,.0f}"
        sizes = (image.sent_size or _UNKNOWN, image.model_size or _UNKNOWN)
        row = (image.format or _UNKNOWN, image.size or _UNKNOWN, kib, str(image.action), image.why, *sizes, tokens)
        table.add_row(Text(image.param), *row)
    return table


def _cost_table(priced: Priced) -> Table:
    cost, limits, amounts = priced.cost, priced.limits, priced.cost.amounts
    table = _table("Cost", "what", "how much", "share")
    pool = "of a pool not told: give --set budget.kv_blocks=N"
    if limits.kv_blocks is not None:
        pool = f"{amounts.kv_blocks / limits.kv_blocks:.1%} of {limits.kv_blocks:,} blocks"
    rows = (
        ("text tokens", _bounds(cost.text_tokens), ""),
        ("visual tokens", f"{cost.visual_tokens:,}", ""),
        ("prompt tokens", _bounds(cost.prompt_tokens), ""),
        ("output tokens reserved", f"{cost.output_tokens * cost.answers:,}", ""),
        (f"KV blocks of {limits.kv_block_tokens} tokens", f"{amounts.kv_blocks:,}", pool),
        ("sequences", f"{amounts.sequences:,}", ""),
        ("encoder tokens", f"{amounts.encoder_tokens:,}", ""),
        ("pixels to preprocess", f"{amounts.preprocess_pixels:,}", ""),
        ("KV cache", *_memory(priced.kv, "unknown: give --model-folder or --kv-bytes-per-token", "the pool")),
        ("encoder output", *_memory(priced.encoder, "unknown: give --model-folder", "the encoder budget")),
        ("host, body and largest decode", *_memory(priced.host, "", "this machine's limit")),
    )
    for row in rows:
        table.add_row(*row)
    return table


def _bounds(tokens: Bounds) -> str:
    if tokens.lower == tokens.upper:
        return f"{tokens.expected:,} (exact)"
    return f"about {tokens.expected:,} ({tokens.lower:,} to {tokens.upper:,})"


def _memory(view: MemoryView | None, otherwise: str, whole: str) -> tuple[str, str]:
    if view is None:
        return otherwise, ""
    return f"{view.mebibytes:,.1f} MiB", "" if view.share is None else f"{view.share:.1%} of {whole}"


def _print_verdict(console: Console, found: Estimate) -> None:
    error, priced = found.refusal, found.priced
    if error is None:
        console.print("Verdict: admit. As soon as the engine has this much free.", soft_wrap=True)
        if priced is not None and _needs_all(priced):
            console.print("It takes more than may be reserved beside others, so it waits until nothing else runs.")
        if priced is not None and priced.model.is_assumed:
            console.print("The family is assumed, so nothing is refused for its size; name it in models.")
        return
    verdict = "never fits" if found.verdict == "never_fits" else "bad request"
    console.print(f"Verdict: {verdict}. The client gets {error.status} ({error.reason}):", soft_wrap=True)
    console.print(error_body(error).decode(), markup=False, soft_wrap=True)


def _needs_all(priced: Priced) -> bool:
    capacity = priced.limits.admission_kv_blocks
    return capacity is not None and priced.cost.amounts.kv_blocks > capacity


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for column in columns:
        table.add_column(column, justify="right" if column in {"KiB", "tokens", "how much"} else "left")
    return table
