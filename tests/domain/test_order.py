import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.domain.order import AGED_EVERY, AGING_SECONDS, Line
from gateway.domain.priority import Priority
from gateway.domain.quantities import Amounts
from gateway.domain.ticket import SMALL_BODY_BYTES, Newcomer, Ticket

TEXT, IMAGE = Amounts(1, 1), Amounts(1, 1, 256, 1_000_000)


def ticket(cost=10, *, tenant="", amounts=TEXT, arrived=0.0, priority=Priority.DEFAULT, weight=1.0) -> Ticket:
    return Ticket(amounts, arrived, arrived + 30.0, cost_tokens=cost, tenant=tenant, priority=priority, weight=weight)


def line_of(*tickets) -> Line:
    line = Line()
    for each in tickets:
        line.join(each)
    return line


def order(line, *, now=0.0) -> list[Ticket]:
    return list(line.candidates(now))


def flow_of(each) -> tuple[Priority, str, bool]:
    return each.priority, each.tenant, each.is_image


def admit_next(line, *, now=0.0) -> Ticket:
    """As the engine would take whoever is next."""
    ticket = next(line.candidates(now))
    line.admit(ticket, now, in_turn=True)
    return ticket


def served(line, count, *, now=0.0) -> list[str]:
    return [admit_next(line, now=now).tenant for _ in range(count)]


class TestOneFlow:
    def test_first_come_first_served(self):
        tickets = [ticket() for _ in range(5)]
        assert order(line_of(*tickets)) == tickets

    def test_kept_places_are_before_those_that_came_meanwhile_in_the_order_of_their_coming_back(self):
        tickets = [ticket() for _ in range(5)]
        tickets[2].keeps_place = tickets[4].keeps_place = True
        assert order(line_of(*tickets)) == [tickets[index] for index in (2, 4, 0, 1, 3)]

    def test_no_more_than_some_behind_the_head_are_looked_at(self):
        tickets = [ticket() for _ in range(20)]
        assert order(line_of(*tickets)) == tickets[:9]

    def test_leaving_twice_is_an_error_and_changes_nothing(self):
        first, second = ticket(), ticket()
        line = line_of(first, second)
        line.leave(first)
        for leave in (line.leave, lambda gone: line.admit(gone, 0.0, in_turn=True)):
            with pytest.raises(KeyError):
                leave(first)
            assert order(line) == [second]
        line.leave(second)
        with pytest.raises(KeyError):
            line.leave(second)


class TestTurns:
    def test_tenants_take_turns_however_many_wait_of_each(self):
        greedy = [ticket(tenant="greedy") for _ in range(6)]
        polite = [ticket(tenant="polite") for _ in range(2)]
        line = line_of(*greedy, *polite)
        assert served(line, 8) == ["greedy", "polite", "greedy", "polite", *["greedy"] * 4]

    def test_turns_are_charged_in_tokens(self):
        line = line_of(*[ticket(30, tenant="long") for _ in range(3)], *[ticket(10, tenant="short") for _ in range(6)])
        assert served(line, 8) == ["long", "short", "short", "short", "long", "short", "short", "short"]

    def test_a_weight_of_two_is_twice_the_share(self):
        line = line_of(*[ticket(tenant="one") for _ in range(4)], *[ticket(tenant="two", weight=2.0) for _ in range(8)])
        assert served(line, 9).count("two") == 6

    def test_a_text_does_not_wait_behind_a_wall_of_images_of_its_own_tenant(self):
        images = [ticket(1_000, amounts=IMAGE) for _ in range(50)]
        text = ticket(20)
        line = line_of(*images, text)
        assert order(line)[:2] == [images[0], text]
        line.admit(images[0], 0.0, in_turn=True)
        assert admit_next(line) is text

    def test_an_image_does_not_wait_behind_a_wall_of_texts(self):
        image = ticket(1_000, amounts=IMAGE)
        line = line_of(*[ticket(20) for _ in range(50)], image)
        assert order(line)[1] is image

    def test_who_was_served_last_does_not_come_first_by_coming_back(self):
        line = line_of(ticket(tenant="one"), ticket(tenant="two"), ticket(tenant="three"))
        assert served(line, 1) == ["one"]
        line.join(ticket(tenant="one"))
        assert served(line, 3) == ["two", "three", "one"]

    def test_who_was_away_has_saved_nothing_up(self):
        line = line_of(*[ticket(tenant="steady") for _ in range(20)])
        served(line, 10)
        for _ in range(5):
            line.join(ticket(tenant="late"))
        assert served(line, 4) == ["late", "steady", "late", "steady"]

    def test_who_leaves_the_line_owes_nothing(self):
        expensive = ticket(1_000_000, tenant="one")
        line = line_of(expensive, ticket(tenant="two"))
        line.leave(expensive)
        line.join(ticket(tenant="one"))
        assert served(line, 2) == ["two", "one"]

    def test_debts_are_forgotten_with_the_last_waiter(self):
        line = line_of(ticket(1_000_000, tenant="one"))
        served(line, 1)
        line.join(ticket(tenant="one"))
        line.join(ticket(tenant="two"))
        assert served(line, 2) == ["one", "two"]

    def test_of_very_many_debtors_the_oldest_are_forgotten(self):
        line = line_of(*[ticket(tenant=f"tenant {number}") for number in range(1_200)], ticket(tenant="last"))
        served(line, 1_200)
        for number in (1_199, 0):
            line.join(ticket(tenant=f"tenant {number}"))
        assert served(line, 3) == ["last", "tenant 0", "tenant 1199"]


