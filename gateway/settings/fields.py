"""What fields of a request may ask for; the table with the reasons is domain/fields.py."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, create_model

from gateway.domain.fields import FIELDS, FieldRule, Measure, Treatment
from gateway.domain.fields import Field as WatchedField
from gateway.settings.section import Section


class PresenceSettings(Section):
    """A field that is allowed or not."""

    policy: Annotated[
        Literal["allow", "refuse"] | None,
        Field(description="left out: as the table of fields has it, which is refuse"),
    ] = None


class SizeSettings(Section):
    """A field that is allowed up to a size in bytes of its JSON."""

    policy: Annotated[
        Literal["allow", "refuse"] | None,
        Field(description="of what is larger; allow: there is no bound; left out: as the table of fields has it"),
    ] = None
    most: Annotated[int | None, Field(ge=0, description="bytes; left out: as the table of fields has it")] = None


class NumberSettings(Section):
    """A field that is allowed up to a number."""

    policy: Annotated[
        Literal["allow", "clamp", "refuse"] | None,
        Field(
            description="of what is more; clamp: it is brought down; allow: there is no bound; left out: as the table "
            "of fields has it"
        ),
    ] = None
    most: Annotated[int | None, Field(ge=0, description="left out: as the table of fields has it")] = None


def _section_of(field: WatchedField) -> type[Section]:
    if field.measure.is_number:
        return NumberSettings
    return SizeSettings if field.measure is Measure.BYTES else PresenceSettings


def _own_name(field: WatchedField) -> str:
    return field.setting.partition(".")[2]


_SECTIONS: dict[str, Any] = {_own_name(field): (_section_of(field), _section_of(field)()) for field in FIELDS}
if TYPE_CHECKING:

    class FieldsSettings(Section):
        """One section for each field of the table, which no type checker sees."""

else:
    FieldsSettings = create_model(
        "FieldsSettings",
        __base__=Section,
        __doc__="What [fields of a request](fields.md) may ask for, one section for each.",
        **_SECTIONS,
    )


def rules_of(settings: FieldsSettings) -> dict[str, FieldRule]:
    """The table, with what the operator set."""
    return {field.name: _rule(field, getattr(settings, _own_name(field))) for field in FIELDS}


def _rule(field: WatchedField, said: Section) -> FieldRule:
    policy, most = getattr(said, "policy", None), getattr(said, "most", None)
    return FieldRule(
        field.rule.treatment if policy is None else Treatment(policy), field.rule.most if most is None else most
    )
