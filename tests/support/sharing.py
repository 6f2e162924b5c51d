"""Gateways that share one budget, without a process or a socket: what each holds, and what it tells the store."""

import sys
from dataclasses import dataclass, field

from gateway.domain.quantities import Amounts
from gateway.domain.shares import UNKNOWN, Answer, Call, ShareBook
from gateway.domain.shares_held import TTL_MS, Share, Waiting
from gateway.ledger.shared import StoreError
from tests.support.clock import FakeClock

NOBODY = Waiting(Amounts(), None, None, 0)
ALONE = Answer(0, 1, 0, (0,) * 3, (0,) * 3, (UNKNOWN,) * 3, (0,) * 3, (0,) * 3)


def waiting(*blocks: int) -> Waiting:
    """So many KV blocks each, one after the other; the same numbers are the same requests."""
    wanted = Amounts(sum(blocks), len(blocks))
    return Waiting(wanted, Amounts(blocks[0], 1) if blocks else None, blocks or None, len(blocks))


def call(owner: str, serial: int, **fields) -> Call:
    nothing = (0, 0, 0)
    values = {"seen": 0, "next_id": 0, "depth": 0, "takes": nothing, "keeps": nothing, "holds": nothing}
    values |= {"wants": nothing, "totals": (100, 100, UNKNOWN)} | fields
    return Call(owner, serial, **values)


@dataclass
class BookStore:
    """The specification of the store as a store, on the test's clock."""

    clock: FakeClock
    book: ShareBook = field(default_factory=lambda: ShareBook(TTL_MS))
    is_down: bool = False
    left: list[str] = field(default_factory=list)

    async def beat(self, asked: Call) -> Answer | None:
        if self.is_down:
            raise StoreError("it is down")
        return self.book.beat(asked, int(self.clock.now * 1000))

    async def leave(self, owner: str) -> None:
        if self.is_down:
            raise StoreError("it is down")
        self.left.append(owner)
        self.book.leave(owner)

    async def close(self) -> None:
        """Nothing is open."""


@dataclass
class Gateway:
    """The pure part of one: a share, what is held under it, and those that wait, by their KV blocks."""

    share: Share
    held: int = 0
    line: list[int] = field(default_factory=list)

    def admit(self) -> None:
        """Whoever is first and fits, as a ledger does it."""
        capacity = self.share.capacity(0)
        while self.line and capacity is not None:
            fits = self.held + self.line[0] <= capacity or (not self.held and self.share.may_be_alone(0))
            if not fits:
                return
            self.held += self.line.pop(0)

    def asks(self) -> Call:
        return self.share.call(Amounts(self.held), self.waiting())

    def waiting(self) -> Waiting:
        if not self.line:
            return NOBODY
        first = sys.intern(f"{self.line[0]} blocks, {len(self.line)} before the end")
        return Waiting(Amounts(sum(self.line)), Amounts(self.line[0]), first, len(self.line))

    def told(self, answer: Answer | None, asked_at: float) -> None:
        if answer is not None:
            self.share.told(answer, asked_at, Amounts(self.held))
        self.admit()


def house(count: int, total: int, now: float = 0.0) -> list[Gateway]:
    gateways = [Gateway(Share(f"g{number}", now, count)) for number in range(count)]
    for gateway in gateways:
        gateway.share.set_total(0, total)
    return gateways


def round_of(book: ShareBook, gateways: list[Gateway], now: float) -> None:
    """Each tells and is told once."""
    for gateway in gateways:
        gateway.told(book.beat(gateway.asks(), int(now * 1000)), now)
