"""Whole fetches from a host on this machine; time is the test's own where it counts."""

import asyncio
import base64

import pytest
from yarl import URL

from gateway.domain.errors import Code, GatewayError
from gateway.fetch.address import AddressRules
from gateway.fetch.cache import FetchCache
from gateway.fetch.encode import encoded_bytes
from gateway.fetch.fetcher import FIRST_BYTES, Fetcher, FetchLimits
from gateway.fetch.turns import Turns
from tests.fetch.conftest import OPEN
from tests.support.live_gateway import until
from tests.support.model_server import Patient
from tests.support.raw_http import Visit, raw_http_server

FILE = bytes(range(256)) * 5
PARAM = "messages[0].content[1].image_url.url"
MOST_BYTES = 4096


class Budget:
    """Counts what is held; `is_full` has no byte for who begins, `room` is what there is to grow by."""

    def __init__(self) -> None:
        self.held = 0
        self.most = 0
        self.room = 1 << 40
        self.is_full = False

    async def begin(self, byte_count: int) -> None:
        if self.is_full:
            raise GatewayError(Code.RATE_LIMIT_EXCEEDED, "no memory")
        self._hold(byte_count)

    def grow(self, byte_count: int) -> None:
        if byte_count > self.room:
            raise GatewayError(Code.RATE_LIMIT_EXCEEDED, "no memory")
        self._hold(byte_count)

    def release(self, *, begun: int, grown: int) -> None:
        assert 0 <= begun + grown <= self.held
        self.held -= begun + grown

    def _hold(self, byte_count: int) -> None:
        self.held += byte_count
        self.most = max(self.most, self.held)


class Bench:
    """A fetcher, a host that answers by `script`, and the bytes that requests have counted as theirs."""

    def __init__(self, fetcher: Fetcher, budget: Budget, cache: FetchCache, host) -> None:
        self.fetcher = fetcher
        self.budget = budget
        self.cache = cache
        self.host = host
        self.now = 100.0
        self.counted: list[int] = []

    def hold(self, byte_count: int) -> None:
        assert self.budget.held >= byte_count or not self.paths, "what a fetch held is let go only after that"
        self.counted.append(byte_count)

    @property
    def paths(self) -> list[str]:
        return [visit.path for visit in self.host.visits]

    async def fetch(self, path: str = "/a.png") -> bytes:
        found = await self.fetcher.fetch(self.host.base_url + path, PARAM, self.counted.append)
        assert found.param == PARAM
        return found.decode()

    async def refusal(self, path: str = "/a.png") -> GatewayError:
        with pytest.raises(GatewayError) as caught:
            await self.fetch(path)
        assert self.budget.held == 0
        return caught.value


@pytest.fixture
async def bench(stack, connect):
    async def bench(
        script,
        *,
        timeout_seconds: float = 5.0,
        cache_bytes: int = 1 << 20,
        per_host: int = 8,
        max_bytes: int = MOST_BYTES,
    ) -> Bench:
        host = await stack.enter_async_context(raw_http_server(script))
        budget, cache = Budget(), FetchCache(cache_bytes)
        rules = AddressRules(OPEN, (URL(host.base_url).port,))
        limits = FetchLimits(max_bytes, timeout_seconds, max_redirects=3)
        turns = Turns(per_host=per_host, in_all=8)
        made: Bench

        def clock() -> float:
            return made.now

        fetcher = Fetcher(await connect(), rules, limits, budget=budget, cache=cache, turns=turns, clock=clock)
        made = Bench(fetcher, budget, cache, host)
        stack.push_async_callback(fetcher.close)
        return made

    return bench


def answering(body: bytes = FILE, *headers: str, status: str = "200 OK"):
    async def script(visit: Visit) -> None:
        await visit.answer(status, body, *headers)

    return script


