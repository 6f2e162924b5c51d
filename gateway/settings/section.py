"""What all sections of the settings have in common."""

from collections.abc import Callable, Iterable
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

Place = tuple[int | str, ...]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def word(value: object) -> object:
    """YAML reads a bare `off` as false."""
    return "off" if value is False else value


def switched(value: object) -> object:
    """None where a setting is off. YAML reads a bare `off` as false."""
    return None if value is False or value == "off" else value


def checked(value: object, check: Callable[[Any], Any], conflicts: Iterable[tuple[Place, str]]) -> Any:
    """What `check` makes of `value`. Its mistakes, and those that one part makes beside the others, in one error.

    `conflicts` were found in the value as it came, and are places in it with a sentence each.
    """
    mistakes = [_mistake(place, "conflict", text) for place, text in conflicts]
    try:
        result = check(value)
    except ValidationError as error:
        mistakes += [_mistake(each["loc"], each["type"], each["msg"]) for each in error.errors()]
    if mistakes:
        raise ValidationError.from_exception_data("settings", mistakes)
    return result


def _mistake(place: Place, kind: str, text: str) -> InitErrorDetails:
    return InitErrorDetails(type=PydanticCustomError(kind, text), loc=place, input=None)
