"""vLLM's way from image URLs to processed pictures: decode, then one processing thread for the whole server.

A request in here is in none of the engine's gauges. That is what vLLM does, and why a gateway must count for itself.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from gateway.emulator.content import ImageRef, VideoRef
from gateway.emulator.errors import bad_request
from gateway.emulator.pictures import Picture, PictureCache, load, load_video


class Preprocessor:
    """Turns references into pictures, at `pixels_per_second` and strictly one request after the other."""

    def __init__(self, pixels_per_second: float, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._pixels_per_second = pixels_per_second
        self._sleep = sleep
        self._decoder = ThreadPoolExecutor(max_workers=1, thread_name_prefix="decode")
        self._thread_is_free = asyncio.Lock()
        self._jobs: set[asyncio.Task[None]] = set()
        self.cache = PictureCache()

    async def decode(self, refs: Sequence[ImageRef]) -> list[Picture | None]:
        """The pictures behind the references; None where a uuid stands for the data. Raises ApiError."""
        return [await self._decode(ref, place) for place, ref in enumerate(refs)]

    async def process(self, refs: Sequence[ImageRef], decoded: Sequence[Picture | None]) -> list[Picture]:
        """Spend the time that new pictures take, and settle which picture each reference means. Raises ApiError."""
        pictures, new_pixels = [], 0
        for place, (ref, picture) in enumerate(zip(refs, decoded, strict=True)):
            key = ref.uuid.encode() if ref.uuid is not None else picture.identity if picture else b""
            known = self.cache.look_up(key)
            if known is None:
                if picture is None:
                    raise bad_request(f"Cache miss for image at index {place} but data is not provided.")
                known = replace(picture, identity=key)
                new_pixels += known.pixels
                self.cache.keep(key, known)
            pictures.append(known)
        await self._work_on(new_pixels)
        return pictures

    def close(self) -> None:
        self._decoder.shutdown(wait=True, cancel_futures=True)

    async def _decode(self, ref: ImageRef, place: int) -> Picture | None:
        if not ref.url and ref.uuid is not None:
            return None
        if not ref.url:
            raise bad_request(
                f"multi_modal_data['image'][{place}] is empty but multi_modal_uuids['image'][{place}] is missing."
            )
        work = load_video if isinstance(ref, VideoRef) else load
        return await asyncio.get_running_loop().run_in_executor(self._decoder, work, ref.url)

    async def _work_on(self, pixels: int) -> None:
        """Wait for the thread and its work.

        A client that leaves while queued takes its job along; once the work has begun it runs to its end.
        """
        seconds = pixels / self._pixels_per_second
        if not seconds:
            return
        await self._thread_is_free.acquire()
        job = asyncio.get_running_loop().create_task(self._work(seconds))
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)
        await asyncio.shield(job)

    async def _work(self, seconds: float) -> None:
        try:
            await self._sleep(seconds)
        finally:
            self._thread_is_free.release()
