"""How `estimate` prints what it found, or what a gateway's preflight answered."""

from collections.abc import Iterator
from http import HTTPStatus
from typing import NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gateway.cli.options import wide_console
from gateway.domain.cost import EngineLimits
from gateway.domain.preflight import Outlook
from gateway.models.served import FamilySource
from gateway.wire.report import (
    BoundsReport,
    ErrorReport,
    EstimateReport,
    ImageReport,
    MemoryReport,
    PressureReport,
    Report,
    VerdictReport,
)

_UNKNOWN = "-"
_SHOWN_RATIO = 0.005


class Hints(NamedTuple):
    """What is said of numbers that nobody told: offline, which option tells them."""

    context: str = "context unknown, not enforced"
    pool: str = "of a pool not known"
    kv_bytes: str = "unknown: the model has no folder in the gateway's settings"
    embedding_bytes: str = "unknown: the model has no folder in the gateway's settings"
    admitted: str = "It would go to the engine at once."
    host: str = "the gateway's limit"
    needs_all: str | None = None


_OFFLINE = Hints(
    context="context unknown, not enforced: give --max-model-len",
    pool="of a pool not told: give --set budget.kv_blocks=N",
    kv_bytes="unknown: give --model-folder or --kv-bytes-per-token",
    embedding_bytes="unknown: give --model-folder",
    admitted="As soon as the engine has this much free.",
    host="this machine's limit",
    needs_all="It takes more than may be reserved beside others, so it waits until nothing else runs.",
)


def print_estimate(found: Report, *, is_live: bool) -> None:
    """Images, cost, verdict; `is_live` where a running gateway said it."""
    console, hints = wide_console(), Hints() if is_live else _OFFLINE
    if found.estimate is not None:
        _print_priced(console, found.estimate, hints)
    _print_verdict(console, found, hints)


def _print_priced(console: Console, priced: EstimateReport, hints: Hints) -> None:
    model = priced.model
    context = hints.context
    if model.max_model_len is not None:
        context = f"context {model.max_model_len:,} tokens"
    line = f"Model {model.name}: family {model.family} ({model.family_source}), {context}"
    console.print(line, markup=False, soft_wrap=True)
    if priced.images:
        console.print(_images_table(priced.images))
    console.print(_cost_table(priced, hints))


def _images_table(images: list[ImageReport]) -> Table:
    table = _table("Images", "where", "format", "size", "KiB", "action", "why", "sent as", "model sees", "tokens")
    for image in images:
        tokens = _UNKNOWN if image.tokens is None else f"{image.tokens_before:,} -> {image.tokens:,}"
        kib = _UNKNOWN if image.file_bytes is None else f"{image.file_bytes / 1024:,.0f}"
        sizes = (image.sent_size or _UNKNOWN, image.model_size or _UNKNOWN)
        row = (image.format or _UNKNOWN, image.size or _UNKNOWN, kib, image.action, image.why, *sizes, tokens)
        table.add_row(Text(image.param), *row)
    return table


def _cost_table(priced: EstimateReport, hints: Hints) -> Table:
    tokens, amounts, memory = priced.tokens, priced.amounts, priced.memory
    table = _table("Cost", "what", "how much", "share")
    pool = hints.pool
    if priced.kv_blocks_pool is not None:
        pool = f"{amounts.kv_blocks / priced.kv_blocks_pool:.1%} of {priced.kv_blocks_pool:,} blocks"
    rows = (
        ("text tokens", _bounds(tokens.text), ""),
        ("visual tokens", f"{tokens.visual:,}", ""),
        *([("tokens of videos and audio, at most", f"{tokens.media:,}", "")] if tokens.media else ()),
        ("prompt tokens", _bounds(tokens.prompt), ""),
        ("output tokens reserved", f"{tokens.output_reserved:,}", ""),
        (f"KV blocks of {priced.kv_block_tokens} tokens", f"{amounts.kv_blocks:,}", pool),
        ("sequences", f"{amounts.sequences:,}", ""),
        ("encoder tokens", f"{amounts.encoder_tokens:,}", ""),
        ("pixels to preprocess", f"{amounts.preprocess_pixels:,}", ""),
        ("KV cache", *_memory(memory.kv, hints.kv_bytes, "the pool")),
        ("encoder output", *_memory(memory.encoder, hints.embedding_bytes, "the encoder budget")),
        ("host, body and largest decode", *_memory(memory.host, "", hints.host)),
    )
    for row in rows:
        table.add_row(*row)
    return table


