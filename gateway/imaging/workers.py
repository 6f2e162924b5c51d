"""Pictures are decoded from here: in worker processes, under a budget of decode bytes, each content once.

Ownership: a decode belongs to no request. It runs as a task of its own that the requests which want it wait for; one
that leaves does not disturb the others. When all have left before a thread took it, it is dropped; once in a thread,
which waits for a worker process, it runs to its end, its verdict is kept, and its bytes go back to the budget only
then. Only the end of the gateway does not wait for it.

A picture whose process died is tried once more, in another process, for it may have been no fault of the picture's.
One that took too long is not. Whatever ended two processes is refused from then on.

Order: hash, cache, a look at the whole file, decoding; the last two each with an idle thread first and then bytes of
the budget. Hashing and looking have threads of their own, so that a known picture never waits behind unknown ones.
While bytes of the budget are held, nothing is awaited but the thread that uses them.

What is made is not charged: each new file is at most `limits.most_output_bytes` long, which whoever holds it until it
is sent can count with beforehand.
"""

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Literal, Protocol, TypeVar

from gateway.domain.errors import Code, GatewayError
from gateway.domain.geometry import Size
from gateway.domain.image import ImageFormat, ImageInfo
from gateway.imaging.body import late_reasons
from gateway.imaging.heap import give_back_free_memory
from gateway.imaging.judge import inspect, judge, needs_decode
from gateway.imaging.limits import ImageLimits, border_bytes, job_bytes, look_bytes
from gateway.imaging.probe import glance, probe, recognise
from gateway.imaging.processes import WorkerLostError, WorkerStartError
from gateway.imaging.render import ENCODER_ID
from gateway.imaging.strikes import Strikes
from gateway.imaging.threads import DaemonThreads
from gateway.imaging.verdicts import Damage, Prepared, Verdict, VerdictCache, VerdictKey
from gateway.wire.encoded_file import EncodedFile

__all__ = ["DecodeBudget", "ImageStatistics", "ImageWorkers", "Prepared", "needs_decode"]

T = TypeVar("T")
_log = logging.getLogger(__name__)

_RECOGNISED_BYTES = 1024
_HEAP_SECONDS = 10.0
_START_AGAIN_SECONDS = 5.0
_INLINE_HASH_BYTES = 64 << 10  # below this, a hash takes less time than handing it to a thread
# Whose headers libraries of the system read, not code of ours or Pillow's in Python.
_INSPECTED = frozenset({ImageFormat.AVIF, ImageFormat.HEIC})
_CONDEMNED = Damage(
    Code.IMAGE_PARSE_ERROR,
    "Decoding the image has ended two worker processes, so it is not tried again. Encode it anew, as PNG or JPEG.",
)
_LATE = Damage(
    Code.IMAGE_PARSE_ERROR, "Decoding the image takes longer than is allowed (images.decode_seconds). Send it smaller."
)


class DecodeBudget(Protocol):
    """Bytes of memory for decoding. What `acquire` gave, `release` gives back, on the same event loop.

    A cancelled `acquire` holds nothing. A job larger than the whole budget is the budget's affair.
    """

    async def acquire(self, byte_count: int) -> None: ...

    def release(self, byte_count: int) -> None: ...


class Isolation(Protocol):
    """Where decoders run; see processes.py. Raises WorkerLostError."""

    def run(self, byte_count: int, work: Callable[..., T], file: EncodedFile, *args: object) -> T: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class ImageStatistics:
    """Counts since the start, and what is held now. `shared` requests waited for another one's decode."""

    hits: int
    misses: int
    shared: int
    cached_verdicts: int
    cached_bytes: int
    decode_bytes_held: int
    waiting_decodes: int
    running_decodes: int


class _Crew:
    """Threads for one kind of work, and the semaphore that says whether one is idle."""

    def __init__(self, threads: int, name: str) -> None:
        self.pool = DaemonThreads(threads, name)
        self.idle = asyncio.Semaphore(threads)
        self.working = 0


@dataclass(eq=False, slots=True)
class _Flight:
    """One decode on its way: how many requests wait for it, and whether a thread has taken it."""

    task: asyncio.Task[Verdict]
    waiters: int = 0
    is_in_thread: bool = False


