"""The settings as flags, environment, secret file and YAML file give them.

Sources, strongest first: flag, environment (`GATEWAY_SECTION__NAME`), secret file, YAML file, default. A wrong or
unknown name anywhere is an error that names the source and the field; all mistakes are reported at once, and none of
them repeats a value, which may be a secret.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml
from pydantic import HttpUrl, SecretStr, ValidationError

from gateway.settings import Section, Settings

ENVIRONMENT_PREFIX = "GATEWAY_"


class SettingsError(Exception):
    """The settings are unusable; the text lists every mistake, a line each."""


# Where the library's own words do not say what to write, by its name for the mistake.
WORDS = {
    "extra_forbidden": "there is no such setting",
    "model_type": "must hold names and values, such as {name: value}",
    "tuple_type": "must be a list, such as [one, another]",
    "frozen_set_type": "must be a list, such as [one, another]",
    "timezone_aware": "must be a time with its zone, such as 2030-01-31T12:00:00Z",
    "url_parsing": "must be an address such as http://127.0.0.1:8000",
    "url_scheme": "must begin with http:// or https://",
}


@dataclass(frozen=True, slots=True)
class Loaded:
    """The settings and, for every value that is not a default, the source that set it (dotted name → source)."""

    settings: Settings
    origins: Mapping[str, str]


def read_secret_file(path: str) -> str:
    """The text of a mounted secret, without the line end that editors add. Raises OSError, UnicodeDecodeError."""
    return Path(path).read_text(encoding="utf-8").rstrip("\r\n")


def load(
    *,
    file_text: str | None = None,
    file_name: str = "",
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, str] | None = None,
    read_secret: Callable[[str], str] = read_secret_file,
) -> Loaded:
    """Merge the sources and check everything.

    Values of environment and flags are taken as they are where a text is wanted, else read as YAML. Raises
    SettingsError that names each mistake with its source.
    """
    problems: list[str] = []
    sources = [
        (f"file {file_name}", _without_empty(_flatten(read_yaml(file_text, file_name)))),
        ("environment", _from_environment(environment or {}, problems)),
        ("flag", _from_flags(flags or {}, problems)),
    ]
    merged: dict[str, object] = {}
    origins: dict[str, str] = {}
    for source, values in sources:
        merged |= values
        origins |= dict.fromkeys(values, source)
    for key in ("upstream.api_key", "hub.token"):
        _take_secret(key, merged, origins, read_secret, problems)
    _take_secrets_of_upstreams(merged, origins, read_secret, problems)
    try:
        settings = Settings.model_validate(_nest(merged, problems, origins))
    except ValidationError as error:
        problems += [_sentence(tuple(e["loc"]), WORDS.get(e["type"], e["msg"]), origins) for e in error.errors()]
    if problems:
        raise SettingsError("\n".join(problems))
    return Loaded(settings, origins)


def read_yaml(text: str | None, name: str) -> Mapping[str, object]:
    """What a file holds. Raises SettingsError that names it."""
    if text is None:
        return {}
    try:
        tree = _UniqueNames(text).get_single_data()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}: {getattr(error, 'problem', '')}" if mark else ""
        raise SettingsError(f"file {name}: not YAML{where}") from None
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise SettingsError(f"file {name}: must hold sections such as 'server:', not {type(tree).__name__}")
    return tree


class _UniqueNames(yaml.SafeLoader):
    """Refuses what PyYAML lets through: a name that is there twice, of which it keeps the later value without a word,
    and what contains itself.
    """

    def construct_document(self, node: yaml.Node) -> Any:
        return self.construct_object(node, deep=True)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        names = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in names:
                raise yaml.MarkedYAMLError(problem=f"{key.value!r} is there twice", problem_mark=key.start_mark)
            names.add(key.value)
        return super().construct_mapping(node, deep)


def _without_empty(named: Mapping[str, object], within: Any = Settings) -> dict[str, object]:
    """Less the sections and lists with nothing behind their name, as where every line of one is commented out."""
    kinds = {name: _annotation(str(name), within) for name in named}
    return {
        name: _less_empty_items(value, kinds[name])
        for name, value in named.items()
        if value is not None or not _is_container(kinds[name])
    }


def _less_empty_items(value: object, kind: Any) -> object:
    if not isinstance(value, list) or get_origin(kind) is not tuple:
        return value
    return [_without_empty(each, get_args(kind)[0]) if isinstance(each, dict) else each for each in value]


def _is_container(annotation: Any) -> bool:
    return get_origin(annotation) is tuple or (isinstance(annotation, type) and issubclass(annotation, Section))


def _flatten(tree: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    flat: dict[str, object] = {}
    for key, value in tree.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict) and value:
            flat |= _flatten(value, f"{name}.")
        else:
            flat[name] = value
    return flat


def _from_environment(environment: Mapping[str, str], problems: list[str]) -> dict[str, object]:
    found: dict[str, object] = {}
    for variable in sorted(environment):
        name = variable.removeprefix(ENVIRONMENT_PREFIX).lower().replace("__", ".")
        # Kubernetes puts GATEWAY_PORT and the like into pods beside a Service called gateway: they are no settings.
        if variable.startswith(ENVIRONMENT_PREFIX) and ("__" in variable or name in Settings.model_fields):
            found[name] = _value(name, variable, environment[variable], problems)
    return _flatten(found)


def _from_flags(flags: Mapping[str, str], problems: list[str]) -> dict[str, object]:
    return _flatten({name: _value(name, f"flag {name}", text, problems) for name, text in flags.items()})


def _value(name: str, source: str, text: str, problems: list[str]) -> object:
    if _is_text(_annotation(name)):
        return text
    try:
        return _UniqueNames(text).get_single_data()
    except yaml.YAMLError:
        problems.append(f"{source}: its value is not YAML; quote it")
        return None


def _annotation(name: str, within: Any = Settings) -> Any:
    """The type of a setting by its dotted name; None where there is no such setting."""
    node = within
    for part in name.split("."):
        fields = node.model_fields if isinstance(node, type) and issubclass(node, Section) else {}
        node = fields[part].annotation if part in fields else None
    return node


def _is_text(annotation: Any) -> bool:
    origin = get_origin(annotation)
    if origin in (Union, UnionType):
        return any(_is_text(choice) for choice in get_args(annotation))
    if origin is Annotated:
        return _is_text(get_args(annotation)[0])
    if origin is Literal:
        return isinstance(get_args(annotation)[0], str)
    return annotation in (str, HttpUrl, SecretStr)


def _take_secret(
    key: str, merged: dict[str, object], origins: dict[str, str], read_secret: Callable[[str], str], problems: list[str]
) -> None:
    """What the file has that `upstream.api_key_file` names, or `hub.token_file`, stands above the key in the YAML file,
    below environment and flags.
    """
    path = merged.get(f"{key}_file")
    if not isinstance(path, str) or origins.get(key) in {"environment", "flag"}:
        return
    secret = _secret(path, read_secret, f"{key}_file ({origins[f'{key}_file']})", problems)
    if secret is not None:
        merged[key] = secret
        origins[key] = f"secret file {path}"


def _take_secrets_of_upstreams(
    merged: dict[str, object], origins: Mapping[str, str], read_secret: Callable[[str], str], problems: list[str]
) -> None:
    """The keys of those that name a file, whatever key stands beside it. The list is not checked yet."""
    upstreams = merged.get("upstreams")
    if not isinstance(upstreams, list):
        return
    merged["upstreams"] = with_secrets = list(upstreams)
    for index, upstream in enumerate(upstreams):
        path = upstream.get("api_key_file") if isinstance(upstream, dict) else None
        if isinstance(path, str):
            where = f"upstreams.{index}.api_key_file ({origins['upstreams']})"
            with_secrets[index] = upstream | {"api_key": _secret(path, read_secret, where, problems)}


def _secret(path: str, read_secret: Callable[[str], str], where: str, problems: list[str]) -> str | None:
    try:
        return read_secret(path)
    except (OSError, UnicodeDecodeError) as error:
        problems.append(f"{where}: {path}: {getattr(error, 'strerror', 'is not UTF-8')}")
        return None


def _nest(flat: Mapping[str, object], problems: list[str], origins: Mapping[str, str]) -> dict[str, object]:
    tree: dict[str, object] = {}
    for name, value in flat.items():
        *sections, last = name.split(".")
        node = tree
        for section in sections:
            below = node.setdefault(section, {})
            if not isinstance(below, dict):
                problems.append(f"{name} ({origins[name]}): {section} is set to a plain value elsewhere")
                break
            node = below
        else:
            node[last] = value
    return tree


def _sentence(location: Sequence[int | str], message: str, origins: Mapping[str, str]) -> str:
    names = [str(part) for part in location]
    dotted = ".".join(names)
    beginnings = [".".join(names[:length]) for length in range(len(names), 0, -1)]
    source = next((origins[name] for name in beginnings if name in origins), None) or next(
        (origin for name, origin in origins.items() if name.startswith(f"{dotted}.")), "default"
    )
    return f"{dotted} ({source}): {message.removeprefix('Value error, ')}"