def _bounds(tokens: BoundsReport) -> str:
    if tokens.lower == tokens.upper:
        return f"{tokens.expected:,} (exact)"
    return f"about {tokens.expected:,} ({tokens.lower:,} to {tokens.upper:,})"


def _memory(view: MemoryReport | None, otherwise: str, whole: str) -> tuple[str, str]:
    if view is None:
        return otherwise, ""
    return f"{view.mebibytes:,.1f} MiB", "" if view.share is None else f"{view.share:.1%} of {whole}"


def _print_verdict(console: Console, found: Report, hints: Hints) -> None:
    verdict, priced = found.verdict, found.estimate
    if verdict.error is None:
        console.print(_prospect(verdict, hints), soft_wrap=True)
        if hints.needs_all and priced is not None and _needs_all(priced):
            console.print(hints.needs_all)
        if priced is not None and priced.model.family_source == FamilySource.ASSUMED:
            console.print(
                "The family is not known: its images are priced by bounds, and none is refused; name it in models."
            )
    else:
        _print_error(console, verdict.error)
    if verdict.pressure is not None:
        console.print(_pressure(verdict.pressure), markup=False, soft_wrap=True)
    for line in _what_would_help(verdict):
        console.print(line, markup=False, soft_wrap=True)


def _prospect(verdict: VerdictReport, hints: Hints) -> str:
    if verdict.verdict is Outlook.ADMITTED:
        return f"Verdict: admitted. {hints.admitted}"
    wait = "nobody knows yet how long"
    if verdict.expected_wait_seconds is not None:
        wait = f"about {verdict.expected_wait_seconds:.1f} s"
    return (
        f"Verdict: waiting, {wait}, with {verdict.ahead} others before it. "
        f"It is refused after {verdict.longest_wait_seconds:g} s."
    )


def _pressure(met: PressureReport) -> str:
    in_force = ", ".join(met.in_force) or "nothing"
    changes = "" if met.changes is None else f" Done to this request: {met.changes}."
    unmet = f" and {met.unmet:.2f} refused" if met.unmet >= _SHOWN_RATIO else ""
    return f"Pressure: {met.ratio:.2f} ({met.resource}){unmet}. In force: {in_force}.{changes}"


def _print_error(console: Console, error: ErrorReport) -> None:
    verdict = "refused"
    if error.status == HTTPStatus.BAD_REQUEST:
        verdict = "never fits" if error.reason.startswith("never_fits") else "bad request"
    where = f" at {error.param}" if error.param else ""
    line = f"Verdict: {verdict}. The client gets {error.status} ({error.reason}, {error.code}{where}):"
    console.print(line, markup=False, soft_wrap=True)
    console.print(error.message, markup=False, soft_wrap=True)
    come_back = error.headers.get("retry-after-ms")
    if come_back is not None:
        console.print(f"It is told to come back after {int(come_back) / 1000:.1f} s.")


def _what_would_help(verdict: VerdictReport) -> Iterator[str]:
    short, fits = verdict.culprit, verdict.fits_with
    if short is not None:
        where = f" for {short.param}" if short.param else ""
        yield (
            f"Short: {short.resource}{where}: {short.needed:,} needed, {short.available:,} there, "
            f"{short.deficit:,} too few."
        )
    if fits is None:
        return
    if fits.resize:
        yield "It fits with " + ", ".join(f"{image.param} at {image.size}" for image in fits.resize) + "."
    if fits.leave_out is not None:
        turns = f", which end with turn {fits.leave_out.turns}" if fits.leave_out.turns else ""
        text = f" and {fits.shorten_text_tokens:,} tokens of text" if fits.shorten_text_tokens else ""
        yield f"It fits without the {fits.leave_out.images} oldest images (up to {fits.leave_out.up_to}){turns}{text}."
    elif fits.shorten_text_tokens:
        yield f"It fits without {fits.shorten_text_tokens:,} tokens of its text."
    if fits.max_tokens is not None:
        yield f"It fits with max_tokens {fits.max_tokens:,}."
    if fits.n is not None:
        yield f"It fits with n {fits.n}."


def _needs_all(priced: EstimateReport) -> bool:
    capacity = EngineLimits(kv_blocks=priced.kv_blocks_pool).admission_kv_blocks
    return capacity is not None and priced.amounts.kv_blocks > capacity


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for column in columns:
        table.add_column(column, justify="right" if column in {"KiB", "tokens", "how much"} else "left")
    return table
