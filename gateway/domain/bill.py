"""What one request has been charged of its tenant's quota, from the door to its end; and what the client is told who
cannot be charged.
"""

from math import isinf

from gateway.domain.errors import Code, GatewayError
from gateway.domain.outcome import Reason
from gateway.domain.promise import LONGEST_RETRY_SECONDS
from gateway.domain.quota import Amounts, Quantity, Quota, Shortage

_AGAIN_SECONDS = 1.0  # nobody knows when one of the tenant's own requests ends
_NOTHING = Amounts()
_SETTINGS = {
    Quantity.REQUESTS: ("requests per minute", "requests_per_minute"),
    Quantity.TOKENS: ("prompt tokens per minute", "prompt_tokens_per_minute"),
    Quantity.IMAGES: ("images per minute", "images_per_minute"),
    Quantity.PIXELS: ("pixels per minute", "pixels_per_minute"),
    Quantity.CONCURRENCY: ("requests at once", "concurrent_requests"),
}


class Bill:
    """Closed exactly once; closing it again does nothing."""

    __slots__ = ("_charged", "_is_open", "_quota", "_spent_at", "_stays", "_tenant", "is_priced")

    def __init__(self, quota: Quota, tenant: str) -> None:
        self._quota = quota
        self._tenant = tenant
        self._charged = _NOTHING
        self._spent_at: float | None = None
        self._is_open = False
        self._stays = False
        self.is_priced = False

    def open(self, now: float) -> None:
        """At the door: the request itself. Raises GatewayError; then there is nothing to close."""
        shortage = self._quota.enter()
        if shortage is None:
            self._is_open = True
            shortage = self._quota.charge(now, Amounts(requests=1))
            if shortage is None:
                self._charged = Amounts(requests=1)
                return
            self.close(now)
        raise _refusal(shortage, self._tenant)

    def price(self, now: float, tokens: int, images: int, pixels: int) -> None:
        """At admission: what it is expected to take; once, however many servers are tried. Raises GatewayError."""
        if self.is_priced:
            return
        more = Amounts(0, tokens, images, pixels)
        shortage = self._quota.charge(now, more)
        if shortage is not None:
            raise _refusal(shortage, self._tenant)
        self.is_priced = True
        self._charged = more._replace(requests=self._charged.requests)

    def sent(self, now: float) -> None:
        """It is on its way to a model server, and counts from now on."""
        if self._is_open and self._spent_at is None:
            self._quota.spend(now, self._charged)
            self._spent_at = now

    def stay(self) -> None:
        """Its work will go on behind its end: it is inside until it leaves."""
        self._stays = self._is_open

    def leave(self) -> None:
        """Of one that stayed."""
        if self._stays and not self._is_open:
            self._quota.leave()
        self._stays = False

    def close(self, now: float, *, tokens: int | None = None, is_void: bool = False) -> None:
        """Its end. `tokens` its prompt really had; None: what was expected stands. `is_void`: it counts for nothing.
        One that was never sent counts for nothing whatever is said.
        """
        if not self._is_open:
            return
        self._is_open = False
        if not self._stays:
            self._quota.leave()
        if self._spent_at is None:
            self._quota.release(self._charged)
        elif is_void:
            self._quota.true_up(now, self._charged, _NOTHING, self._spent_at)
        elif tokens is not None:
            self._quota.true_up(now, self._charged, self._charged._replace(tokens=tokens), self._spent_at)


def _refusal(shortage: Shortage, tenant: str) -> GatewayError:
    what, setting = _SETTINGS[shortage.quantity]
    whose = f"The tenant {tenant!r} may have {shortage.limit} {what} (tenants[].quota.{setting})"
    if isinf(shortage.wait_seconds):
        return GatewayError(
            Code.REQUEST_EXCEEDS_BUDGET,
            f"{whose}, and this request alone needs {shortage.asked}. Send less at once; to come back is of no use.",
            reason=Reason.TENANT_QUOTA,
        )
    if shortage.quantity is Quantity.CONCURRENCY:
        return GatewayError(
            Code.RATE_LIMIT_EXCEEDED,
            f"{whose}, and {shortage.used} are inside. Come back when one of them has ended.",
            reason=Reason.TENANT_CONCURRENCY,
            retry_after_seconds=_AGAIN_SECONDS,
        )
    seconds = shortage.wait_seconds
    return GatewayError(
        Code.RATE_LIMIT_EXCEEDED,
        f"{whose}; {shortage.used} are used and this request needs {shortage.asked}. There is room for it in "
        f"{seconds:.1f} seconds.",
        reason=Reason.TENANT_QUOTA,
        retry_after_seconds=seconds,
        is_promise=seconds <= LONGEST_RETRY_SECONDS,
    )
