"""Shares in Redis 7 or Valkey: each call is one run of shares.lua there, on one key, by Redis' own clock.

The extra `redis`; nothing of it is imported where no address is set.
"""

import asyncio
import secrets
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from gateway.domain.quota import Amounts
from gateway.domain.shares import SHARED, Answer, Call
from gateway.domain.shares_held import TTL_MS
from gateway.ledger.shared import StoreError
from gateway.ledger.shared_quotas import Sums

if TYPE_CHECKING:
    from redis.asyncio import Redis

CALL_SECONDS = 0.5
"""A call that takes longer has failed. With the lease that is less than the time after which the share is others'."""
_FORGOTTEN_SECONDS = 3_600
_BEGINNING = "beginning"
_COUNTED = 4  # numbers of the answer before its lists


@cache
def script_text() -> str:
    return resources.files("gateway.ledger").joinpath("shares.lua").read_text(encoding="utf-8")


def connect(url: str) -> "Redis":
    """Nothing is asked yet. Raises ValueError if that is no address of a Redis."""
    from redis.asyncio import Redis  # noqa: PLC0415 - an extra
    from redis.asyncio.retry import Retry  # noqa: PLC0415
    from redis.backoff import NoBackoff  # noqa: PLC0415

    # Without retries: what failed is told anew a moment later.
    return Redis.from_url(
        url, socket_timeout=CALL_SECONDS, socket_connect_timeout=CALL_SECONDS, retry=Retry(NoBackoff(), 0)
    )


class RedisStore:
    """The shares of one upstream, under `key`; gateways that have the same key there share one budget."""

    def __init__(self, redis: "Redis", key: str, script: str | None = None) -> None:
        self._redis = redis
        self._key = key
        self._script = redis.register_script(script or script_text())

    async def beat(self, call: Call) -> Answer | None:
        answer = await self._run(*arguments_of(call, TTL_MS))
        return answer_of(answer) if answer else None

    async def leave(self, owner: str) -> None:
        await self._run(owner)

    async def close(self) -> None:
        await self._redis.aclose()

    async def _run(self, *arguments: str | int) -> list[int]:
        from redis.exceptions import RedisError  # noqa: PLC0415 - an extra

        try:
            async with asyncio.timeout(CALL_SECONDS):
                answer: Any = await self._script(keys=[self._key], args=list(arguments))
        except (RedisError, OSError, TimeoutError) as error:
            raise StoreError(f"{type(error).__name__}: {error}") from error
        return list(answer)


class RedisQuotaStore:
    """What tenants took, in one hash: a field for each quantity of each tenant."""

    def __init__(self, redis: "Redis", key: str) -> None:
        self._redis = redis
        self._key = key

    async def add(self, taken: Mapping[str, Amounts]) -> Sums:
        from redis.exceptions import RedisError  # noqa: PLC0415 - an extra

        pipeline = self._redis.pipeline()
        pipeline.hsetnx(self._key, _BEGINNING, secrets.token_hex(8))
        for name, amounts in taken.items():
            for field, amount in zip(Amounts._fields, amounts, strict=True):
                pipeline.hincrby(self._key, f"{field}:{name}", amount)
        pipeline.expire(self._key, _FORGOTTEN_SECONDS)
        pipeline.hgetall(self._key)
        try:
            async with asyncio.timeout(CALL_SECONDS):
                *_, fields = await pipeline.execute()
        except (RedisError, OSError, TimeoutError) as error:
            raise StoreError(f"{type(error).__name__}: {error}") from error
        beginning = fields.pop(_BEGINNING.encode()).decode()
        totals: dict[str, dict[str, int]] = {}
        for key, total in fields.items():
            field, _, name = key.decode().partition(":")
            totals.setdefault(name, {})[field] = int(total)
        return Sums(beginning, {name: Amounts(**of_one) for name, of_one in totals.items()})

    async def close(self) -> None:
        await self._redis.aclose()


def arguments_of(call: Call, ttl_ms: int) -> list[str | int]:
    lists = (call.keeps, call.holds, call.wants, call.takes, call.totals)
    numbers = [number for each in lists for number in each]
    return [call.owner, ttl_ms, call.serial, call.seen, call.next_id, call.depth, *numbers]


def answer_of(numbers: list[int]) -> Answer:
    _now_ms, calls, gateways, others_depth = numbers[:_COUNTED]
    each = len(SHARED)
    lists = [tuple(numbers[start : start + each]) for start in range(_COUNTED, len(numbers), each)]
    return Answer(calls, gateways, others_depth, *lists)