class TestBothLanesOfATenant:
    def test_are_one_share(self):
        both = [ticket(tenant="both", amounts=amounts) for amounts in [TEXT, IMAGE] * 20]
        line = line_of(*both, *[ticket(tenant="texts") for _ in range(40)])
        turns = served(line, 30)
        assert turns.count("both") == pytest.approx(15, abs=1)
        assert {each.is_image for each in order(line) if each.tenant == "both"} == {True, False}

    def test_also_where_they_never_wait_together(self):
        line = line_of(*[ticket(tenant="texts") for _ in range(60)], ticket(tenant="both"))
        turns, amounts = [], IMAGE
        for _ in range(40):
            turns.append(admit_next(line).tenant)
            if turns[-1] == "both":
                line.join(ticket(tenant="both", amounts=amounts))
                amounts = TEXT if amounts is IMAGE else IMAGE
        assert turns.count("both") == pytest.approx(20, abs=2)


class TestTurnsOutOfOrder:
    def test_time_stays_with_the_one_that_was_passed_over(self):
        """Who joins later starts level with it, and it keeps its claim to the turns that it lost."""
        large = ticket(50, tenant="large")
        small = [ticket(10, tenant="small") for _ in range(8)]
        line = line_of(large, ticket(50, tenant="large"), *small)
        for each in small[:5]:
            line.admit(each, 0.0, in_turn=False)
        line.admit(large, 0.0, in_turn=True)
        assert [each.tenant for each in order(line)[:2]] == ["large", "small"]
        assert served(line, 2) == ["large", "small"]

    def test_a_flow_that_waited_for_what_others_do_not_take_has_saved_up_one_turn_at_most(self):
        images = [ticket(100, amounts=IMAGE) for _ in range(5)]
        line = line_of(*images, *[ticket(10) for _ in range(200)])
        for _ in range(100):
            line.admit(next(each for each in order(line) if not each.is_image), 0.0, in_turn=True)
        turns = [admit_next(line).is_image for _ in range(22)]
        assert turns[:3] == [True, True, False]
        assert sum(turns) == 3


class TestClasses:
    def test_the_more_urgent_class_first(self):
        line = line_of(*[ticket(tenant=each.label, priority=each) for each in reversed(Priority)])
        assert served(line, 4) == ["critical", "interactive", "default", "batch"]

    def test_those_behind_the_head_of_a_class_come_before_the_next_class(self):
        batch, first, second = ticket(priority=Priority.BATCH), ticket(), ticket()
        assert order(line_of(batch, first, second)) == [first, second, batch]


