"""Values of a model's configuration out of several sources, the strongest first; each is noted with its source.

Families read what they need by key; what nobody reads is ignored, as the models' own processors do. A key is a path
into nested objects: `vision_config.image_size`.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from gateway.domain.quoting import quoted
from gateway.domain.vision.base import ProcessorConfigError

CLASS_DEFAULT = "class default"
"""What the model's own processor class assumes for a key that no file has."""

MOST_WHOLE = 2**31
"""The files may be anybody's: arithmetic with what is beyond this leaves the range of floats, or never ends."""

MOST_TILES = 128
"""Of one image. Published checkpoints have some dozens at most, and what they are fitted in grows with their square."""

_MOST_PAIRS = 256


AnyNumber = TypeVar("AnyNumber", int, float)


class Source(NamedTuple):
    """One file, table or setting."""

    name: str
    values: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Number:
    """A value that prices depend on, as it was read."""

    key: str
    value: object
    source: str


class Sources:
    """Reads values; `numbers` lists those that were read so far and are known."""

    def __init__(self, *sources: Source) -> None:
        self._sources = sources
        self._numbers: dict[str, Number] = {}

    @property
    def numbers(self) -> tuple[Number, ...]:
        return tuple(number for number in self._numbers.values() if number.value is not None)

    def value(self, *keys: str, default: object) -> object:
        """The first of `keys` that the strongest source has, `default` where none has any."""
        return self._first(keys, default).value

    def whole(self, *keys: str, default: int, most: int = MOST_WHOLE) -> int:
        """A whole number above 0, and no more than `most`."""
        return _whole(self._first(keys, default), most=most)

    def whole_or_none(self, *keys: str, least: int = 1) -> int | None:
        """A whole number of at least `least`, None where no source has it."""
        number = self._first(keys, None)
        return None if number.value is None else _whole(number, least)

    def real(self, *keys: str, default: float) -> float:
        """A number above 0, and no more than MOST_WHOLE."""
        number = self._first(keys, default)
        value = number.value
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
            raise ProcessorConfigError(number.key, f"must be a number above 0, not {quoted(value)}")
        return float(at_most(number.key, value, MOST_WHOLE))

    def flag(self, *keys: str, default: bool) -> bool:
        number = self._first(keys, default)
        if not isinstance(number.value, bool):
            raise ProcessorConfigError(number.key, f"must be true or false, not {quoted(number.value)}")
        return number.value

    def side(self, *keys: str, default: int) -> int:
        """The side of a square: a number, or an object of equal height and width, or of a shortest edge."""
        number = self._first(keys, default)
        if isinstance(number.value, Mapping):
            edges = number.value
            height, width = (edges.get(each, edges.get("shortest_edge")) for each in ("height", "width"))
            if height != width:
                raise ProcessorConfigError(number.key, f"must be a square, not {quoted(dict(edges))}")
            return _whole(Number(f"{number.key}.height", height, number.source))
        return _whole(number)

    def pairs(self, *keys: str, default: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
        """A list of pairs of whole numbers above 0."""
        number = self._first(keys, default)
        entries = _list(number)
        at_most(f"{number.key}: its length", len(entries), _MOST_PAIRS)
        return tuple(_pair(number, entry) for entry in entries)

    def pair(self, *keys: str, default: tuple[int, int]) -> tuple[int, int]:
        """Two whole numbers above 0, or one that stands for both."""
        number = self._first(keys, default)
        return _pair(number, [number.value] * 2 if isinstance(number.value, int) else number.value)

    def merged(self, keys: tuple[str, ...], *, replaces: Mapping[str, tuple[str, ...]]) -> dict[str, object]:
        """All of the top-level `keys` that any source has, where a key of a stronger source also takes the place of
        those that it `replaces` in weaker ones.
        """
        merged: dict[str, Number] = {}
        for source in reversed(self._sources):
            for key in keys:
                if source.values.get(key) is not None:
                    for gone in replaces.get(key, ()):
                        merged.pop(gone, None)
            merged |= {
                key: Number(key, source.values[key], source.name) for key in keys if source.values.get(key) is not None
            }
        self._numbers |= merged
        return {key: number.value for key, number in merged.items()}

    def note(self, defaults: Mapping[str, object]) -> None:
        """Notes what was assumed for keys that no source has."""
        for key, value in defaults.items():
            self._numbers.setdefault(key, Number(key, value, CLASS_DEFAULT))

    def _first(self, keys: tuple[str, ...], default: object) -> Number:
        found = next(self._found(keys), None) or Number(keys[0], default, CLASS_DEFAULT)
        self._numbers[found.key] = found
        return found

    def _found(self, keys: tuple[str, ...]) -> Iterator[Number]:
        for source in self._sources:
            for key in keys:
                value = _at(source.values, key)
                if value is not None:
                    yield Number(key, value, source.name)


def _at(values: Mapping[str, object], key: str) -> object:
    found: object = values
    for part in key.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _whole(number: Number, least: int = 1, most: int = MOST_WHOLE) -> int:
    value = number.value
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        above = "above 0" if least else "of at least 0"
        raise ProcessorConfigError(number.key, f"must be a whole number {above}, not {quoted(value)}")
    return at_most(number.key, value, most)


def at_most(key: str, value: AnyNumber, most: int) -> AnyNumber:
    """The value. Raises ProcessorConfigError where it is more."""
    if value > most:
        raise ProcessorConfigError(key, f"must be at most {most}, not {quoted(value)}")
    return value


def _list(number: Number) -> list[object] | tuple[object, ...]:
    if not isinstance(number.value, list | tuple) or not number.value:
        raise ProcessorConfigError(number.key, f"must be a list, not {quoted(number.value)}")
    return number.value


def _pair(number: Number, entry: object) -> tuple[int, int]:
    if not isinstance(entry, list | tuple) or len(entry) != 2:
        raise ProcessorConfigError(number.key, f"must hold two numbers, not {quoted(entry)}")
    first, second = (_whole(Number(number.key, side, number.source)) for side in entry)
    return first, second
