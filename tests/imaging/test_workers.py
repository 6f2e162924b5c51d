"""Each content is decoded once, within the budget, and nothing leaks whoever leaves when."""

import asyncio
import gc
import hashlib
import io
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pybase64
import pytest
from PIL import Image

from gateway.domain.errors import Code, GatewayError
from gateway.domain.geometry import Size
from gateway.domain.image import ImageFormat, ImageInfo, Why
from gateway.imaging import workers as module
from gateway.imaging.judge import needs_decode
from gateway.imaging.limits import ImageLimits, border_bytes, job_bytes, look_bytes
from gateway.imaging.probe import probe
from gateway.imaging.verdicts import Verdict
from gateway.imaging.workers import ImageWorkers
from gateway.wire.encoded_file import EncodedFile
from tests.support.isolation import InThisProcess
from tests.support.pictures import encoded, picture

PARAM = "messages[0].content[0].image_url.url"
SMALL = Size(28, 28)
PLAIN = encoded(picture(64, 48), "JPEG")
TURNED = encoded(picture(64, 48), "JPEG", orientation=6)
DAMAGED = encoded(picture(640, 480), "JPEG")[:4000]
LARGE = encoded(picture(900, 700, seed=3), compress_level=0)


class Budget:
    """Lets `open_places` jobs pass; others wait until one is given back or `let_in` is called."""

    def __init__(self, open_places: int = 100) -> None:
        self.places = asyncio.Semaphore(open_places)
        self.held: list[int] = []

    async def acquire(self, byte_count: int) -> None:
        await self.places.acquire()
        self.held.append(byte_count)

    def release(self, byte_count: int) -> None:
        self.held.remove(byte_count)
        self.places.release()