class TestAging:
    def test_one_in_four_goes_to_a_flow_that_stands_still(self):
        batch = [ticket(tenant="old", priority=Priority.BATCH) for _ in range(2)]
        line = line_of(*batch, *[ticket(arrived=5.0) for _ in range(20)])
        assert served(line, 8, now=AGING_SECONDS) == [*[""] * 3, "old", *[""] * 3, "old"]

    def test_not_before_ten_seconds(self):
        line = line_of(ticket(tenant="old", priority=Priority.BATCH), *[ticket(arrived=5.0) for _ in range(20)])
        assert served(line, 8, now=9.9) == [""] * 8

    def test_the_turn_is_kept_until_it_is_taken(self):
        old = ticket(priority=Priority.BATCH)
        line = line_of(old, *[ticket(arrived=5.0) for _ in range(20)])
        served(line, 3)
        for _ in range(5):
            first, second, *_ = order(line, now=20.0)
            assert first is old
            line.admit(second, 20.0, in_turn=False)

    def test_its_flow_is_charged_and_time_does_not_pass_those_that_wait(self):
        old = [ticket(100, tenant="old") for _ in range(3)]
        line = line_of(*old, *[ticket(tenant="new", arrived=15.0) for _ in range(30)])
        assert served(line, 1) == ["old"]
        assert served(line, 4, now=20.0) == ["new", "new", "old", "new"]
        line.join(ticket(tenant="late", arrived=20.0))
        assert served(line, 17, now=20.0) == ["late", *["new"] * 16]
        assert served(line, 2, now=20.0) == ["new", "old"]

    def test_not_to_the_tenant_whose_line_is_long_and_moves(self):
        """Its requests are always the oldest, and it had its turns."""
        line = line_of(*[ticket(tenant="greedy") for _ in range(200)])
        turns = []
        for second in range(100):
            for number in range(9):
                line.join(ticket(tenant=f"polite {number}", arrived=float(second)))
            turns += [admit_next(line, now=second + 0.1 * turn).tenant for turn in range(10)]
        assert 95 <= turns.count("greedy") <= 105

    def test_those_that_stand_still_are_helped_in_turns(self):
        batch = [ticket(tenant=tenant, priority=Priority.BATCH) for tenant in [*["greedy"] * 9, "polite", "polite"]]
        line = line_of(*batch, *[ticket(arrived=5.0) for _ in range(40)])
        helped = [tenant for tenant in served(line, 20, now=20.0) if tenant]
        assert helped == ["greedy", "polite", "greedy", "polite", "greedy"]

    def test_nor_does_it_stand_still_for_the_debts_of_one_large_request(self):
        """Tenants that come once have none, so time would never get there."""
        line = line_of(ticket(100_000, tenant="large"), ticket(10, tenant="large"))
        served(line, 1)
        turns = []
        for second in range(1, 20):
            for number in range(3):
                line.join(ticket(tenant=f"{second} {number}", arrived=float(second)))
            turns += served(line, 3, now=float(second))
        assert turns.index("large") == 3 * AGING_SECONDS - 3

    def test_whatever_came_and_moved_before(self):
        """That no lane stands still is remembered for as long as it is certain, and no longer."""
        line = line_of(*[ticket() for _ in range(8)])
        served(line, 4)
        line.join(ticket(tenant="old", priority=Priority.BATCH, arrived=1.0))
        assert served(line, 1, now=1.0) == [""]
        assert served(line, 1, now=10.9) == [""]
        assert served(line, 1, now=11.0) == ["old"]

    def test_nor_is_a_class_that_moved_until_now_forgotten(self):
        batch = [ticket(tenant="batch", priority=Priority.BATCH) for _ in range(4)]
        line = line_of(*batch)
        assert served(line, 3, now=5.0) == ["batch"] * 3
        for _ in range(9):
            line.join(ticket(arrived=5.0))
        assert served(line, 4, now=14.9) == [""] * 4
        assert served(line, 1, now=15.0) == ["batch"]

    def test_when_nobody_is_left_it_is_nobodys_turn(self):
        line = line_of(*[ticket() for _ in range(3)])
        served(line, 3)
        assert order(line, now=100.0) == []


class TestAhead:
    def test_all_that_are_more_urgent_and_those_whose_turn_comes_first(self):
        wall = [ticket(tenant="wall") for _ in range(6)]
        urgent = [ticket(tenant="urgent", priority=Priority.INTERACTIVE) for _ in range(2)]
        line = line_of(*wall, *urgent, ticket(priority=Priority.BATCH))
        assert set(line.ahead_of(ticket(tenant="wall"))) == {*wall, *urgent}
        assert set(line.ahead_of(ticket(tenant="other"))) == {wall[0], *urgent}
        assert set(line.ahead_of(ticket(priority=Priority.CRITICAL))) == set()

    @settings(max_examples=60)
    @given(
        waiting=st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 300), st.booleans()), max_size=30),
        had=st.integers(0, 30),
        newcomer=st.tuples(st.sampled_from("abcd"), st.booleans()),
    )
    def test_is_who_is_then_let_in_before_it(self, waiting, had, newcomer):
        weights = {"a": 1.0, "b": 3.0, "c": 0.5, "d": 1.0}
        line = Line()
        for tenant, cost, is_image in waiting:
            line.join(ticket(cost, tenant=tenant, amounts=IMAGE if is_image else TEXT, weight=weights[tenant]))
        served(line, min(had, len(waiting)))
        tenant, is_image = newcomer
        one = ticket(5, tenant=tenant, amounts=IMAGE if is_image else TEXT, weight=weights[tenant])
        ahead = set(line.ahead_of(one))
        trial = line.copy()
        before = order(line)
        trial.join(one)
        came = set()
        while (each := admit_next(trial)) is not one:
            came.add(each)
        assert came <= ahead
        # Of equal turns it is left open whose comes first: one of each other tenant's, one of its own other lane.
        assert len(ahead - came) <= 4
        assert order(line) == before


