"""Gateways that come, go, die, lose calls and answers, before a store that is emptied and whose clock jumps: whatever
the order, together they never have more than there is. The script in a real Redis answers each call as its
specification does.
"""

import dataclasses
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from gateway.domain.quantities import Amounts
from gateway.domain.shares import Answer, Call, ShareBook
from gateway.domain.shares_held import LEASE_SECONDS, TTL_MS, Share
from gateway.ledger.redis_store import answer_of, arguments_of, script_text
from tests.support.redis_server import RedisServer, running_redis
from tests.support.sharing import Gateway

TOTAL = 100
BEAT_SECONDS = 0.25
MOST_GATEWAYS = 4
TIME = "redis.call('TIME')"


@dataclasses.dataclass
class Peer(Gateway):
    """`late` is a call of it that is still on its way; `static` what it could come to use while it was cut off."""

    late: Call | None = None
    is_cut: bool = False
    outside: int = 0

    @property
    def used(self) -> int:
        return max(self.held, self.share.capacity(0) or 0)


class Sharing(RuleBasedStateMachine):
    """All calls go through here, one after the other, as they do in the store."""

    partitions = False

    def __init__(self) -> None:
        super().__init__()
        self.book = ShareBook(TTL_MS)
        self.now = 0.0
        self.clock_ms = 1_000_000
        self.born = 0
        self.peers: list[Peer] = []
        self.was_outside = 0

    def answer(self, call: Call) -> Answer | None:
        return self.book.beat(call, self.clock_ms)

    def forget(self) -> None:
        self.book = ShareBook(TTL_MS)

    def beat(self, peer: Peer, *, is_answered: bool = True) -> None:
        call = peer.asks()
        answer = self.answer(call)
        if is_answered:
            peer.told(answer, self.now)

    @initialize()
    def three_have_been_there_for_a_while(self) -> None:
        for _ in range(3):
            self.a_gateway_starts()
        self.time_passes(12)

    @precondition(lambda self: len(self.peers) < MOST_GATEWAYS)
    @rule()
    def a_gateway_starts(self) -> None:
        peer = Peer(Share(f"g{self.born}", self.now, MOST_GATEWAYS))
        peer.share.set_total(0, TOTAL)
        self.born += 1
        self.peers.append(peer)

    @precondition(lambda self: self.peers)
    @rule(which=st.integers(0, 9), is_killed=st.booleans())
    def a_gateway_ends(self, which: int, *, is_killed: bool) -> None:
        peer = self.peers.pop(which % len(self.peers))
        if not is_killed:
            self.book_leaves(peer.share.owner)

    def book_leaves(self, owner: str) -> None:
        self.book.leave(owner)

    @precondition(lambda self: self.peers)
    @rule(which=st.integers(0, 9), sizes=st.lists(st.integers(1, 130), min_size=1, max_size=4))
    def requests_come(self, which: int, sizes: list[int]) -> None:
        peer = self.peers[which % len(self.peers)]
        peer.line += sizes
        peer.admit()

    @precondition(lambda self: self.peers)
    @rule(which=st.integers(0, 9), share=st.sampled_from([0.3, 1.0]))
    def requests_end(self, which: int, share: float) -> None:
        peer = self.peers[which % len(self.peers)]
        peer.held -= int(peer.held * share)
        peer.admit()

    @precondition(lambda self: self.peers)
    @rule(which=st.integers(0, 9), is_answered=st.booleans())
    def one_calls(self, which: int, *, is_answered: bool) -> None:
        peer = self.peers[which % len(self.peers)]
        if not peer.is_cut:
            self.beat(peer, is_answered=is_answered)

    @precondition(lambda self: self.peers)
    @rule(which=st.integers(0, 9))
    def a_call_is_held_up(self, which: int) -> None:
        peer = self.peers[which % len(self.peers)]
        peer.late = peer.late or peer.asks()

    @precondition(lambda self: any(peer.late for peer in self.peers))
    @rule()
    def calls_that_were_held_up_arrive(self) -> None:
        for peer in self.peers:
            if peer.late is not None and not peer.is_cut:
                self.answer(peer.late)
                peer.late = None

    @rule(beats=st.integers(1, 12))
    def time_passes(self, beats: int) -> None:
        for _ in range(beats):
            self.now += BEAT_SECONDS
            self.clock_ms += int(BEAT_SECONDS * 1000)
            for peer in self.peers:
                if peer.is_cut:
                    self.fails(peer)
                else:
                    self.beat(peer)

    def fails(self, peer: Peer) -> None:
        peer.share.look(self.now)
        peer.admit()

    @rule()
    def the_store_is_emptied(self) -> None:
        self.forget()

    @rule(seconds=st.sampled_from([-3600, -1, 1.5, 3600]))
    def the_clock_jumps(self, seconds: float) -> None:
        self.clock_ms = max(0, self.clock_ms + int(seconds * 1000))

    @precondition(lambda self: self.partitions and self.peers)
    @rule(which=st.integers(0, 9))
    def one_is_cut_off(self, which: int) -> None:
        self.peers[which % len(self.peers)].is_cut = True

    @precondition(lambda self: any(peer.is_cut for peer in self.peers))
    @rule()
    def all_are_back(self) -> None:
        for peer in self.peers:
            peer.is_cut = False

    @invariant()
    def together_they_have_no_more_than_there_is(self) -> None:
        """But one larger than all there is, which is alone; and what cut-off ones use beside the store."""
        used = sum(peer.used for peer in self.peers)
        alone = [peer for peer in self.peers if peer.held > TOTAL]
        if alone and len([peer for peer in self.peers if peer.used]) == 1:
            return
        cut = [peer for peer in self.peers if peer.is_cut or peer.share.is_cut_off]
        if self.partitions and (cut or self.was_outside):
            # The store does not see what the cut-off ones use: one that is larger than all is alone as far as it knows.
            self.bounded(used, max([TOTAL, *(peer.held for peer in alone)]))
        else:
            assert used <= TOTAL, [(peer.used, peer.held) for peer in self.peers]

    def bounded(self, used: int, most: int) -> None:
        """Those that have been cut off, each by what it has or may have; forgotten once all are within the total."""
        for peer in self.peers:
            if peer.is_cut or peer.share.is_cut_off:
                peer.outside = max(peer.outside, peer.used)
        self.was_outside = sum(peer.outside for peer in self.peers)
        assert used <= most + self.was_outside
        if used <= TOTAL and not any(peer.is_cut or peer.share.is_cut_off for peer in self.peers):
            self.was_outside = 0
            for peer in self.peers:
                peer.outside = 0

    def teardown(self) -> None:
        """When all are heard and what runs ends, everything is used again, and nothing more."""
        for peer in self.peers:
            peer.is_cut = False
        for _ in range(20):
            self.time_passes(1)
        for peer in self.peers:
            peer.held, peer.line = 0, [1] * (4 * TOTAL)
        self.time_passes(2)
        for peer in self.peers:
            peer.held = 0
        for _ in range(10):
            self.time_passes(1)
        assert not self.peers or sum(peer.held for peer in self.peers) == TOTAL
        even = TOTAL // max(1, len(self.peers))
        assert all(peer.held >= even for peer in self.peers)