class TestWhatComes:
    async def test_a_picture_is_base64_as_it_will_be_sent(self, bench):
        host = await bench(answering())
        assert await host.fetch() == FILE
        assert host.counted == [len(base64.b64encode(FILE))]
        assert host.budget.held == 0
        assert host.budget.most == FIRST_BYTES
        assert host.fetcher.statistics().fetched == 1

    @pytest.mark.parametrize("says_how_long", [True, False])
    async def test_a_large_one_takes_what_it_needs_when_that_is_known(self, bench, says_how_long):
        file = bytes(3_000_000)
        length = f"content-length: {len(file)}\r\n" if says_how_long else ""

        async def script(visit: Visit) -> None:
            await visit.write(f"HTTP/1.1 200 OK\r\n{length}connection: close\r\n\r\n".encode() + file)
            visit.writer.close()

        host = await bench(script, max_bytes=4_000_000)
        assert await host.fetch() == file
        needed = encoded_bytes(len(file))
        assert needed <= host.budget.most <= needed + (0 if says_how_long else 2 << 20)
        assert host.budget.held == 0

    @pytest.mark.parametrize("says_how_long", [True, False])
    async def test_one_that_there_is_no_room_for_is_given_up_at_once(self, bench, says_how_long):
        length = "content-length: 3000000\r\n" if says_how_long else ""

        async def script(visit: Visit) -> None:
            await visit.write(f"HTTP/1.1 200 OK\r\n{length}\r\n".encode() + bytes(500_000))
            await visit.reader.read()

        host = await bench(script, max_bytes=4_000_000)
        host.budget.room = 1_000_000
        assert (await host.refusal()).status == 429
        assert host.fetcher.statistics().failed == 1

    async def test_one_that_comes_in_chunks_is_whole_too(self, bench):
        async def in_chunks(visit: Visit) -> None:
            await visit.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
            for start in range(0, len(FILE), 100):
                await visit.chunk(FILE[start : start + 100])
            await visit.write(b"0\r\n\r\n")

        host = await bench(in_chunks)
        assert await host.fetch() == FILE
        assert host.budget.held == 0

    @pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
    async def test_redirects_are_followed(self, bench, status):
        async def script(visit: Visit) -> None:
            if visit.path == "/a.png":
                await visit.answer(f"{status} Elsewhere", b"away", "location: /b.png")
            else:
                await visit.answer("200 OK", FILE)

        host = await bench(script)
        assert await host.fetch() == FILE
        assert host.paths == ["/a.png", "/b.png"]