class TestWhoMakesRoom:
    def test_the_newest_of_the_lowest_class(self):
        batch = [ticket(priority=Priority.BATCH, tenant=tenant) for tenant in "abab"]
        line = line_of(*batch, ticket(), ticket(priority=Priority.INTERACTIVE))
        assert line.newest_below(Newcomer(priority=Priority.INTERACTIVE), lambda _: True) is batch[-1]
        assert line.newest_below(Newcomer(priority=Priority.INTERACTIVE), lambda each: each is batch[1]) is batch[1]
        assert (
            line.newest_below(Newcomer(priority=Priority.INTERACTIVE), lambda each: each.priority is Priority.DEFAULT)
            is not None
        )
        assert line.newest_below(Newcomer(priority=Priority.BATCH), lambda _: True) is None

    def test_the_newest_of_the_tenant_with_the_most(self):
        some = [ticket(tenant="some") for _ in range(3)]
        many = [ticket(tenant="many", amounts=amounts) for amounts in (TEXT, IMAGE, TEXT, IMAGE, TEXT)]
        line = line_of(*many, *some)
        assert line.newest_of_the_greediest(Newcomer(tenant="none"), lambda _: True) is many[-1]
        assert line.newest_of_the_greediest(Newcomer(tenant="none"), lambda each: each.is_image) is many[-2]
        assert line.newest_of_the_greediest(Newcomer(tenant="none"), lambda _: False) is None

    def test_or_of_the_next_where_that_one_has_none_that_would_do(self):
        texts = [ticket(tenant="texts") for _ in range(9)]
        images = [ticket(tenant="images", amounts=IMAGE) for _ in range(5)]
        line = line_of(*texts, *images, ticket(tenant="modest", amounts=IMAGE))
        assert line.newest_of_the_greediest(Newcomer(tenant="none"), lambda each: each.is_image) is images[-1]

    def test_not_for_one_that_has_its_share_already(self):
        line = line_of(*[ticket(tenant="some") for _ in range(4)], *[ticket(tenant="many") for _ in range(5)])
        assert line.newest_of_the_greediest(Newcomer(tenant="some"), lambda _: True) is None
        assert line.newest_of_the_greediest(Newcomer(tenant="many"), lambda _: True) is None

    def test_shares_are_by_weight(self):
        heavy = [ticket(tenant="heavy", weight=3.0) for _ in range(6)]
        light = [ticket(tenant="light") for _ in range(4)]
        line = line_of(*heavy, *light)
        assert line.newest_of_the_greediest(Newcomer(tenant="heavy", weight=3.0), lambda _: True) is light[-1]

    def test_the_newest_of_the_longer_lane_of_the_same_tenant(self):
        images = [ticket(amounts=IMAGE) for _ in range(4)]
        line = line_of(*images, ticket(amounts=IMAGE, tenant="other"))
        for loser in (images[3], images[2]):
            assert line.newest_of_the_longer_lane(Newcomer(), lambda _: True) is loser
            line.leave(loser)
            line.join(ticket())
        assert line.newest_of_the_longer_lane(Newcomer(), lambda _: True) is None
        assert line.newest_of_the_longer_lane(Newcomer(has_images=True), lambda _: True) is None
        assert line.newest_of_the_longer_lane(Newcomer(tenant="none"), lambda _: True) is None

    def test_a_large_body_has_images_unless_it_is_known_to_have_none(self):
        large = SMALL_BODY_BYTES + 1
        assert [Newcomer(large).is_image, Newcomer(large, has_images=False).is_image] == [True, False]

    def test_other_classes_are_nobodys_share(self):
        line = line_of(*[ticket(tenant="many", priority=Priority.INTERACTIVE) for _ in range(9)])
        assert line.newest_of_the_greediest(Newcomer(tenant="none"), lambda _: True) is None


weights = st.sampled_from([0.25, 1.0, 2.0, 5.0])
costs = st.lists(st.integers(1, 1_000), min_size=1, max_size=5)


