"""The levels of service: for all, by class, by tenant; with the mistakes that one makes beside the others."""

from collections.abc import Iterator, Mapping
from math import inf
from typing import Annotated

from pydantic import Field, PositiveFloat, ValidatorFunctionWrapHandler, WrapValidator

from gateway.domain.priority import Priority
from gateway.domain.slo import Levels, ServiceLevel
from gateway.settings.section import Place, Section, checked


class LevelSettings(Section):
    """Seconds from a request's arrival. What is left out is that of the next wider level; of none, where that has none.

    The order, from narrow to wide: of a tenant, of a class, of all.
    """

    first_token_seconds: Annotated[
        PositiveFloat | None,
        Field(description="to the first token, waiting included; left out: that of the next wider level, if any"),
    ] = None
    total_seconds: Annotated[
        PositiveFloat | None, Field(description="to the whole answer; left out: that of the next wider level, if any")
    ] = None


class ClassLevels(Section):
    """By the class of a request: its priority."""

    critical: LevelSettings = LevelSettings()
    interactive: LevelSettings = LevelSettings()
    default: LevelSettings = LevelSettings()
    batch: LevelSettings = LevelSettings()

    def of(self, priority: Priority) -> LevelSettings:
        level: LevelSettings = getattr(self, priority.label)
        return level


class SloSettings(LevelSettings):
    """For all, and by class."""

    classes: ClassLevels = ClassLevels()


def levels_of(slo: SloSettings, tenant: LevelSettings | None = None) -> Levels:
    """What is due by when, for each class of requests: of one tenant, or of those that have no word of their own."""
    return tuple(_level(tenant or LevelSettings(), slo.classes.of(priority), slo) for priority in Priority)


def _level(*narrow_to_wide: LevelSettings) -> ServiceLevel:
    first = next((each.first_token_seconds for each in narrow_to_wide if each.first_token_seconds), inf)
    total = next((each.total_seconds for each in narrow_to_wide if each.total_seconds), inf)
    return ServiceLevel(first, total)


def tenant_conflicts(value: object, slo: SloSettings | None) -> Iterator[str]:
    """Of one tenant's levels, which are not checked yet, with those that it leaves to `slo` (None: those are wrong)."""
    levels = levels_of(slo or SloSettings(), _readable(value))
    wrong = [(priority.label, level) for priority, level in zip(Priority, levels, strict=True) if _is_reversed(level)]
    if wrong:
        label, level = wrong[0]
        yield f"of {label} requests {_sentence(level)}"


def _conflicts(value: object) -> Iterator[tuple[Place, str]]:
    """`value` is not checked yet: what cannot be read contradicts nothing."""
    classes = value.get("classes") if isinstance(value, Mapping) else None
    by_class = {
        priority.label: _readable(classes.get(priority.label) if isinstance(classes, Mapping) else None)
        for priority in Priority
    }
    wide = _readable(value)
    if _is_reversed(_level(wide)):
        yield ("first_token_seconds",), _sentence(_level(wide))
    for label, narrow in by_class.items():
        level = _level(narrow, wide)
        if _is_reversed(level) and level != _level(wide):
            yield ("classes", label), _sentence(level)


def _readable(value: object) -> LevelSettings:
    names = LevelSettings.model_fields
    found = value if isinstance(value, Mapping) else {}
    numbers = {name: found[name] for name in names if isinstance(found.get(name), int | float) and found[name] > 0}
    return LevelSettings.model_validate(numbers)


def _is_reversed(level: ServiceLevel) -> bool:
    return inf > level.first_token_seconds > level.total_seconds


def _sentence(level: ServiceLevel) -> str:
    return (
        f"the first token is due after {level.first_token_seconds:g} s and the whole answer after "
        f"{level.total_seconds:g} s; the first cannot come later"
    )


def _all_mistakes(value: object, check: ValidatorFunctionWrapHandler) -> object:
    return checked(value, check, _conflicts(value))


Slo = Annotated[SloSettings, WrapValidator(_all_mistakes)]