QUICK = settings(max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def test_without_partitions_never_more_than_the_total():
    run_state_machine_as_test(Sharing, settings=QUICK)


class PartedSharing(Sharing):
    partitions = True


def test_with_partitions_never_more_than_the_total_and_what_the_cut_off_have():
    run_state_machine_as_test(PartedSharing, settings=QUICK)


def test_a_gateway_has_come_down_before_the_store_gives_its_share_away():
    from gateway.ledger.redis_store import CALL_SECONDS  # noqa: PLC0415

    longest_beat_seconds = 0.25
    assert LEASE_SECONDS + CALL_SECONDS + longest_beat_seconds < TTL_MS / 1000


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[RedisServer]:
    with running_redis(tmp_path_factory.mktemp("redis")) as running:
        yield running


def at_the_time_of_the_test(text: str) -> str:
    assert text.count(TIME) == 1
    return text.replace(TIME, "redis.call('LRANGE', 'now', 0, 1)")


@pytest.mark.system("redis-server")
def test_the_script_answers_as_its_specification_does(server):
    redis = pytest.importorskip("redis")
    client = redis.Redis(port=server.port)
    script = client.register_script(at_the_time_of_the_test(script_text()))
    compared = 0

    class Mirrored(PartedSharing):
        def __init__(self) -> None:
            super().__init__()
            client.delete("shares")

        def answer(self, call: Call) -> Answer | None:
            nonlocal compared
            expected = super().answer(call)
            client.delete("now")
            client.rpush("now", self.clock_ms // 1000, self.clock_ms % 1000 * 1000)
            numbers = script(keys=["shares"], args=arguments_of(call, TTL_MS))
            assert (answer_of(numbers) if numbers else None) == expected
            compared += 1
            return expected

        def book_leaves(self, owner: str) -> None:
            super().book_leaves(owner)
            script(keys=["shares"], args=[owner])

        def forget(self) -> None:
            super().forget()
            client.flushall()

    run_state_machine_as_test(Mirrored, settings=settings(QUICK, max_examples=30))
    assert compared > 500
    assert client.ttl("shares") > 0 or not client.exists("shares")
    client.close()


@pytest.mark.system("redis-server")
def test_the_script_goes_by_the_clock_of_redis(server):
    redis = pytest.importorskip("redis")
    client = redis.Redis(port=server.port)
    asked = Share("one", 0.0, 1).call(Amounts(), Gateway(Share("one", 0.0, 1)).waiting())
    seconds, _ = client.time()
    numbers = client.register_script(script_text())(keys=["clock"], args=arguments_of(asked, TTL_MS))
    assert 0 <= numbers[0] - seconds * 1000 < 30_000
    client.close()
