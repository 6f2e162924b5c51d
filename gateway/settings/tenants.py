"""Who shares the engine: the settings of tenants, with the mistakes that one makes beside the others."""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationInfo, ValidatorFunctionWrapHandler, WrapValidator

from gateway.domain.priority import Priority
from gateway.domain.tenancy import DEFAULT_CLASS
from gateway.settings.section import Place, Section, checked
from gateway.settings.slo import LevelSettings, SloSettings, tenant_conflicts

MOST_TENANTS = 16
PriorityWord = Literal["critical", "interactive", "default", "batch"]


def _digest(text: str) -> str:
    if not re.fullmatch("[0-9a-fA-F]{64}", text):
        raise ValueError("must be 64 hex digits: the SHA-256 of a key, as `printf %s KEY | sha256sum` prints it")
    return text.lower()


class TenantSettings(Section):
    """Who shares the engine, found by the SHA-256 of their keys in hex; nobody is refused for a key.

    The one named `default` has no keys: it is everyone else.
    """

    name: Annotated[str, Field(min_length=1, max_length=64, description="in metrics and logs; each has its own")]
    key_sha256: Annotated[
        tuple[Annotated[str, AfterValidator(_digest)], ...],
        Field(description="its keys, each as `printf %s KEY | sha256sum` prints it"),
    ] = ()
    weight: Annotated[
        float,
        Field(ge=0.001, le=1000, description="of two tenants that wait, one gets so many times more than the other"),
    ] = 1.0
    priority: Annotated[PriorityWord, Field(description="of requests that ask for none")] = "default"
    most_urgent: Annotated[PriorityWord, Field(description="what requests get at most that ask for more")] = (
        "interactive"
    )
    slo: LevelSettings = LevelSettings()


def _all_mistakes(value: object, check: ValidatorFunctionWrapHandler, info: ValidationInfo) -> object:
    return checked(value, check, _conflicts(value, info.data.get("slo")))


def _conflicts(value: object, slo: SloSettings | None) -> Iterator[tuple[Place, str]]:
    """`value` is not checked yet: what is no list of tenants has none."""
    tenants = value if isinstance(value, list | tuple) else ()
    readable = [(index, tenant) for index, tenant in enumerate(tenants) if isinstance(tenant, Mapping)]
    names: list[object] = []
    digests: list[object] = []
    for index, tenant in readable:
        name, keys = tenant.get("name"), tenant.get("key_sha256", ())
        if name in names:
            yield (index, "name"), "another tenant has this name"
        names.append(name)
        if (name == DEFAULT_CLASS) == bool(keys):
            yield (index, "key_sha256"), "all but the tenant `default` need a key, and that one has none"
        for place, key in enumerate(keys if isinstance(keys, list | tuple) else ()):
            digest = key.lower() if isinstance(key, str) else key
            if digest in digests:
                yield (index, "key_sha256", place), "is there twice; a key belongs to one tenant"
            digests.append(digest)
        yield from _wrong_order(index, tenant)
        yield from (((index, "slo"), text) for text in tenant_conflicts(tenant.get("slo"), slo))
    if len({str(name) for name in names} - {DEFAULT_CLASS}) > MOST_TENANTS:
        yield (), f"at most {MOST_TENANTS} can be told apart besides `default`; put keys together under one name"


def _wrong_order(index: int, tenant: Mapping[str, object]) -> Iterator[tuple[Place, str]]:
    words = [priority.label for priority in Priority]
    usual, most = tenant.get("priority", "default"), tenant.get("most_urgent", "interactive")
    if usual in words and most in words and words.index(str(usual)) < words.index(str(most)):
        yield (index, "priority"), f"{usual} is more urgent than most_urgent allows, which is {most}"


Tenants = Annotated[tuple[TenantSettings, ...], WrapValidator(_all_mistakes)]
