"""What a test of the suite notes down: what clients saw, how long it took, and what did not come back.

Whatever a fault holds must be given back to how it was before it: what the gateway says that it holds, file
descriptors, and tasks. Waiting for that ends when all of it has come back; the bound only ends what hangs.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.rows import Row
from tests.support.live_gateway import LiveGateway

Snapshot = dict[str, float]
"""By what it is; what is held has a name of its own for each resource."""
_LOOK_SECONDS = 0.05


def of_this_process(gateway: LiveGateway) -> Snapshot:
    """A gateway in the test's own loop: its metrics, and the descriptors and tasks of this process."""
    return gateway.held() | {"fds": open_files("self"), "tasks": len(asyncio.all_tasks())}


def open_files(process: int | str) -> int:
    return sum(1 for _ in Path(f"/proc/{process}/fd").iterdir())


def grown(before: Snapshot, now: Snapshot) -> Snapshot:
    return {name: now[name] - before.get(name, 0) for name in now if now[name] > before.get(name, 0)}


@dataclass
class Record:
    """One row of the table that the run prints."""

    row: Row
    saw: str = "nothing"
    told_seconds: float = 0.0
    back_seconds: float = 0.0
    leaked: Snapshot | None = None
    _began: float = field(default_factory=time.monotonic)

    def begins(self) -> None:
        """The fault happens now."""
        self._began = time.monotonic()

    def clients_saw(self, what: str, *, more_seconds: float = 0.0) -> None:
        """In time: the row's, and so much more where the fault itself lasts."""
        self.told_seconds = time.monotonic() - self._began
        self.saw = what
        assert self.told_seconds <= self.row.seconds + more_seconds, f"after {self.told_seconds:.0f} s"

    @asynccontextmanager
    async def all_comes_back(self, look: Callable[[], Awaitable[Snapshot]]) -> AsyncIterator[None]:
        """Around the fault. `look` takes the snapshots; the first one when the gateway is at rest."""
        before = await look()
        self.begins()
        yield
        over = time.monotonic()
        while leaked := grown(before, await look()):
            if time.monotonic() - over > self.row.seconds:
                break
            await asyncio.sleep(_LOOK_SECONDS)
        self.back_seconds, self.leaked = time.monotonic() - self._began, leaked
        assert not leaked, f"did not come back in {self.row.seconds:.0f} s: {leaked}"

    @asynccontextmanager
    async def inside(self, gateway: LiveGateway) -> AsyncIterator[None]:
        """`all_comes_back` for a gateway in this loop, which has answered once: what it keeps open is open."""
        await gateway.until_up()
        assert (await gateway.http.get("/v1/models")).status_code == 200

        async def look() -> Snapshot:
            return of_this_process(gateway)

        async with self.all_comes_back(look):
            yield

    def process_is_gone(self) -> None:
        """With all that it had."""
        self.back_seconds, self.leaked = time.monotonic() - self._began, {}

    def line(self) -> str:
        leaked = "not looked at" if self.leaked is None else (str(self.leaked) if self.leaked else "0")
        times = f"{self.told_seconds:7.2f} s {self.back_seconds:7.2f} s"
        return f"{self.row.fault:44} {times}  leaked {leaked}  {self.saw}"
