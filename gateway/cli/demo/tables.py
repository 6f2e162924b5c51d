"""What the demo prints: one table an act, and sentences about what they show."""

import statistics
from collections.abc import Iterable, Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from gateway.cli.demo.acts import Burst, BurstAnswer, PictureSeen, Turn
from gateway.models.processor_config import ModelFiles

_MIB = 1 << 20


def pictures_table(seen: Iterable[PictureSeen], model: ModelFiles) -> Table:
    """Each picture: as it came, and after the operator's policy."""
    table = _table(
        "Pictures: as they came -> under the operator's policy (resize.preset=detail)",
        f"MiB are those of Qwen2.5-VL-7B: {_kv_bytes(model):,} bytes of KV cache a token, "
        f"{_embedding_bytes(model):,} bytes an encoder embedding ({_embedding_bytes(model) // 2:,} numbers x 2). "
        "Tokens: the gateway's prediction, made before anything was sent. As it came: the same request with "
        "x-gateway-resize: off.",
    )
    for title in ("picture", "came as", "what was done"):
        table.add_column(title)
    for title in ("tokens", "KV MiB", "encoder MiB", "latency s"):
        table.add_column(title, justify="right", no_wrap=True)
    for each in seen:
        before, after = each.before, each.after
        kind = each.picture.media_type.removeprefix("image/").upper()
        table.add_row(
            each.picture.name,
            f"{each.picture.size} {kind}, {len(each.picture.file) / _MIB:.2f} MiB",
            done_to(after.changes),
            f"{before.visual_tokens:,} -> {after.visual_tokens:,}",
            f"{_kv_mib(before.visual_tokens, model):.0f} -> {_kv_mib(after.visual_tokens, model):.0f}",
            f"{before.encoder_tokens * _embedding_bytes(model) / _MIB:.0f} -> "
            f"{after.encoder_tokens * _embedding_bytes(model) / _MIB:.0f}",
            f"{before.seconds:.1f} -> {after.seconds:.1f}",
        )
    return table


def done_to(changes: str) -> str:
    """`x-gateway-images` for one picture, in words."""
    if not changes:
        return "sent on untouched"
    _ordinal, action, *details = changes.split(";")
    return " ".join([action, " -> ".join(detail for detail in details if "=" not in detail)]).strip()


def turns_table(turns: Sequence[Turn], model: ModelFiles) -> Table:
    """The conversation, turn by turn."""
    first = next((turn.number for turn in turns if turn.trimmed), None)
    begins = f"trimming begins at turn {first}" if first else "nothing was trimmed"
    table = _table(
        f"Conversation of {len(turns)} turns, each with one more screenshot: {begins}",
        "Forwarded: pictures that the engine got; from cache: those of them it had preprocessed before, and prompt "
        "tokens it did not compute again. Gateway: its work on all pictures of the turn; only the new one is decoded.",
    )
    titles = ("turn", "images sent", "left out", "forwarded", "from cache", "prompt tokens", "from cache", "KV MiB")
    for title in (*titles, "gateway ms", "latency s"):
        table.add_column(title, justify="right")
    for turn in turns:
        served = turn.served
        table.add_row(
            *(str(n) for n in (turn.number, turn.sent, turn.trimmed, turn.forwarded, turn.engine_cache_hits)),
            f"{served.prompt_tokens:,}",
            f"{served.cached_tokens:,}",
            f"{_kv_mib(served.prompt_tokens, model):.0f}",
            f"{turn.decode_seconds * 1000:.0f}",
            f"{served.seconds:.2f}",
            style="bold" if turn.number == first else None,
        )
    return table


def burst_table(burst: Burst) -> Table:
    """Who was admitted at once, who waited, who was refused."""
    table = _table(
        f"Burst of {len(burst.answers)} streaming requests at the same moment (SDK retries off)",
        "Answered: until the first token, or until the refusal.",
    )
    table.add_column("outcome")
    for title in ("requests", "waited s p50", "p99", "answered s p50", "p99", "Retry-After s"):
        table.add_column(title, justify="right")
    _add_group(table, "admitted at once", burst.at_once)
    _add_group(table, "admitted after waiting", burst.waited)
    for (status, reason), answers in by_refusal(burst).items():
        _add_group(table, f"refused: {status} {reason}", answers)
    return table


def refusal_lines(burst: Burst) -> list[Text]:
    """One message of each kind of refusal, as its client read it."""
    return [Text(f"{status} {reason}: {answers[0].message}") for (status, reason), answers in by_refusal(burst).items()]


def by_refusal(burst: Burst) -> dict[tuple[int, str], list[BurstAnswer]]:
    """Refused answers by status and reason."""
    groups: dict[tuple[int, str], list[BurstAnswer]] = {}
    for answer in burst.refused:
        groups.setdefault((answer.status, answer.reason or ""), []).append(answer)
    return dict(sorted(groups.items()))


def _add_group(table: Table, name: str, answers: Sequence[BurstAnswer]) -> None:
    waits = [answer.waited_seconds for answer in answers if answer.reason is None]
    times = [answer.answered_seconds for answer in answers]
    delays = sorted({int(answer.retry_after) for answer in answers if answer.retry_after})
    spread = "-" if not delays else f"{delays[0]}" if len(delays) == 1 else f"{delays[0]} to {delays[-1]}"
    table.add_row(name, str(len(answers)), *_percentiles(waits), *_percentiles(times), spread)


def _percentiles(seconds: Sequence[float]) -> tuple[str, str]:
    """p50 and p99 by nearest rank."""
    if not seconds:
        return "-", "-"
    ranked = sorted(seconds)
    return f"{statistics.median_low(ranked):.2f}", f"{ranked[-(-99 * len(ranked) // 100) - 1]:.2f}"


def _kv_bytes(model: ModelFiles) -> int:
    kv_bytes = model.text.kv_bytes_per_token if model.text else None
    assert kv_bytes is not None, "all layers of the demo's model are alike"
    return kv_bytes


def _embedding_bytes(model: ModelFiles) -> int:
    assert model.embedding_bytes is not None, "the demo's model says how wide it is"
    return model.embedding_bytes


def _kv_mib(tokens: int, model: ModelFiles) -> float:
    return tokens * _kv_bytes(model) / _MIB


def _table(title: str, caption: str) -> Table:
    return Table(title=title, caption=caption, box=box.SIMPLE_HEAD, title_justify="left", caption_justify="left")
