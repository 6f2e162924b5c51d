"""Pydantic's JSON schema of the settings as sections and fields, in words."""

import json
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any, NamedTuple

Schema = Mapping[str, Any]
MIB = 1 << 20


class Field(NamedTuple):
    """One setting: its full name, what it may hold, what it is where nobody sets it, and what it does."""

    name: str
    kind: str
    default: str
    help: str


class Section(NamedTuple):
    """Settings that stand under one name, or under several alike. `is_switch`: off unless it is set."""

    names: tuple[str, ...]
    help: str
    fields: tuple[Field, ...]
    is_switch: bool = False


def sections_of(schema: Schema) -> Iterator[Section]:
    """The whole tree, each section before those within it."""
    yield from _sections(("",), schema, schema["$defs"])


def _sections(
    names: tuple[str, ...], node: Schema, definitions: Schema, *, is_switch: bool = False
) -> Iterator[Section]:
    properties = node["properties"]
    plain = {name: each for name, each in properties.items() if _inner(each) is None}
    required = node.get("required", ())
    fields = tuple(_field(names[0], name, each, name in required, definitions) for name, each in plain.items())
    yield Section(names, node["description"], fields, is_switch)
    nested = [(name, each, inner) for name, each in properties.items() if (inner := _inner(each)) is not None]
    for inner, alike in groupby(nested, key=lambda found: found[2]):
        members = list(alike)
        below = tuple(_joined(names[0], name) + ("[]" if "items" in each else "") for name, each, _ in members)
        yield from _sections(below, definitions[inner], definitions, is_switch="anyOf" in members[0][1])


def _joined(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name


def _inner(field: Schema) -> str | None:
    """The section that a field holds, or a list of them."""
    places = [field, *field.get("anyOf", ()), field.get("items", {})]
    names = [place["$ref"].rpartition("/")[2] for place in places if "$ref" in place]
    return names[0] if names and names[0].endswith(("Settings", "Levels", "NamedUpstream")) else None


def _field(prefix: str, name: str, field: Schema, is_required: bool, definitions: Schema) -> Field:
    """A value of the schema; a choice of it and null is the value."""
    choices = [each for each in field.get("anyOf", ()) if each.get("type") != "null"]
    value = {**field, **choices[0]} if len(choices) == 1 else field
    if "$ref" in value:
        value = {**value, **definitions[value["$ref"].rpartition("/")[2]]}
    default = "required" if is_required else _default(name, field)
    return Field(_joined(prefix, name), _kind(value, definitions), default, field.get("description", ""))


def _default(name: str, field: Schema) -> str:
    value = field.get("default")
    if value is None:
        return "left out"
    if isinstance(value, list):
        words = [str(each) for each in value]
        return f"`[{', '.join(sorted(words) if field.get('uniqueItems') else words)}]`"
    size = ""
    if name.endswith("_bytes") and isinstance(value, int) and value % MIB == 0:
        size = f" ({value // MIB} MiB)"
    return f"`{value if isinstance(value, str) else json.dumps(value)}`{size}"


def _kind(value: Schema, definitions: Schema) -> str:
    if "enum" in value:
        return ", ".join(f"`{each}`" for each in value["enum"])
    if value.get("format") in _FORMATS:
        return _FORMATS[value["format"]]
    if value.get("type") == "array":
        items = value["items"]
        if "$ref" in items:
            items = definitions[items["$ref"].rpartition("/")[2]]
        return f"list of {_kind(items, definitions)}"
    if "anyOf" in value:
        return _kind(value["anyOf"][0], definitions)
    if value.get("type") == "string":
        return "text" + _length(value)
    return _WORDS[value["type"]] + _range(value)


_FORMATS = {"uri": "http(s) address", "password": "secret", "ipv4network": "network", "ipvanynetwork": "network"}
_WORDS = {"integer": "whole number", "number": "number", "boolean": "`true`, `false`", "object": "names and values"}


def _length(value: Schema) -> str:
    least, most = value.get("minLength"), value.get("maxLength")
    if most is not None:
        return f", {least or 0} to {most} characters"
    return ", not empty" if least else ""


def _range(value: Schema) -> str:
    least, above, most = value.get("minimum"), value.get("exclusiveMinimum"), value.get("maximum")
    if least is None and above is not None and value["type"] == "integer":
        least, above = above + 1, None
    bound = f", {least} or more" if least is not None else f" above {above}" if above is not None else ""
    if most is None:
        return bound
    return f", {least} to {most}" if least is not None else f"{bound}, {most} at most"