class TestWhatFails:
    @pytest.mark.parametrize("status", ["401 No", "404 Not Found", "429 Later", "503 Busy", "203 Other", "206 Part"])
    async def test_the_hosts_status_is_told(self, bench, status):
        error = await (await bench(answering(b"no", status=status))).refusal()
        assert (error.code, error.status, error.param) == (Code.FAILED_TO_DOWNLOAD_IMAGE, 400, PARAM)
        assert f"status {status[:3]}" in error.message
        assert PARAM in error.message

    async def test_a_redirect_that_no_parser_reads_is_refused(self, bench):
        host = await bench(answering(b"", "location: http://[]@", status="302 Found"))
        assert (await host.refusal()).code is Code.INVALID_IMAGE_URL

    async def test_a_redirect_without_a_place_is_a_status_like_others(self, bench):
        assert "status 302" in (await (await bench(answering(b"", status="302 Found"))).refusal()).message

    async def test_an_answer_to_a_question_that_nobody_asked(self, bench):
        assert "status 304" in (await (await bench(answering(b"", status="304 Not Modified"))).refusal()).message

    async def test_redirects_in_a_ring_end(self, bench):
        host = await bench(answering(b"", "location: /a.png", status="302 Found"))
        error = await host.refusal()
        assert (error.code, len(host.paths)) == (Code.FAILED_TO_DOWNLOAD_IMAGE, 4)
        assert "more than 3 times" in error.message

    @pytest.mark.parametrize("location", ["http://10.0.0.5/x.png", "http://[::1]/", "file:///etc/passwd"])
    async def test_a_redirect_inside_is_an_address_that_is_not_asked(self, bench, location):
        host = await bench(answering(b"", f"location: {location}", status="302 Found"))
        assert (await host.refusal()).code is Code.INVALID_IMAGE_URL
        assert host.fetcher.statistics().refused == 1

    async def test_one_that_says_that_it_is_too_large_is_not_read(self, bench):
        async def script(visit: Visit) -> None:
            await visit.write(b"HTTP/1.1 200 OK\r\ncontent-length: 10737418240\r\n\r\nx")
            await visit.reader.read()

        error = await (await bench(script)).refusal()
        assert (error.code, error.status) == (Code.IMAGE_TOO_LARGE, 400)
        assert "10737418240" in error.message
        assert str(MOST_BYTES) in error.message

    async def test_one_that_does_not_say_so_is_read_no_further_than_the_limit(self, bench):
        async def script(visit: Visit) -> None:
            await visit.write(b"HTTP/1.1 200 OK\r\n\r\n")
            while True:
                await visit.write(bytes(1000))

        error = await (await bench(script)).refusal()
        assert error.code is Code.IMAGE_TOO_LARGE
        assert f"more than {MOST_BYTES}" in error.message

    async def test_one_that_is_compressed_is_not_guessed_at(self, bench):
        error = await (await bench(answering(FILE, "content-encoding: gzip"))).refusal()
        assert "compressed" in error.message

    async def test_an_empty_file(self, bench):
        assert "empty" in (await (await bench(answering(b""))).refusal()).message

    @pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\nshort", b"what?\r\n\r\n"])
    async def test_a_host_that_breaks_off_or_speaks_something_else(self, bench, head):
        async def script(visit: Visit) -> None:
            await visit.write(head)
            visit.writer.close()

        assert (await (await bench(script)).refusal()).code is Code.FAILED_TO_DOWNLOAD_IMAGE

    async def test_a_host_that_takes_its_time_has_so_much_of_it_in_all(self, bench):
        async def drip(visit: Visit) -> None:
            await visit.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")
            while True:
                await visit.write(b"x")
                await asyncio.sleep(0.01)

        error = await (await bench(drip, timeout_seconds=0.1)).refusal()
        assert error.code is Code.FAILED_TO_DOWNLOAD_IMAGE
        assert "0.1 seconds" in error.message

    async def test_without_memory_nobody_is_asked(self, bench):
        host = await bench(answering())
        host.budget.is_full = True
        assert (await host.refusal()).status == 429
        assert host.paths == []
        host.budget.is_full = False
        assert await host.fetch() == FILE

    async def test_an_address_that_is_not_asked_costs_nothing(self, bench):
        host = await bench(answering())
        with pytest.raises(GatewayError) as caught:
            await host.fetcher.fetch("http://10.0.0.5/x.png", PARAM, host.counted.append)
        assert caught.value.code is Code.INVALID_IMAGE_URL
        assert (host.budget.most, host.fetcher.statistics().refused) == (0, 1)


class TestTogether:
    async def test_those_who_want_the_same_address_at_once_share_one_fetch(self, bench):
        patient = Patient(answering())
        host = await bench(patient)
        fetching = [asyncio.create_task(host.fetch()) for _ in range(5)]
        await until(lambda: host.paths == ["/a.png"])
        patient.may_answer.set()
        assert await asyncio.gather(*fetching) == [FILE] * 5
        assert host.paths == ["/a.png"]
        assert len(host.counted) == 5
        assert (host.budget.held, host.fetcher.statistics().shared) == (0, 4)

    async def test_one_that_leaves_does_not_disturb_the_others_and_the_last_ends_the_fetch(self, bench):
        host = await bench(Patient())
        first, second = (asyncio.create_task(host.fetch()) for _ in range(2))
        await until(lambda: host.paths == ["/a.png"])
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        assert host.budget.held > 0
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        await until(lambda: host.budget.held == 0)
        assert host.counted == []

    async def test_all_are_told_of_the_failure_each_about_its_own_part(self, bench):
        patient = Patient(answering(b"", status="404 Gone"))
        host = await bench(patient)
        address = f"{host.host.base_url}/a.png"
        fetching = [asyncio.create_task(host.fetcher.fetch(address, name, host.counted.append)) for name in "ab"]
        await until(lambda: host.paths == ["/a.png"])
        patient.may_answer.set()
        errors = await asyncio.gather(*fetching, return_exceptions=True)
        assert [error.param for error in errors] == ["a", "b"]
        assert host.budget.held == 0

    async def test_a_host_has_so_many_at_once_and_waiting_is_not_its_time(self, bench):
        patient = Patient(answering(), then=answering())
        host = await bench(patient, per_host=1)
        first = asyncio.create_task(host.fetch("/a.png"))
        await until(lambda: host.paths == ["/a.png"])
        second = asyncio.create_task(host.fetch("/b.png"))
        await asyncio.sleep(0.02)
        assert host.paths == ["/a.png"]
        patient.may_answer.set()
        assert await asyncio.gather(first, second) == [FILE, FILE]

    async def test_the_end_of_the_process_waits_for_no_host(self, bench):
        host = await bench(Patient())
        fetching = asyncio.create_task(host.fetch())
        await until(lambda: host.paths == ["/a.png"])
        await host.fetcher.close()
        await asyncio.gather(fetching, return_exceptions=True)
        assert fetching.cancelled()
        assert host.budget.held == 0


