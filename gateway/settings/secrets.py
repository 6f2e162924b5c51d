"""Which values of the settings are secret: those that must never be in a line of the log."""

from collections.abc import Iterator

from pydantic import BaseModel, SecretStr


def secrets_of(settings: BaseModel) -> frozenset[str]:
    """All of them, wherever they stand."""
    return frozenset(filter(None, _within(settings)))


def _within(value: object) -> Iterator[str]:
    if isinstance(value, SecretStr):
        yield value.get_secret_value()
    elif isinstance(value, BaseModel):
        for _, each in value:
            yield from _within(each)
    elif isinstance(value, tuple):
        for each in value:
            yield from _within(each)
