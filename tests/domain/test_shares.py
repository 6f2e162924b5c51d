"""The store of shares as plain values: what is due to whom, and that no order of calls gives anything twice."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.shares import UNKNOWN, ShareBook, fair_parts
from gateway.domain.shares_held import TTL_MS
from tests.support.sharing import Gateway, call, house, round_of

BEAT_SECONDS = 0.1
WISHES = st.lists(st.integers(0, 500), min_size=1, max_size=6)


class TestFairParts:
    def test_small_wishes_first_and_even_parts_of_the_rest(self):
        assert fair_parts(100, [10, 80, 80]) == [10, 45, 45]

    def test_what_nobody_wants_is_divided_too(self):
        assert fair_parts(100, [10, 0]) == [55, 45]

    @given(st.integers(0, 1_000), WISHES)
    def test_all_of_it_and_nobody_without_what_is_due(self, total, wanted):
        parts = fair_parts(total, wanted)
        assert sum(parts) == total
        even = total // len(wanted)
        assert all(part >= min(wish, even) for part, wish in zip(parts, wanted, strict=True))

    @given(st.integers(0, 1_000), WISHES)
    def test_nobody_has_more_than_he_wants_while_another_lacks(self, total, wanted):
        parts = fair_parts(total, wanted)
        lacking = [part for part, wish in zip(parts, wanted, strict=True) if part < wish]
        for part, wish in zip(parts, wanted, strict=True):
            assert not lacking or (part <= wish and part <= min(lacking) + 1)


def settled_book() -> tuple[ShareBook, float]:
    """Which has waited for those that it might not know."""
    book = ShareBook(TTL_MS)
    watch = house(1, 100)
    now = 0.0
    while now * 1000 <= TTL_MS:
        round_of(book, watch, now)
        now += BEAT_SECONDS
    book.leave("g0")
    return book, now


def settle(book: ShareBook, gateways: list[Gateway], now: float, rounds: int = 4) -> float:
    for _ in range(rounds):
        round_of(book, gateways, now)
        now += BEAT_SECONDS
    return now


class TestStore:
    def test_a_new_store_waits_until_all_could_have_told_what_they_keep(self):
        book = ShareBook(TTL_MS)
        assert book.beat(call("old", 1, keeps=(60, 5, 0), holds=(60, 5, 0), wants=(100, 9, 0)), 0).shares == (60, 5, 0)
        for serial, now in enumerate(range(0, TTL_MS, 500), 1):
            assert book.beat(call("new", serial, wants=(100, 9, 0)), now).shares == (0, 0, 0)

    def test_who_comes_back_with_what_it_keeps_is_believed_whoever_asked_first(self):
        book = ShareBook(TTL_MS)
        book.beat(call("first", 1, wants=(100, 9, 0)), 0)
        for now in range(0, TTL_MS + 1, 500):
            book.beat(call("holder", now + 1, keeps=(70, 5, 0), holds=(70, 5, 0), wants=(70, 5, 0)), now)
        assert book.beat(call("first", 9, wants=(100, 9, 0)), TTL_MS).shares[0] == 30

    def test_a_call_that_comes_late_counts_for_nothing(self):
        book, now = settled_book()
        assert book.beat(call("one", 2, keeps=(50, 0, 0)), int(now * 1000)) is not None
        assert book.beat(call("one", 1, keeps=(10, 0, 0)), int(now * 1000)) is None
        assert book.owners["one"].shares[0] >= 50

    def test_who_is_silent_is_gone_with_its_share(self):
        book, now = settled_book()
        one, other = house(2, 100, now)
        one.line = [10] * 20
        now = settle(book, [one, other], now)
        assert one.held >= 50
        while "g0" in book.owners:
            round_of(book, [other], now)
            now += BEAT_SECONDS
        other.line = [10] * 10
        settle(book, [other], now)
        assert other.held == 100

    def test_who_leaves_in_order_is_gone_at_once(self):
        book, now = settled_book()
        one, other = house(2, 100, now)
        one.line = [10] * 20
        now = settle(book, [one, other], now)
        book.leave("g0")
        other.line = [10] * 10
        settle(book, [other], now)
        assert other.held == 100

    def test_a_store_that_went_back_in_time_gives_nothing_before_all_have_spoken(self):
        book, now = settled_book()
        one, other = house(2, 100, now)
        now = settle(book, [one, other], now)
        one.line = [10] * 10
        copied = ShareBook(TTL_MS)
        copied.__dict__.update({**book.__dict__, "owners": dict(book.owners)})
        now = settle(book, [one, other], now)
        assert one.held == 100
        other.line = [10] * 10
        settle(copied, [one, other], now, rounds=10)
        assert other.held == 0

    def test_nobody_is_gone_because_the_clock_jumped(self):
        book, now = settled_book()
        one, other = house(2, 100, now)
        one.line = [10] * 10
        now = settle(book, [one, other], now)
        other.line = [10] * 10
        held = one.held + other.held
        round_of(book, [other], now + 3_600)
        assert "g0" in book.owners
        assert one.held + other.held == held
        round_of(book, [other], now - 3_600)
        assert "g0" in book.owners

    def test_the_smallest_total_wins_and_unknown_is_no_opinion(self):
        book, now = settled_book()
        at = int(now * 1000)
        book.beat(call("one", 1, totals=(90, UNKNOWN, UNKNOWN)), at)
        answer = book.beat(call("other", 1, totals=(70, 40, UNKNOWN)), at)
        assert answer.totals == (70, 40, UNKNOWN)
        assert answer.gateways == 2

    def test_what_the_others_hold_and_want_is_told(self):
        book, now = settled_book()
        at = int(now * 1000)
        book.beat(call("one", 1, holds=(10, 2, 0), wants=(30, 4, 0), depth=2), at)
        answer = book.beat(call("other", 1), at)
        assert (answer.others_hold, answer.others_want, answer.others_depth) == ((10, 2, 0), (30, 4, 0), 2)


class TestDemand:
    def test_one_that_is_busy_has_all_while_the_others_idle(self):
        book, now = settled_book()
        gateways = house(3, 90, now)
        gateways[0].line = [10] * 20
        settle(book, gateways, now)
        assert gateways[0].held == 90

    @given(
        st.integers(2, 5),
        st.integers(40, 400),
        st.lists(st.integers(1, 8), min_size=1, max_size=5),
        st.integers(0, 4),
    )
    def test_a_gateway_with_work_is_due_an_even_part_whatever_the_others_want(self, count, total, sizes, late):
        """Within a few beats after it was heard and enough has ended: all of it but one request."""
        book, now = settled_book()
        gateways = house(count, total, now)
        newcomer = gateways[late % count]
        for gateway in gateways:
            if gateway is not newcomer:
                gateway.line = sizes * 3 * total
        now = settle(book, gateways, now)
        newcomer.line = sizes * 3 * total
        now = settle(book, gateways, now, rounds=1)
        for gateway in gateways:
            gateway.held = 0  # whatever ran has ended
        settle(book, gateways, now, rounds=6)
        for gateway in gateways:
            assert gateway.held > total // count - 2 * max(sizes), [each.held for each in gateways]
        assert sum(gateway.held for gateway in gateways) <= total

    def test_an_idle_gateway_has_some_at_hand(self):
        book, now = settled_book()
        one, idle = house(2, 100, now)
        one.line = [10] * 3
        settle(book, [one, idle], now)
        idle.line = [30]
        idle.admit()
        assert idle.held == 30


class TestLargeRequests:
    def test_one_that_is_larger_than_an_even_part_has_a_turn(self):
        book, now = settled_book()
        small, large = house(2, 100, now)
        small.line = [10] * 1_000
        now = settle(book, [small, large], now)
        large.line = [80]
        for _ in range(30):
            small.held -= 10 if small.held else 0  # one of them ends, and the next comes in if it may
            now = settle(book, [small, large], now, rounds=1)
            assert small.held + large.held <= 100
            if large.held:
                break
        assert large.held == 80
        settle(book, [small, large], now)
        assert small.held == 20

    def test_one_that_is_larger_than_the_present_ceiling_is_alone(self):
        book, now = settled_book()
        small, large = house(2, 100, now)
        small.line = [10] * 1_000
        now = settle(book, [small, large], now)
        large.line = [130]
        while not large.held:
            assert small.held + large.held <= 100
            small.held -= 10 if small.held else 0
            now = settle(book, [small, large], now, rounds=1)
        assert (small.held, large.held) == (0, 130)
        now = settle(book, [small, large], now)
        assert small.held == 0
        large.held = 0
        settle(book, [small, large], now)
        assert small.held > 0

    def test_turns_go_round(self):
        book, now = settled_book()
        gateways = house(3, 100, now)
        for gateway in gateways:
            gateway.line = [60] * 50
        let_in = dict.fromkeys(range(3), 0)
        for _ in range(120):
            now = settle(book, gateways, now, rounds=2)
            assert sum(gateway.held for gateway in gateways) <= 100
            for number, gateway in enumerate(gateways):
                let_in[number] += gateway.held // 60
                gateway.held = 0
        assert min(let_in.values()) > 10
        assert max(let_in.values()) - min(let_in.values()) <= 2, let_in
