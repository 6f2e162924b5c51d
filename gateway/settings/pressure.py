"""The ladder: what is done when the engine is pressed, and from which pressure on. Every rung is off unless it is set.

`shed: on` takes a rung with its defaults, `shed: {enter: 3}` changes some of them.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import BeforeValidator, Field, PositiveInt, ValidatorFunctionWrapHandler, WrapValidator

from gateway.domain.pressure import Rung
from gateway.settings.section import Place, Section, checked, switched

_Enter = Annotated[
    float,
    Field(strict=True, gt=0, le=1000, description="in force from this pressure on; 1.0: all is held and nobody waits"),
]
_Leave = Annotated[
    float, Field(strict=True, gt=0, le=1000, description="until the pressure was below this for five seconds")
]
_SectionT = TypeVar("_SectionT", bound=Section)


def _switch(value: object) -> object:
    """`on` stands for all defaults. YAML reads a bare `on` as true."""
    return {} if value is True or value == "on" else switched(value)


Switched = Annotated[_SectionT | None, BeforeValidator(_switch)]


class RungSettings(Section):
    """In force when the pressure reaches `enter`, until it stays below `leave`."""

    enter: _Enter
    leave: _Leave


class ShrinkSettings(RungSettings):
    """New images are brought under a preset, and so in all later turns."""

    enter: _Enter = 2.0
    leave: _Leave = 0.95
    preset: Annotated[
        Literal["thumbnail", "ocr", "detail"],
        Field(description="new images are brought under 512 x 512, 1280 x 1280 or 1600 x 1600 pixels in area"),
    ] = "ocr"


class HistoryRungSettings(RungSettings):
    """Conversations that first come now keep so many images, and so to their end."""

    enter: _Enter = 2.0
    leave: _Leave = 1.0
    keep: Annotated[PositiveInt, Field(description="the newest images that stay")] = 2


class MaxTokensSettings(RungSettings):
    """Answers get so many tokens at most."""

    enter: _Enter = 2.5
    leave: _Leave = 1.25
    tokens: Annotated[PositiveInt, Field(description="the most that one answer may have")] = 512


class FallbackSettings(RungSettings):
    """Requests for a model that has a `models[].fallback` are served by that, where it is less pressed."""

    enter: _Enter = 2.5
    leave: _Leave = 1.5


class ShedSettings(RungSettings):
    """Requests of this priority and less urgent ones are refused."""

    enter: _Enter = 3.0
    leave: _Leave = 2.0
    priority: Annotated[
        Literal["interactive", "default", "batch"], Field(description="the most urgent one that is refused")
    ] = "batch"


class RefuseSettings(RungSettings):
    """All that are new are refused."""

    enter: _Enter = 4.0
    leave: _Leave = 3.0


class PressureSettings(Section):
    """The rungs, in the order in which they come into force."""

    shrink: Switched[ShrinkSettings] = None
    history: Switched[HistoryRungSettings] = None
    max_tokens: Switched[MaxTokensSettings] = None
    fallback: Switched[FallbackSettings] = None
    shed: Switched[ShedSettings] = None
    refuse: Switched[RefuseSettings] = None

    @property
    def rungs(self) -> dict[Rung, RungSettings]:
        """Those that are set."""
        return {rung: value for rung in Rung if (value := getattr(self, rung)) is not None}


_KINDS: dict[Rung, type[RungSettings]] = {
    rung: get_args(PressureSettings.model_fields[rung].annotation)[0] for rung in Rung
}


def _conflicts(value: object) -> Iterator[tuple[Place, str]]:
    """`value` is not checked yet: thresholds that are no numbers are in no order."""
    before: dict[str, tuple[Rung, float]] = {}
    for rung, thresholds in _thresholds(value):
        if thresholds.keys() == {"enter", "leave"} and thresholds["leave"] >= thresholds["enter"]:
            text = f"{thresholds['leave']:g} is not below enter, which is {thresholds['enter']:g}"
            yield (rung.value, "leave"), text
        for name, threshold in thresholds.items():
            gentler, least = before.get(name, (rung, threshold))
            if threshold < least:
                text = f"{threshold:g} is below that of {gentler}, a gentler rung, which is {least:g}"
                yield (rung.value, name), text
            before[name] = max((gentler, least), (rung, threshold), key=lambda each: each[1])


def _thresholds(value: object) -> Iterator[tuple[Rung, dict[str, float]]]:
    """Of each rung that is set: those that are numbers, defaults among them."""
    given: Mapping[Any, Any] = value if isinstance(value, Mapping) else {}
    for rung, kind in _KINDS.items():
        own = _switch(given.get(rung))
        if isinstance(own, Mapping):
            both = {name: own.get(name, kind.model_fields[name].default) for name in ("enter", "leave")}
            yield rung, {name: number for name, number in both.items() if type(number) in {int, float}}


def _all_mistakes(value: object, check: ValidatorFunctionWrapHandler) -> object:
    return checked(value, check, _conflicts(value))


Pressure = Annotated[PressureSettings, WrapValidator(_all_mistakes)]
