"""How `check` prints the numbers that prices of images depend on, each with its source: a table for each set of models
that are priced alike, as aliases and adapters are.
"""

import json
from collections.abc import Iterator, Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from gateway.cli.check.models import ModelFound

_MOST_ENTRIES = 3
_LONGEST_VALUE = 60


def numbers_tables(models: Sequence[ModelFound]) -> Iterator[Table]:
    """None of models of which no number is known."""
    alike: dict[str, list[ModelFound]] = {}
    for model in models:
        if model.numbers:
            alike.setdefault(repr((model.family, model.numbers)), []).append(model)
    for group in alike.values():
        yield _table(group)


def _table(group: Sequence[ModelFound]) -> Table:
    names = ", ".join(model.name for model in group)
    title = Text(f"What images cost as {group[0].family}: {names}")
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for column in ("number", "value", "from"):
        table.add_column(column, no_wrap=column == "number")
    for number in group[0].numbers:
        table.add_row(number.key, Text(folded(number.value)), Text(number.source))
    return table


def folded(value: object) -> str:
    """As JSON, of a long list only its beginning."""
    if isinstance(value, list | tuple) and len(value) > _MOST_ENTRIES + 1:
        beginning = ", ".join(json.dumps(each) for each in value[:_MOST_ENTRIES])
        return f"[{beginning}, … {len(value)} in all]"
    text = json.dumps(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}…"
