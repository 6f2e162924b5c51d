"""Who shares the engine: the settings of tenants, with the mistakes that one makes beside the others."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import Field, PositiveInt, ValidationInfo, ValidatorFunctionWrapHandler, WrapValidator

from gateway.domain.priority import Priority
from gateway.domain.tenancy import DEFAULT_CLASS
from gateway.settings.keys import KeyDigest, KeySettings, TenantsFromSettings
from gateway.settings.section import Place, Section, checked
from gateway.settings.slo import LevelSettings, SloSettings, tenant_conflicts

MOST_CLASSES = 16
PriorityWord = Literal["critical", "interactive", "default", "batch"]


class QuotaSettings(Section):
    """What a tenant may have; left out: as much as there is. A whole minute's worth may come at once."""

    requests_per_minute: Annotated[
        PositiveInt | None, Field(description="requests for the model servers; what is answered here is not counted")
    ] = None
    prompt_tokens_per_minute: Annotated[
        PositiveInt | None,
        Field(description="tokens of prompts, their images included: as expected first, then as the server counted"),
    ] = None
    images_per_minute: Annotated[PositiveInt | None, Field(description="images that are sent on")] = None
    pixels_per_minute: Annotated[PositiveInt | None, Field(description="pixels of these, as they came")] = None
    concurrent_requests: Annotated[
        PositiveInt | None, Field(description="requests for the model servers that are inside at once")
    ] = None


class TenantSettings(Section):
    """Who shares the engine, found by the SHA-256 of their keys in hex, by the name that a keys file has for a key, or
    by the header of `tenants_from`.

    The one named `default` has no keys: it is everyone else, and its quota is that of all of these together; tenants
    that only a keys file names have each such a quota of their own.
    """

    name: Annotated[str, Field(min_length=1, max_length=64, description="in logs; each has its own")]
    tenant_class: Annotated[
        Annotated[str, Field(min_length=1, max_length=64)] | None,
        Field(description="in metrics; several may share one; left out: its name"),
    ] = None
    key_sha256: Annotated[
        tuple[KeyDigest, ...], Field(description="its keys, each as `printf %s KEY | sha256sum` prints it")
    ] = ()
    models: Annotated[
        tuple[str, ...] | None,
        Field(description="the only models that it may ask for; for it there are no others; left out: all"),
    ] = None
    quota: QuotaSettings = QuotaSettings()
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
    keys, tenants_from = info.data.get("keys"), info.data.get("tenants_from")
    may_be_named = (isinstance(keys, KeySettings) and keys.file is not None) or (
        isinstance(tenants_from, TenantsFromSettings) and tenants_from.header is not None
    )
    return checked(value, check, _conflicts(value, info.data.get("slo"), may_be_named=may_be_named))


def _conflicts(value: object, slo: SloSettings | None, *, may_be_named: bool) -> Iterator[tuple[Place, str]]:
    """`value` is not checked yet: what is no list of tenants has none. `may_be_named`: not only keys beside the name
    lead to a tenant.
    """
    tenants = value if isinstance(value, list | tuple) else ()
    readable = [(index, tenant) for index, tenant in enumerate(tenants) if isinstance(tenant, Mapping)]
    names: list[object] = []
    digests: list[object] = []
    classes: set[str] = {DEFAULT_CLASS}
    for index, tenant in readable:
        name, keys = tenant.get("name"), tenant.get("key_sha256", ())
        if name in names:
            yield (index, "name"), "another tenant has this name"
        names.append(name)
        classes.add(str(tenant.get("tenant_class") or name))
        if (name == DEFAULT_CLASS and keys) or not (name == DEFAULT_CLASS or keys or may_be_named):
            yield (index, "key_sha256"), "all but the tenant `default` need a key, and that one has none"
        if name == DEFAULT_CLASS and tenant.get("tenant_class") not in (None, DEFAULT_CLASS):
            yield (index, "tenant_class"), "that of the tenant `default` is `default`"
        for place, key in enumerate(keys if isinstance(keys, list | tuple) else ()):
            digest = key.lower() if isinstance(key, str) else key
            if digest in digests:
                yield (index, "key_sha256", place), "is there twice; a key belongs to one tenant"
            digests.append(digest)
        yield from _wrong_order(index, tenant)
        yield from (((index, "slo"), text) for text in tenant_conflicts(tenant.get("slo"), slo))
    if len(classes) > MOST_CLASSES + 1:
        yield (), f"at most {MOST_CLASSES} can be told apart besides `default`; give several one tenant_class"


def _wrong_order(index: int, tenant: Mapping[str, object]) -> Iterator[tuple[Place, str]]:
    words = [priority.label for priority in Priority]
    usual, most = tenant.get("priority", "default"), tenant.get("most_urgent", "interactive")
    if usual in words and most in words and words.index(str(usual)) < words.index(str(most)):
        yield (index, "priority"), f"{usual} is more urgent than most_urgent allows, which is {most}"


Tenants = Annotated[tuple[TenantSettings, ...], WrapValidator(_all_mistakes)]