@settings(max_examples=60)
@given(
    first=st.tuples(weights, costs),
    second=st.tuples(weights, costs),
    others=st.lists(st.tuples(weights, costs), max_size=2),
)
def test_of_two_flows_that_always_wait_neither_gets_ahead_by_more_than_one_request_of_each(first, second, others):
    """The bound of start-time fair queueing, whatever third flows do: |W1/w1 - W2/w2| <= l1/w1 + l2/w2."""
    line, work, waiting = Line(), {}, {}
    flows = {str(number): flow for number, flow in enumerate([first, second, *others])}

    def join(tenant, number):
        weight, sizes = flows[tenant]
        line.join(ticket(sizes[number % len(sizes)], tenant=tenant, weight=weight))

    for tenant in flows:
        work[tenant], waiting[tenant] = 0.0, 2
        for number in range(2):
            join(tenant, number)
    bound = sum(max(sizes) / weight for weight, sizes in (first, second))
    for _ in range(150):
        admitted = admit_next(line)
        tenant = admitted.tenant
        work[tenant] += admitted.cost_tokens / admitted.weight
        if tenant in "01" or waiting[tenant] < 20:
            join(tenant, waiting[tenant])
        waiting[tenant] += 1
        assert abs(work["0"] - work["1"]) <= bound + 1e-6


@settings(max_examples=60)
@given(
    strategy=st.lists(st.sampled_from(["text", "image", "both", "none"]), min_size=1, max_size=12),
    sizes=st.tuples(st.integers(1, 500), st.integers(1, 500), st.integers(1, 500)),
)
def test_no_way_of_mixing_texts_and_images_gains_a_tenant_more_than_one_request(strategy, sizes):
    """Beside one that always waits with texts."""
    text, image, other = sizes
    line, waiting, work = Line(), dict.fromkeys("ti", 0), {"mixer": 0, "texts": 0}
    for _ in range(2):
        line.join(ticket(other, tenant="texts"))
    for step in range(200):
        what = strategy[step % len(strategy)]
        for lane, cost, amounts in (("t", text, TEXT), ("i", image, IMAGE)):
            if not waiting[lane] and what in {"both", "text" if lane == "t" else "image"}:
                waiting[lane] += 1
                line.join(ticket(cost, tenant="mixer", amounts=amounts))
        admitted = admit_next(line)
        work[admitted.tenant] += admitted.cost_tokens
        if admitted.tenant == "texts":
            line.join(ticket(other, tenant="texts"))
        else:
            waiting["i" if admitted.is_image else "t"] -= 1
        assert work["mixer"] - work["texts"] <= max(text, image) + other


@settings(max_examples=60)
@given(
    arrivals=st.lists(
        st.tuples(st.sampled_from(Priority), st.sampled_from("abc"), st.integers(1, 500), st.booleans()), max_size=60
    ),
)
def test_nobody_starves(arrivals):
    """Where every turn takes long, each flow gets one at least in four for each of those that wait."""
    line, waiting = Line(), []
    for number, (priority, tenant, cost, is_image) in enumerate(arrivals):
        one = ticket(cost, tenant=tenant, priority=priority, amounts=IMAGE if is_image else TEXT, arrived=number * 1e-3)
        line.join(one)
        waiting.append(one)
    flows = {flow_of(each) for each in waiting}
    stood: dict = {}
    now = 0.0
    while waiting:
        line.join(ticket(1, priority=Priority.CRITICAL, tenant="pressing", arrived=now))
        admitted = admit_next(line, now=now)
        now += AGING_SECONDS
        if admitted in waiting:
            waiting.remove(admitted)
        stood.pop(flow_of(admitted), None)
        for each in {flow_of(each) for each in waiting}:
            stood[each] = stood.get(each, 0) + 1
            assert stood[each] <= AGED_EVERY * (1 + len(flows))


@settings(max_examples=60)
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["join", "join", "leave", "admit"]),
            st.sampled_from(Priority),
            st.sampled_from("abc"),
            st.integers(0, 100),
        ),
        max_size=80,
    )
)
def test_nobody_is_lost_or_seen_twice(steps):
    line, waiting = Line(), []
    for now, (what, priority, tenant, number) in enumerate(steps):
        if what == "join":
            amounts = IMAGE if number % 2 else TEXT
            waiting.append(ticket(1 + number, tenant=tenant, priority=priority, amounts=amounts, arrived=float(now)))
            line.join(waiting[-1])
        elif waiting:
            gone = waiting.pop(number % len(waiting))
            line.leave(gone) if what == "leave" else line.admit(gone, float(now), in_turn=bool(number % 3))
        seen = order(line, now=float(now))
        assert len(set(seen)) == len(seen)
        assert set(seen) <= set(waiting)
        assert bool(seen) == bool(waiting)
        for each in waiting:
            flow = [other for other in waiting if flow_of(other) == flow_of(each)]
            assert each in seen or each in flow[9:]