class TestAgain:
    async def test_a_fresh_picture_is_not_asked_for_and_a_stale_one_is_asked_about(self, bench):
        async def script(visit: Visit) -> None:
            if visit.header("if-none-match") == ['"1"']:
                await visit.answer("304 Not Modified", b"", "cache-control: max-age=10")
            else:
                await visit.answer("200 OK", FILE, "cache-control: max-age=60", 'etag: "1"')

        host = await bench(script)
        for now, asked in ((100, 1), (159, 1), (161, 2), (170, 2), (172, 3)):
            host.now = now
            assert await host.fetch() == FILE
            assert len(host.paths) == asked
        assert len(host.counted) == 5
        counts = host.fetcher.statistics()
        assert (counts.fetched, counts.cached, counts.not_modified) == (1, 2, 2)
        assert host.budget.held == 0

    async def test_a_picture_that_changed_takes_the_place_of_the_old_one(self, bench):
        versions = iter([b"one", b"two"])

        async def script(visit: Visit) -> None:
            body = next(versions)
            await visit.answer("200 OK", body, f'etag: "{body.decode()}"')

        host = await bench(script)
        assert [await host.fetch(), await host.fetch()] == [b"one", b"two"]
        assert len(host.cache) == 1

    async def test_a_validator_is_shown_only_where_it_came_from(self, bench):
        async def script(visit: Visit) -> None:
            if visit.path == "/a.png":
                await visit.answer("302 Found", b"", "location: /b.png")
            elif visit.header("if-none-match"):
                await visit.answer("304 Not Modified", b"")
            else:
                await visit.answer("200 OK", FILE, 'etag: "1"')

        host = await bench(script)
        assert [await host.fetch(), await host.fetch()] == [FILE, FILE]
        asked = [(visit.path, visit.header("if-none-match")) for visit in host.host.visits]
        assert asked == [("/a.png", []), ("/b.png", []), ("/a.png", []), ("/b.png", ['"1"'])]

    async def test_what_may_no_longer_be_kept_is_let_go(self, bench):
        async def script(visit: Visit) -> None:
            if visit.header("if-none-match"):
                await visit.answer("304 Not Modified", b"", "cache-control: no-store")
            else:
                await visit.answer("200 OK", FILE, 'etag: "1"')

        host = await bench(script)
        assert [await host.fetch(), await host.fetch()] == [FILE, FILE]
        assert len(host.cache) == 0

    async def test_an_odd_validator_is_not_sent_back(self, bench):
        host = await bench(answering(FILE, "cache-control: max-age=0", 'etag: "\x01\x7f"'))
        assert [await host.fetch(), await host.fetch()] == [FILE, FILE]
        assert len(host.cache) == 0

    async def test_what_may_not_be_kept_is_fetched_each_time(self, bench):
        host = await bench(answering(FILE, "cache-control: no-store", 'etag: "1"'))
        assert [await host.fetch(), await host.fetch()] == [FILE, FILE]
        assert (len(host.paths), len(host.cache)) == (2, 0)
