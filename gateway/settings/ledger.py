"""Where the budget is kept that several gateways share."""

from typing import Annotated, Self

from pydantic import Field, PositiveInt, SecretStr, model_validator

from gateway.settings.section import Section
from gateway.settings.sections import is_installed


class LedgerSettings(Section):
    """Gateways that name the same Redis, the same `namespace` and an upstream at the same url share one budget of it.
    Without an address each gateway takes the whole engine to be its own.
    """

    redis_url: Annotated[
        SecretStr | None,
        Field(
            description="redis://[user:password@]host:port/database, or rediss:// with TLS: Redis or Valkey from 7 on; "
            "left out: this gateway is alone"
        ),
    ] = None
    namespace: Annotated[
        str,
        Field(
            min_length=1,
            description="begins the keys in Redis; another one where the same url names another server, as 127.0.0.1 "
            "does in each pod",
        ),
    ] = "vlm-gateway"
    interval_seconds: Annotated[
        float, Field(ge=0.05, le=0.25, description="how often a gateway tells what it holds and takes what is free")
    ] = 0.1
    gateways: Annotated[
        PositiveInt,
        Field(
            description="how many share the budget: the part of one where Redis could not be reached since the start; "
            "after that those that were last there count"
        ),
    ] = 1

    @model_validator(mode="after")
    def _can_be_had(self) -> Self:
        if self.redis_url is None:
            return self
        if not is_installed("redis"):
            raise ValueError("`redis_url` needs the extra `redis`: pip install 'vlm-gateway[redis]'")
        if not self.redis_url.get_secret_value().startswith(("redis://", "rediss://", "unix://")):
            raise ValueError("`redis_url` begins with redis://, rediss:// or unix://")
        from redis.asyncio.connection import parse_url  # noqa: PLC0415 - of the extra, which was looked for above

        try:
            parse_url(self.redis_url.get_secret_value())
        except ValueError as error:
            raise ValueError(f"`redis_url` cannot be read: {error}") from error
        return self
