"""What of the settings can hardly be meant: a sentence for each, with what to do. Nothing of it keeps from serving."""

from collections.abc import Collection, Iterator
from datetime import datetime, timedelta

from gateway.access import listening_of
from gateway.cli.check.surroundings import Surroundings
from gateway.server.loopback import is_loopback
from gateway.settings import Settings

_SOON = timedelta(days=14)
_OTHERS_MAY_READ = 0o004
_OTHERS_MAY_WRITE = 0o022


def doubts_of(settings: Settings, around: Surroundings) -> list[str]:
    """Those that need no model server."""
    return [
        *_of_the_door(settings, around),
        *_of_keys(settings, around),
        *_of_files(around),
        *_of_certificates(settings, around),
        *_of_models(settings),
        *_of_routes(settings),
    ]


def doubts_about_names(settings: Settings, listed: Collection[str]) -> list[str]:
    """By the names that the model servers list, all of which are up."""
    aliases = {alias: model.name for model in settings.models for alias in model.aliases}
    hiding = [
        f"models[].aliases: {alias!r} is listed by a server too, and who asks for it gets {name!r} all the same."
        for alias, name in aliases.items()
        if alias in listed
    ]
    missing = [
        f"tenants[].models: {tenant.name!r} may use {name!r}, which no server lists."
        for tenant in settings.tenants
        for name in tenant.models or ()
        if name not in listed and name not in aliases
    ]
    return hiding + missing


def _of_the_door(settings: Settings, around: Surroundings) -> Iterator[str]:
    host = listening_of(settings).host
    is_here_alone = host == "localhost" or is_loopback(host)
    if is_here_alone and around.is_container:
        yield (
            f"It listens on {host}, which in a container is the container or its pod alone. Configure keys "
            "(`vlm-gateway key create`, keys.file), or set server.host: 0.0.0.0."
        )
    is_watched = settings.has_keys or settings.server.tls.client_ca_file or settings.tenants_from.header
    if not is_here_alone and not is_watched:
        yield f"It listens on {host} without keys: whoever reaches it may use it. See `vlm-gateway key create`."
    for network in settings.tenants_from.networks:
        if network.prefixlen == 0:
            yield f"tenants_from.networks has {network}: everyone may say whose his requests are. Name the proxies."


def _of_keys(settings: Settings, around: Surroundings) -> Iterator[str]:
    has_others = any(tenant.key_sha256 for tenant in settings.tenants)
    living = [key for key in around.keys if key.expires is None or key.expires > around.now]
    if settings.keys.file and not living and not has_others and settings.keys.unknown == "refuse":
        yield f"keys.file: {settings.keys.file} has no good key, so nobody gets in. See `vlm-gateway key create`."
    for key in around.keys:
        if key.expires is not None and key.expires - around.now < _SOON:
            yield f"keys.file: the key {key.name!r} {_ends(key.expires, around.now)}. Make another and revoke it."
    named = {"default", *(tenant.name for tenant in settings.tenants)}
    for tenant_name in dict.fromkeys(key.tenant for key in around.keys if key.tenant not in named):
        yield f"keys.file: the settings have no tenant {tenant_name!r}; it may do what `default` may."
    if settings.keys.unknown == "default" and not settings.has_keys:
        yield "keys.unknown says who comes without a key, but no keys are configured: everyone does. Set keys.file."


def _of_files(around: Surroundings) -> Iterator[str]:
    for path, mode in around.modes.items():
        if mode & _OTHERS_MAY_WRITE:
            yield f"{path} may be written by others than its owner (mode {mode:o}). `chmod 600` it."
        elif mode & _OTHERS_MAY_READ:
            yield f"{path} may be read by everyone on this machine (mode {mode:o}). `chmod 600` it."


def _of_certificates(settings: Settings, around: Surroundings) -> Iterator[str]:
    for path, end in around.ends.items():
        if end - around.now < _SOON:
            yield f"The certificate {path} {_ends(end, around.now)}. Renew it: a new file is read without a restart."
    urls = [each.url for each in settings.upstreams] or [settings.upstream.url]
    given = settings.upstream.tls.model_fields_set or any(each.tls for each in settings.upstreams)
    if given and all(url.scheme == "http" for url in urls):
        yield "upstream.tls is set, but no server is behind https://: nothing is encrypted. Change the address."


def _ends(end: datetime, now: datetime) -> str:
    return "has expired" if end <= now else f"expires on {end:%Y-%m-%d}"


def _of_models(settings: Settings) -> Iterator[str]:
    aliases = {alias: model.name for model in settings.models for alias in model.aliases}
    for tenant in settings.tenants:
        for name in set(tenant.models or ()) & aliases.keys():
            yield (
                f"tenants[].models: {tenant.name!r} may use {name!r}, which is an alias and opens nothing. Name its "
                f"model, {aliases[name]!r}: all its aliases come with it."
            )


def _of_routes(settings: Settings) -> Iterator[str]:
    paths = ", ".join(path for path in settings.routes.open if path != "/invocations")
    if paths:
        yield f"routes.open: {paths}: bodies go there unread, from everyone who may come in."
    if paths and len(settings.upstreams) > 1:
        yield "routes.open: what is opened goes to the first of the upstreams, and to no other."
