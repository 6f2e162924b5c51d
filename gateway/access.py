"""From settings to who may come and what each may have: tenants, their keys, what of clients' headers stays here, and
the address to listen on. Only arithmetic.
"""

from collections.abc import Mapping
from typing import NamedTuple

from gateway.domain.keys import Key, KeyTable
from gateway.domain.priority import Priority
from gateway.domain.quota import Quota, QuotaLimits
from gateway.domain.tenancy import DEFAULT_CLASS, Tenancy, Tenant
from gateway.server.trusted_header import TrustedHeader
from gateway.settings import Settings
from gateway.settings.slo import SloSettings, levels_of
from gateway.settings.tenants import QuotaSettings, TenantSettings
from gateway.upstream.headers import CREDENTIALS

_LOOPBACK = "127.0.0.1"
_EVERYWHERE = "0.0.0.0"  # noqa: S104 - where keys say who may come


def tenancy_of(settings: Settings) -> Tenancy:
    """Who is who by the keys of the settings; those of a file are still to come. The tenant named `default` is everyone
    else.
    """
    tenants = tenants_of(settings)
    keys = KeyTable(setting_keys(settings, tenants)) if settings.has_keys else None
    return Tenancy(keys, tenants[DEFAULT_CLASS], tenants, refuses_strangers=settings.keys.unknown == "refuse")


def setting_keys(settings: Settings, tenants: Mapping[str, Tenant]) -> list[Key]:
    """Those that stand in the settings."""
    return [Key(bytes.fromhex(digest), tenants[each.name]) for each in settings.tenants for digest in each.key_sha256]


def tenants_of(settings: Settings) -> dict[str, Tenant]:
    """Those that the operator names, by that name, and `default` in any case."""
    named = {each.name: _tenant(each, settings.slo) for each in settings.tenants}
    return {DEFAULT_CLASS: Tenant(levels=levels_of(settings.slo))} | named


def _tenant(each: TenantSettings, slo: SloSettings) -> Tenant:
    return Tenant(
        each.name,
        each.tenant_class or each.name,
        each.weight,
        Priority[each.priority.upper()],
        Priority[each.most_urgent.upper()],
        levels_of(slo, each.slo),
        models=None if each.models is None else frozenset(each.models),
        quota=_quota(each.quota),
        is_named=True,
    )


def _quota(quota: QuotaSettings) -> Quota | None:
    limits = QuotaLimits(
        quota.requests_per_minute,
        quota.prompt_tokens_per_minute,
        quota.images_per_minute,
        quota.pixels_per_minute,
        quota.concurrent_requests,
    )
    return None if limits == QuotaLimits() else Quota(limits)


def tenant_classes_of(settings: Settings) -> list[str]:
    """The labels beside `default`."""
    return list(dict.fromkeys(each.tenant_class or each.name for each in settings.tenants))


class Listening(NamedTuple):
    """The address, and why it is this one."""

    host: str
    why: str


def listening_of(settings: Settings) -> Listening:
    """Everyone is reached only where keys say who may come, or where the operator says so."""
    if settings.server.host is not None:
        return Listening(settings.server.host, "server.host says so")
    if settings.has_keys:
        return Listening(_EVERYWHERE, "keys are configured, so every address of this machine is open")
    return Listening(_LOOPBACK, "no keys are configured, so only this machine may come; server.host opens it to others")


def contradictions_about_keys(settings: Settings) -> list[str]:
    """A sentence for each setting that would give keys of this gateway away."""
    if settings.upstream.forward_client_key and settings.has_keys:
        text = (
            "upstream.forward_client_key is on, but keys are configured here: they would go to the model server. Leave "
            "it out, and give the server's own key with upstream.api_key."
        )
        return [text]
    return []


def trusted_header_of(settings: Settings) -> TrustedHeader | None:
    header = settings.tenants_from.header
    return None if header is None else TrustedHeader(header.encode(), settings.tenants_from.networks)


def withheld_of(settings: Settings, upstream_key: str | None) -> frozenset[bytes]:
    """What of clients' headers never goes to a model server."""
    keeps_keys = upstream_key is not None or settings.has_keys or not settings.upstream.forward_client_key
    own = frozenset() if settings.tenants_from.header is None else frozenset({settings.tenants_from.header.encode()})
    return own | CREDENTIALS if keeps_keys else own