class ImageWorkers:
    """Checks, normalises and resizes images. One for each process; used from one event loop."""

    def __init__(
        self,
        *,
        threads: int,
        isolation: Isolation,
        decode_budget: DecodeBudget,
        cache_bytes: int,
        verify: Literal["full", "header"] = "full",
    ) -> None:
        self._isolation = isolation
        self._strikes = Strikes()
        self._decoders = _Crew(threads, "decode")
        self._lookers = _Crew(threads, "look")
        self._hashers = DaemonThreads(threads, "hash")
        self._budget = decode_budget
        self._cache = VerdictCache(cache_bytes)
        self._verifies_all = verify == "full"
        self._flights: dict[VerdictKey, _Flight] = {}
        self._hits = self._misses = self._shared = self._held_bytes = 0
        self._heap_timer: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Tries whether a process can be started and used at all. Raises WorkerStartError, WorkerLostError."""
        await asyncio.get_running_loop().run_in_executor(
            self._decoders.pool, self._isolation.run, 0, EncodedFile.decode, EncodedFile(b"")
        )

    async def look(self, file: EncodedFile, limits: ImageLimits, param: str) -> ImageInfo:
        """What the image is, from its header (`probe`). Common headers are read here and now, others in a thread.

        Lets others run in any case, so that a body of many images does not hold the event loop. Raises GatewayError for
        an image that is refused, with `param`, and what the decode budget raises where it has no bytes for a look.
        """
        await asyncio.sleep(0)
        info = glance(file, limits, param)
        if info is not None:
            return info
        image_format = recognise(file.prefix(_RECOGNISED_BYTES))
        byte_count = look_bytes(image_format, file.file_bytes)
        if image_format not in _INSPECTED:
            return await self._in_looker(byte_count, probe, file, limits, param)
        found = await self._inspected(byte_count, file, limits)
        if isinstance(found, Damage):
            raise found.about(param)
        return found

    async def digest(self, file: EncodedFile) -> bytes:
        """SHA-256 of the base64 as it came."""
        return await self.hash_of(file.payload)

    async def hash_of(self, content: memoryview | bytes) -> bytes:
        """SHA-256."""
        if len(content) < _INLINE_HASH_BYTES:
            return _sha256(content)
        return await asyncio.get_running_loop().run_in_executor(self._hashers, _sha256, content)

    async def prepare(
        self, file: EncodedFile, info: ImageInfo, target: Size | None, param: str, digest: bytes | None = None
    ) -> Prepared | None:
        """The image as it is to be sent, or None where the bytes that came go on untouched.

        `target` is the planned size after orientation (None or `info.size`: its own). `digest`: what the method of that
        name gave for this file, if it was asked before. Raises GatewayError for a damaged image, with `param`.
        """
        if not self._verifies_all and not needs_decode(info, target):
            return None
        key = VerdictKey(digest or await self.digest(file), None if target == info.size else target, ENCODER_ID)
        verdict = self._cache.get(key)
        if verdict is None:
            verdict = await self._wait_for(key, file, info)
        else:
            self._hits += 1
        return verdict.answer(param)

    def statistics(self) -> ImageStatistics:
        return ImageStatistics(
            hits=self._hits,
            misses=self._misses,
            shared=self._shared,
            cached_verdicts=len(self._cache),
            cached_bytes=int(self._cache.currsize),
            decode_bytes_held=self._held_bytes,
            waiting_decodes=len(self._flights) - self._decoders.working,
            running_decodes=self._decoders.working,
        )

    async def close(self) -> None:
        """Drops what waits, leaves what runs in a thread behind, and lets the threads go."""
        tasks = [flight.task for flight in self._flights.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._heap_timer is not None:
            self._heap_timer.cancel()
        self._isolation.close()
        self._decoders.pool.close()
        self._lookers.pool.close()
        self._hashers.close()

    async def _wait_for(self, key: VerdictKey, file: EncodedFile, info: ImageInfo) -> Verdict:
        flight = self._flights.get(key)
        if flight is None:
            self._misses += 1
            flight = self._start(key, file, info)
        else:
            self._shared += 1
        flight.waiters += 1
        try:
            return await asyncio.shield(flight.task)
        finally:
            flight.waiters -= 1
            if not flight.waiters and not flight.is_in_thread:
                flight.task.cancel()
                self._land(key, flight)

    def _start(self, key: VerdictKey, file: EncodedFile, info: ImageInfo) -> _Flight:
        flight = _Flight(asyncio.create_task(self._fly(key, file, info)))
        flight.task.add_done_callback(lambda _: self._land(key, flight))
        self._flights[key] = flight
        return flight

    def _land(self, key: VerdictKey, flight: _Flight) -> None:
        if self._flights.get(key) is flight:  # after a cancellation the key may already be another's
            del self._flights[key]

    async def _fly(self, key: VerdictKey, file: EncodedFile, info: ImageInfo) -> Verdict:
        looked_at: ImageInfo | Verdict = info
        if needs_examination(info, key.target):
            looked_at = await self._in_looker(look_bytes(info.format, info.file_bytes), examine, file, info)
        if isinstance(looked_at, Verdict):
            verdict = looked_at
        else:
            verdict = await self._decode(key, file, looked_at)
        if verdict.is_final:
            self._cache.put(key, verdict)
        return verdict

    async def _decode(self, key: VerdictKey, file: EncodedFile, info: ImageInfo) -> Verdict:
        byte_count = job_bytes(info, key.target or (info.size if info.why else None)) + border_bytes(info.file_bytes)

        async def attempt() -> Verdict:
            await self._take(self._decoders, byte_count)
            self._flights[key].is_in_thread = True
            work = (byte_count, judge, file, info, key.target)
            return await self._run(self._decoders, byte_count, self._isolation.run, *work)

        verdict = await self._survived(key.digest, attempt)
        return Verdict(damage=verdict, is_final=verdict is _CONDEMNED) if isinstance(verdict, Damage) else verdict

    async def _inspected(self, byte_count: int, file: EncodedFile, limits: ImageLimits) -> ImageInfo | Damage:
        async def attempt() -> ImageInfo | Damage:
            return await self._in_looker(byte_count, self._isolation.run, byte_count, inspect, file, limits)

        return await self._survived(await self.digest(file), attempt)

    async def _survived(self, digest: bytes, attempt: Callable[[], Awaitable[T]]) -> T | Damage:
        """What came of an attempt that ended no process."""
        while not self._strikes.is_out(digest):
            try:
                return await attempt()
            except WorkerLostError as lost:
                self._strikes.add(digest, asyncio.get_running_loop().time())
                _log.warning("a worker process was lost at the image %s: %s", digest.hex()[:12], lost)
                if lost.is_late and not self._strikes.is_out(digest):
                    return _LATE
            except WorkerStartError as error:
                raise _cannot_start(error) from error
        return _CONDEMNED

    async def _in_looker(self, byte_count: int, look: Callable[..., T], *args: object) -> T:
        await self._take(self._lookers, byte_count)
        return await self._run(self._lookers, byte_count, look, *args)

    async def _take(self, crew: _Crew, byte_count: int) -> None:
        """An idle thread, then bytes: both or none."""
        await crew.idle.acquire()
        try:
            await self._budget.acquire(byte_count)
        except BaseException:
            crew.idle.release()
            raise

    def _run(self, crew: _Crew, byte_count: int, work: Callable[..., T], *args: object) -> asyncio.Future[T]:
        """Work with what was taken, which goes back when the thread has ended, whoever still waits for it then."""
        self._held_bytes += byte_count
        crew.working += 1
        job = asyncio.get_running_loop().run_in_executor(crew.pool, work, *args)
        job.add_done_callback(lambda _: self._give_back(crew, byte_count, job))
        return asyncio.shield(job)

    def _give_back(self, crew: _Crew, byte_count: int, job: asyncio.Future[T]) -> None:
        if not job.cancelled():
            job.exception()  # looked at, or that of an image whose request has left would go to the log
        crew.working -= 1
        self._held_bytes -= byte_count
        self._budget.release(byte_count)
        crew.idle.release()
        if self._heap_timer is None:
            self._heap_timer = asyncio.get_running_loop().call_later(_HEAP_SECONDS, self._give_back_heap)

    def _give_back_heap(self) -> None:
        self._heap_timer = None
        self._lookers.pool.submit(give_back_free_memory)


def needs_examination(info: ImageInfo, target: Size | None) -> bool:
    """What is encoded anew anyway needs no further reason, but a PNG needs its checksums looked at."""
    return info.format is ImageFormat.PNG or not needs_decode(info, target)


def examine(file: EncodedFile, info: ImageInfo) -> ImageInfo | Verdict:
    """`info` with the reasons that only the whole file shows: they decide how many bytes decoding takes."""
    try:
        return replace(info, why=info.why | late_reasons(file.decode(), info))
    except GatewayError as error:
        return Verdict(damage=Damage.of(error))


def _cannot_start(error: WorkerStartError) -> GatewayError:
    return GatewayError(
        Code.SERVER_IS_OVERLOADED,
        f"The image cannot be decoded now: {error}. Try again later.",
        retry_after_seconds=_START_AGAIN_SECONDS,
    )


def _sha256(payload: memoryview | bytes) -> bytes:
    return hashlib.sha256(payload).digest()