class Gate:
    """Stands in for `judge`: holds the thread until opened, then judges."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.judged = 0
        self.entered = threading.Semaphore(0)
        self.opened = threading.Event()
        self._judge = module.judge
        monkeypatch.setattr(module, "judge", self)

    def __call__(self, file: EncodedFile, info: ImageInfo, target: Size | None) -> Verdict:
        self.judged += 1
        self.entered.release()
        assert self.opened.wait(10)
        return self._judge(file, info, target)

    async def wait_until_entered(self) -> None:
        assert await asyncio.to_thread(self.entered.acquire, timeout=10)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    return Gate(monkeypatch)


@asynccontextmanager
async def running(budget: Budget | None = None, *, threads: int = 2, **options: object) -> AsyncIterator[ImageWorkers]:
    images = ImageWorkers(
        threads=threads,
        decode_budget=budget or Budget(),
        **{"isolation": InThisProcess(), "cache_bytes": 1 << 20, **options},
    )
    yield images
    await images.close()
    assert images.statistics().decode_bytes_held == 0
    assert budget is None or budget.held == []


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not is_so():  # noqa: ASYNC110 - the workers promise statistics, not events
            await asyncio.sleep(0.001)


def prepare(images: ImageWorkers, file: bytes, target: Size | None = None, param: str = PARAM):
    payload = EncodedFile(pybase64.b64encode(file))
    return images.prepare(payload, probe(payload, ImageLimits(), param), target, param)


def shown(prepared) -> Image.Image:
    return Image.open(io.BytesIO(pybase64.b64decode(prepared.base64)))


async def test_a_plain_picture_goes_on_as_it_came():
    async with running() as images:
        assert await prepare(images, PLAIN) is None
        assert await prepare(images, PLAIN, Size(64, 48)) is None
        assert (images.statistics().misses, images.statistics().hits) == (1, 1)


async def test_a_picture_is_normalised_and_resized():
    async with running() as images:
        turned = await prepare(images, TURNED)
        small = await prepare(images, TURNED, SMALL)

    assert shown(turned).size == (48, 64)
    assert turned.why == {Why.ORIENTATION}
    assert shown(small).size == (28, 28)
    assert small.why == {Why.ORIENTATION, Why.RESIZE}
    assert small.media_type == "image/jpeg"
    assert small.file_bytes == len(pybase64.b64decode(small.base64))


async def test_what_only_the_whole_file_shows_is_acted_on():
    async with running() as images:
        changed = await prepare(images, PLAIN + b"PK\x03\x04")

    assert changed.why == {Why.TRAILING_BYTES}


async def test_the_second_time_costs_nothing():
    async with running() as images:
        first = await prepare(images, LARGE, SMALL)
        assert await prepare(images, LARGE, SMALL) is first
        assert images.statistics().hits == 1
        assert images.statistics().cached_verdicts == 1
        assert images.statistics().cached_bytes > len(first.base64)


async def test_damage_is_remembered_and_told_about_the_present_part():
    async with running() as images:
        for param in ("messages[0].content[0].image_url.url", "messages[4].content[1].image_url.url"):
            with pytest.raises(GatewayError) as caught:
                await prepare(images, DAMAGED, param=param)
            assert caught.value.code is Code.IMAGE_PARSE_ERROR
            assert caught.value.param == param
        assert (images.statistics().misses, images.statistics().hits) == (1, 1)


async def test_a_changed_png_has_its_checksums_looked_at_too():
    broken = bytearray(encoded(picture(64, 48)))
    broken[-13] ^= 1
    async with running() as images:
        with pytest.raises(GatewayError, match="checksum"):
            await prepare(images, bytes(broken), SMALL)


async def test_damage_seen_before_decoding_is_remembered_too():
    broken = bytearray(encoded(picture(64, 48)))
    broken[broken.index(b"IDAT") + 9] ^= 1
    async with running() as images:
        for _ in range(2):
            with pytest.raises(GatewayError, match="checksum"):
                await prepare(images, bytes(broken))
        assert images.statistics().hits == 1


async def test_damaged_base64_behind_the_header_is_told_as_such():
    payload = bytearray(pybase64.b64encode(encoded(picture(900, 700), "JPEG")))
    payload[-400] = ord("!")
    file = EncodedFile(bytes(payload))
    async with running() as images:
        with pytest.raises(GatewayError) as caught:
            await images.prepare(file, probe(file, ImageLimits(), PARAM), SMALL, PARAM)
    assert caught.value.code is Code.INVALID_BASE64_IMAGE


async def test_header_mode_decodes_only_what_changes():
    async with running(verify="header") as images:
        assert await prepare(images, DAMAGED) is None
        assert images.statistics().misses == 0
        assert shown(await prepare(images, TURNED)).size == (48, 64)


def test_needs_decode():
    info = probe(EncodedFile(pybase64.b64encode(PLAIN)), ImageLimits(), PARAM)
    turned = probe(EncodedFile(pybase64.b64encode(TURNED)), ImageLimits(), PARAM)

    assert not needs_decode(info, None)
    assert not needs_decode(info, info.size)
    assert needs_decode(info, SMALL)
    assert needs_decode(turned, None)


async def test_a_picture_that_comes_twice_at_once_is_decoded_once(gate):
    async with running() as images:
        both = [asyncio.create_task(prepare(images, PLAIN, SMALL)) for _ in range(2)]
        await gate.wait_until_entered()
        await until(lambda: images.statistics().shared == 1)
        gate.opened.set()
        first, second = await asyncio.gather(*both)

    assert first is second
    assert gate.judged == 1


async def test_one_that_leaves_does_not_disturb_the_other(gate):
    budget = Budget()
    async with running(budget) as images:
        leaver, stayer = (asyncio.create_task(prepare(images, PLAIN, SMALL)) for _ in range(2))
        await gate.wait_until_entered()
        await until(lambda: images.statistics().shared == 1)
        leaver.cancel()
        await asyncio.wait([leaver])
        gate.opened.set()

        assert shown(await stayer).size == (28, 28)
    assert leaver.cancelled()


async def test_bytes_go_back_only_when_the_thread_has_ended(gate):
    budget = Budget()
    async with running(budget) as images:
        request = asyncio.create_task(prepare(images, PLAIN, SMALL))
        await gate.wait_until_entered()
        request.cancel()
        await asyncio.wait([request])
        assert budget.held == [images.statistics().decode_bytes_held] != [0]
        assert images.statistics().running_decodes == 1

        gate.opened.set()
        await until(lambda: not budget.held)
        await until(lambda: images.statistics().cached_verdicts == 1)
        assert shown(await prepare(images, PLAIN, SMALL)).size == (28, 28)
    assert gate.judged == 1


async def test_one_that_leaves_while_waiting_for_bytes_takes_none(gate):
    gate.opened.set()
    budget = Budget(open_places=0)
    async with running(budget) as images:
        request = asyncio.create_task(prepare(images, PLAIN, SMALL))
        await until(lambda: images.statistics().waiting_decodes == 1)
        request.cancel()
        await asyncio.wait([request])
        assert images.statistics().waiting_decodes == 0

        budget.places.release()
        assert shown(await prepare(images, PLAIN, SMALL)).size == (28, 28)
    assert gate.judged == 1


async def test_a_newcomer_does_not_join_what_was_dropped():
    budget = Budget(open_places=0)
    async with running(budget) as images:
        leaver = asyncio.create_task(prepare(images, PLAIN, SMALL))
        await until(lambda: images.statistics().waiting_decodes == 1)
        leaver.cancel()
        newcomer = asyncio.create_task(prepare(images, PLAIN, SMALL))
        await asyncio.wait([leaver])
        budget.places.release()

        assert shown(await newcomer).size == (28, 28)


async def test_bytes_are_taken_only_when_a_thread_is_idle(gate):
    budget = Budget()
    async with running(budget, threads=1) as images:
        first = asyncio.create_task(prepare(images, PLAIN, SMALL))
        await gate.wait_until_entered()
        second = asyncio.create_task(prepare(images, TURNED, SMALL))
        await until(lambda: images.statistics().waiting_decodes == 1)
        assert len(budget.held) == 1

        gate.opened.set()
        await asyncio.gather(first, second)
    assert gate.judged == 2


async def test_a_known_picture_does_not_wait_behind_unknown_ones(gate):
    gate.opened.set()
    async with running(threads=1) as images:
        known = await prepare(images, LARGE, SMALL)
        gate.opened.clear()
        unknown = asyncio.create_task(prepare(images, TURNED, SMALL))
        assert await asyncio.to_thread(gate.entered.acquire, timeout=10)
        await gate.wait_until_entered()

        assert await prepare(images, LARGE, SMALL) is known
        gate.opened.set()
        await unknown


async def test_a_budget_that_refuses_leaves_nothing_behind():
    class Refusing(Budget):
        async def acquire(self, byte_count: int) -> None:
            raise GatewayError(Code.RATE_LIMIT_EXCEEDED, "no memory")

    async with running(Refusing(), threads=1) as images:
        for _ in range(3):
            with pytest.raises(GatewayError, match="no memory"):
                await prepare(images, PLAIN, SMALL)
        assert images.statistics().waiting_decodes == 0
        assert images.statistics().cached_verdicts == 0


async def test_many_requests_that_come_and_leave_leak_nothing():
    budget = Budget(open_places=2)
    files = [encoded(picture(80, 60, seed=seed), "JPEG") for seed in range(6)]
    async with running(budget) as images:
        requests = [asyncio.create_task(prepare(images, files[n % 6], SMALL)) for n in range(60)]
        for number, request in enumerate(requests):
            if number % 3:
                request.cancel()
            if number % 5 == 0:
                await asyncio.sleep(0)
        ends = await asyncio.gather(*requests, return_exceptions=True)
        assert all(shown(end).size == (28, 28) for end in ends[::3])
        assert all(isinstance(end, asyncio.CancelledError) for end in ends if not hasattr(end, "base64"))
        await until(lambda: images.statistics().running_decodes + images.statistics().waiting_decodes == 0)


async def test_a_common_header_is_read_without_thread_and_bytes():
    budget = Budget(open_places=0)
    async with running(budget) as images:
        for file in (PLAIN, TURNED, LARGE):
            payload = EncodedFile(pybase64.b64encode(file))
            assert await images.look(payload, ImageLimits(), PARAM) == probe(payload, ImageLimits(), PARAM)


async def test_looking_at_many_images_lets_others_run():
    async with running() as images:
        payload = EncodedFile(pybase64.b64encode(PLAIN))
        turns = []

        async def take_turns(name: str) -> None:
            for _ in range(3):
                await images.look(payload, ImageLimits(), PARAM)
                turns.append(name)

        await asyncio.gather(take_turns("a"), take_turns("b"))
    assert turns == ["a", "b"] * 3


async def test_a_rare_header_is_read_in_a_thread_and_paid_for(monkeypatch):
    seen = []
    budget = Budget()
    bitmap = EncodedFile(pybase64.b64encode(encoded(picture(64, 48), "BMP")))

    def recording(*args):
        seen.append((threading.current_thread().name, list(budget.held)))
        return probe(*args)

    monkeypatch.setattr(module, "probe", recording)
    async with running(budget) as images:
        assert (await images.look(bitmap, ImageLimits(), PARAM)).size == Size(64, 48)
        assert budget.held == []
        with pytest.raises(GatewayError) as caught:
            await images.look(bitmap, ImageLimits(max_pixels=100), PARAM)
    [(thread, held), _] = seen
    assert thread.startswith("look")
    assert held == [look_bytes(ImageFormat.BMP, bitmap.file_bytes)]
    assert (caught.value.code, caught.value.param) == (Code.IMAGE_TOO_LARGE, PARAM)


async def test_one_that_leaves_while_its_header_is_read_gives_the_bytes_back_when_the_thread_ends(monkeypatch):
    entered, opened = threading.Event(), threading.Event()
    budget = Budget()
    bitmap = EncodedFile(pybase64.b64encode(encoded(picture(64, 48), "BMP")))

    def waiting(*args):
        entered.set()
        assert opened.wait(10)
        return probe(*args)

    monkeypatch.setattr(module, "probe", waiting)
    async with running(budget) as images:
        request = asyncio.create_task(images.look(bitmap, ImageLimits(), PARAM))
        assert await asyncio.to_thread(entered.wait, 10)
        request.cancel()
        await asyncio.wait([request])
        assert budget.held == [images.statistics().decode_bytes_held] != [0]
        opened.set()
        await until(lambda: not budget.held)


async def test_an_image_that_is_refused_after_its_request_has_left_is_no_line_in_the_log(monkeypatch, caplog):
    entered, opened = threading.Event(), threading.Event()
    budget = Budget()
    bitmap = EncodedFile(pybase64.b64encode(encoded(picture(64, 48), "BMP")))

    def refusing(*args):
        entered.set()
        assert opened.wait(10)
        raise GatewayError(Code.IMAGE_TOO_LARGE, "too large")

    monkeypatch.setattr(module, "probe", refusing)
    async with running(budget) as images:
        request = asyncio.create_task(images.look(bitmap, ImageLimits(), PARAM))
        assert await asyncio.to_thread(entered.wait, 10)
        request.cancel()
        await asyncio.wait([request])
        opened.set()
        await until(lambda: not budget.held)
    del request
    gc.collect()
    assert not caplog.records


async def test_what_decoding_left_in_the_heap_is_given_back_once_in_a_while(monkeypatch):
    given_back = threading.Semaphore(0)
    monkeypatch.setattr(module, "give_back_free_memory", given_back.release)
    monkeypatch.setattr(module, "_HEAP_SECONDS", 0.0)
    async with running() as images:
        for file in (PLAIN, TURNED):
            await prepare(images, file, SMALL)
            assert await asyncio.to_thread(given_back.acquire, timeout=10)


async def test_the_look_at_a_whole_file_is_paid_for_before_the_decode():
    class Recording(Budget):
        asked: tuple[int, ...] = ()

        async def acquire(self, byte_count: int) -> None:
            self.asked += (byte_count,)
            await super().acquire(byte_count)

    budget = Recording()
    async with running(budget, threads=1) as images:
        await prepare(images, PLAIN)
        await prepare(images, TURNED)
    plain, turned = (probe(EncodedFile(pybase64.b64encode(file)), ImageLimits(), PARAM) for file in (PLAIN, TURNED))
    assert budget.asked == (
        look_bytes(plain.format, plain.file_bytes),
        job_bytes(plain, None) + border_bytes(plain.file_bytes),
        job_bytes(turned, turned.size) + border_bytes(turned.file_bytes),
    )


async def test_a_digest_that_is_known_is_not_made_again(monkeypatch):
    async with running() as images:
        for file in (PLAIN, LARGE):
            payload = EncodedFile(pybase64.b64encode(file))
            digest = await images.digest(payload)
            assert digest == hashlib.sha256(payload.payload).digest()
            info = probe(payload, ImageLimits(), PARAM)
            first = await images.prepare(payload, info, SMALL, PARAM)
            with monkeypatch.context() as patch:
                patch.setattr(module, "_sha256", None)
                assert await images.prepare(payload, info, SMALL, PARAM, digest) is first
        assert (images.statistics().misses, images.statistics().hits) == (2, 2)
