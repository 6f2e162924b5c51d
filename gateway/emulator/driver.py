"""Runs the pure engine in real time on the event loop, and hands its tokens to those who wait for them."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable

from gateway.emulator.config import StepCost
from gateway.emulator.engine import Emission, Engine, Sequence
from gateway.emulator.errors import ApiError, engine_dead


class Delivery:
    """The tokens of one request's sequences on their way to its handler. One consumer."""

    def __init__(self, sequences: int) -> None:
        self._unfinished = sequences
        self._emissions: list[Emission] = []
        self._problem: ApiError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._waits_for_end = False

    def put(self, emission: Emission) -> None:
        self._emissions.append(emission)
        self._unfinished -= emission[2] is not None
        if not (self._unfinished and self._waits_for_end):
            self._wake()

    def fail(self, problem: ApiError) -> None:
        self._problem = problem
        self._wake()

    async def next(self) -> list[Emission]:
        """Tokens since the last call; empty when there will be no more. Raises ApiError if the engine died."""
        if self._unfinished and not self._emissions and self._problem is None:
            await self._wait()
        if self._problem is not None:
            raise self._problem
        emissions, self._emissions = self._emissions, []
        return emissions

    async def end(self) -> None:
        """Until every sequence has finished. Raises ApiError if the engine died."""
        self._waits_for_end = True
        if self._unfinished and self._problem is None:
            await self._wait()
        if self._problem is not None:
            raise self._problem

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Driver:
    """The engine's loop: one task, started by the first request.

    Steps keep their rhythm: each begins when the one before should have ended, so late timers do not add up.
    """

    def __init__(
        self,
        engine: Engine,
        cost: StepCost,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._engine = engine
        self._cost = cost
        self._clock = clock
        self._sleep = sleep
        self._deliveries: dict[Sequence, Delivery] = {}
        self._changed = asyncio.Event()
        self._thawed = asyncio.Event()
        self._thawed.set()
        self._task: asyncio.Task[None] | None = None
        self.is_dead = False

    def submit(self, sequences: list[Sequence]) -> Delivery:
        """Queue the sequences of one request. Raises ApiError if the engine is dead."""
        if self.is_dead:
            raise engine_dead()
        delivery = Delivery(len(sequences))
        for sequence in sequences:
            self._engine.add(sequence, self._clock())
            self._deliveries[sequence] = delivery
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
        self._changed.set()
        return delivery

    def abandon(self, sequences: list[Sequence]) -> None:
        """The request is over or its client left: whatever still runs is aborted."""
        for sequence in sequences:
            if self._deliveries.pop(sequence, None) is not None:
                self._engine.abort(sequence)
        self._changed.set()

    def set_frozen(self, *, frozen: bool) -> None:
        (self._thawed.clear if frozen else self._thawed.set)()

    def die(self) -> None:
        """The engine process is gone: everything in flight fails, everything new is refused."""
        self.is_dead = True
        for delivery in self._deliveries.values():
            delivery.fail(engine_dead())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        due_at = self._clock()
        while not self.is_dead:
            await self._thawed.wait()
            step = self._engine.schedule(self._clock())
            if not step.scheduled:
                await self._next_change()
                due_at = self._clock()
                continue
            due_at += step.seconds(self._cost)
            await self._sleep(max(0.0, due_at - self._clock()))
            await self._thawed.wait()
            self._deliver(self._engine.finish(step, self._clock()))

    def _next_change(self) -> Awaitable[bool]:
        self._changed.clear()
        return self._changed.wait()

    def _deliver(self, emissions: list[Emission]) -> None:
        for emission in emissions:
            sequence, _, finish_reason = emission
            delivery = self._deliveries.get(sequence)
            if delivery is not None:
                delivery.put(emission)
            if finish_reason is not None:
                self._deliveries.pop(sequence, None)
