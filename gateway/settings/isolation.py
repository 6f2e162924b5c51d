"""What keeps tenants apart in the caches of the model servers that they share."""

import secrets
from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import Field, SecretStr

from gateway.domain.isolation import Isolation
from gateway.settings.section import Section


class IsolationSettings(Section):
    """Names of images (`uuid`) are always each tenant's own."""

    prefix_cache: Annotated[
        Literal["auto", "tenant", "none"],
        Field(
            description="tenant: each has beginnings of prompts of its own in vLLM's prefix cache, by a `cache_salt`; "
            "none: all share them; auto: tenant where keys are configured or `tenants_from` is, none elsewhere"
        ),
    ] = "auto"
    secret: Annotated[
        SecretStr | None,
        Field(
            min_length=16,
            description="of this deployment: names and salts are made with it, so that all gateways make the same, and "
            "after a restart too; left out: a random one at each start",
        ),
    ] = None


_RANDOM_BYTES = 32


def isolation_of(
    section: IsolationSettings, *, tells_apart: bool, random_bytes: Callable[[int], bytes] = secrets.token_bytes
) -> Isolation:
    """`tells_apart`: the operator tells tenants apart."""
    secret = section.secret.get_secret_value().encode() if section.secret else random_bytes(_RANDOM_BYTES)
    is_wanted = section.prefix_cache == "tenant" or (section.prefix_cache == "auto" and tells_apart)
    return Isolation.of(secret, salts_prefixes=is_wanted)
