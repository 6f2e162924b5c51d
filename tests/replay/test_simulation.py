import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.domain.outcome import Fate, Outcome, Reason
from tests.support.log_lines import line, picture, refused, shown

ONE_PLACE = {"budget": {"sequences": 1}}
MEGAPIXEL = {"prompt_tokens": 160 + 1296 + 2}
ONE_PICTURE = {"budget": {"preprocess_backlog_seconds": 0.04}}


def fates(ended):
    return [ended[arrived].fate for arrived in sorted(ended)]


class TestTheGate:
    def test_nobody_waits_where_there_is_room(self, replay):
        assert fates(replay([line(0.0), line(0.1), line(0.2)])) == [Fate.ADMITTED] * 3

    def test_a_place_is_free_once_the_recorded_time_is_over(self, replay):
        ended = replay([line(0.0), line(0.5, total_ms=2000.0), line(0.6)], **ONE_PLACE)
        assert [ended[at].wait_seconds for at in (0.0, 0.5, 0.6)] == pytest.approx([0.0, 0.5, 2.4])
        assert fates(ended) == [Fate.ADMITTED, Fate.QUEUED, Fate.QUEUED]

    def test_the_first_token_comes_after_the_wait(self, replay):
        ended = replay([line(0.0), line(0.5)], **ONE_PLACE)
        assert [ended[at].first_token_seconds for at in (0.0, 0.5)] == pytest.approx([0.1, 0.6])

    def test_a_full_queue_refuses(self, replay):
        ended = replay([line(at / 10) for at in range(4)], queue={"requests": 1}, **ONE_PLACE)
        assert fates(ended) == [Fate.ADMITTED, Fate.QUEUED, Fate.REFUSED, Fate.REFUSED]
        assert ended[0.2].reason is Reason.QUEUE_FULL

    def test_who_waits_in_vain_is_refused_when_the_time_is_up(self, replay):
        lines = [line(0.0, total_ms=9000.0), line(0.1)]
        ended = replay(lines, queue={"wait_seconds": 2.0}, **ONE_PLACE)
        assert ended[0.1].reason is Reason.DEADLINE_PASSED

    def test_a_queue_may_be_opened(self, replay):
        lines = [line(0.0), refused(0.5, reason="kv_budget")]
        assert replay(lines, queue={"requests": 0}, **ONE_PLACE)[0.5].reason is Reason.QUEUE_FULL
        assert replay(lines, **ONE_PLACE)[0.5].fate is Fate.QUEUED

    def test_what_settings_leave_open_is_as_large_as_it_was(self, replay):
        seats = (950, 1, None, None)
        assert fates(replay([line(0.0, capacity=seats), line(0.1, capacity=seats)])) == [Fate.ADMITTED, Fate.QUEUED]
        opened = replay([line(0.0, capacity=seats), line(0.1, capacity=(950, 2, None, None))])
        assert fates(opened) == [Fate.ADMITTED, Fate.ADMITTED]

    def test_a_more_urgent_tenant_goes_first(self, replay):
        lines = [line(0.0), line(0.1, tenant="slow"), line(0.2, tenant="fast")]
        keys = {"slow": "a" * 64, "fast": "b" * 64}
        tenants = [{"name": name, "key_sha256": [keys[name]]} for name in keys]
        as_it_was = replay(lines, tenants=tenants, **ONE_PLACE)
        assert as_it_was[0.1].wait_seconds < as_it_was[0.2].wait_seconds
        tenants[1] |= {"priority": "interactive"}
        urgent = replay(lines, tenants=tenants, **ONE_PLACE)
        assert urgent[0.1].wait_seconds > urgent[0.2].wait_seconds

    def test_a_priority_that_was_asked_for_is_capped_anew(self, replay):
        lines = [line(0.0), line(0.1), line(0.2, asked_priority="critical")]
        capped = replay(lines, **ONE_PLACE)
        assert capped[0.1].wait_seconds > capped[0.2].wait_seconds
        tenants = [{"name": "default", "priority": "batch", "most_urgent": "batch"}]
        assert replay(lines, tenants=tenants, **ONE_PLACE)[0.2].wait_seconds == pytest.approx(1.8)


class TestLevelsOfService:
    def test_who_would_begin_too_late_is_refused_instead_of_waiting_on(self, replay):
        lines = [line(0.0, total_ms=9000.0), line(0.1)]
        assert replay(lines, **ONE_PLACE)[0.1].fate is Fate.QUEUED
        assert replay(lines, slo={"first_token_seconds": 2.0}, **ONE_PLACE)[0.1].fate is Fate.REFUSED

    def test_whose_answer_would_come_too_late_behind_others_is_refused(self, replay):
        answers = {"total_ms": 5000.0, "actual_output_tokens": 60}
        lines = [line(10.0 * number, **answers) for number in range(40)]
        lines += [line(400.0, **answers), line(400.5, **answers)]
        assert replay(lines, slo={"total_seconds": 30.0}, **ONE_PLACE)[400.5].fate is Fate.QUEUED
        assert replay(lines, slo={"total_seconds": 8.0}, **ONE_PLACE)[400.5].reason is Reason.WOULD_MISS_DEADLINE

    def test_no_more_goes_to_the_engine_than_begins_in_time(self, replay):
        """Each prompt takes a second, as thirty have shown. Without a level nine that come together go in by the pool
        alone; with one of four seconds the second has to wait for the first.
        """
        slow = {"first_event_ms": 1000.0, "total_ms": 1200.0, "prompt_tokens": 3000, "text_tokens": (3000, 3000, 3000)}
        lines = [line(10.0 * number, **slow) for number in range(30)]
        lines += [line(400.0 + number / 100, **slow) for number in range(9)]

        def late(ended):
            return [ended[each.arrived].fate for each in lines[30:]]

        assert late(replay(lines)) == [Fate.ADMITTED] * 5 + [Fate.QUEUED] * 4
        assert late(replay(lines, slo={"first_token_seconds": 4.0}))[:3] == [Fate.ADMITTED, Fate.QUEUED, Fate.REFUSED]


class TestTheEngine:
    def test_an_answer_that_outgrows_its_place_keeps_others_out(self, replay):
        """Each begins with 10 of 48 blocks; after six seconds the long one has grown to 42."""
        long = line(0.0, max_tokens=None, actual_output_tokens=900, total_ms=10_000.0)
        short = line(0.0, max_tokens=None, actual_output_tokens=1, total_ms=10_000.0)
        for first, fate in ((long, Fate.QUEUED), (short, Fate.ADMITTED)):
            ended = replay([first, line(6.0)], budget={"kv_blocks": 50}, output_reservation="none")
            assert ended[6.0].fate is fate

    def test_first_events_free_the_way_for_pictures(self, replay):
        """Each takes all of what may be preprocessed at once."""
        lines = [
            line(at, **MEGAPIXEL, **shown(picture(1000, 1000, digest))) for at, digest in ((0.0, "a"), (0.05, "b"))
        ]
        assert replay(lines, **ONE_PICTURE)[0.05].wait_seconds == pytest.approx(0.05)

    @pytest.mark.parametrize(("digest", "fate"), [("a", Fate.ADMITTED), (None, Fate.QUEUED)])
    def test_pictures_that_the_engine_knows_do_not_wait_for_that(self, replay, digest, fate):
        times = ((0.0, digest), (2.0, "b"), (2.01, digest))
        lines = [line(arrived, **MEGAPIXEL, **shown(picture(1000, 1000, each))) for arrived, each in times]
        assert replay(lines, **ONE_PICTURE)[2.01].fate is fate

    def test_pictures_of_an_answer_that_was_cut_off_teach_nothing(self, replay):
        cut_off = line(0.0, **MEGAPIXEL, **shown(picture(1000, 1000, "a")), outcome=Outcome.CLIENT_LEFT)
        later = [
            line(at, **MEGAPIXEL, **shown(picture(1000, 1000, digest))) for at, digest in ((2.0, "b"), (2.01, "a"))
        ]
        assert replay([cut_off, *later], **ONE_PICTURE)[2.01].fate is Fate.QUEUED

    def test_reservations_are_learned_anew(self, replay):
        """After thirty answers of ten tokens each takes 11 of 57 blocks, not 42."""
        lines = [line(10.0 * n, max_tokens=None) for n in range(30)]
        lines += [line(400.0 + n / 100, max_tokens=None) for n in range(6)]
        late = [how.fate for arrived, how in sorted(replay(lines, budget={"kv_blocks": 60}).items()) if arrived >= 400]
        assert late == [Fate.ADMITTED] * 5 + [Fate.QUEUED]


class TestSeveralServers:
    def test_each_request_goes_to_the_one_that_it_went_to(self, replay):
        lines = [line(0.0, upstream="a"), line(0.1, upstream="b"), line(0.2, upstream="b")]
        assert fates(replay(lines, **ONE_PLACE)) == [Fate.ADMITTED, Fate.ADMITTED, Fate.QUEUED]

    def test_one_has_the_limits_that_its_name_has_in_the_settings(self, replay):
        lines = [line(at, upstream=name) for at, name in ((0.0, "a"), (0.1, "b"), (0.2, "a"), (0.3, "b"))]
        upstreams = [{"url": "http://a", "name": "a", "sequences": 1}, {"url": "http://b", "name": "b", "sequences": 2}]
        ended = replay(lines, upstreams=upstreams)
        assert fates(ended) == [Fate.ADMITTED, Fate.ADMITTED, Fate.QUEUED, Fate.ADMITTED]

    def test_the_unread_went_where_one_like_it_went(self, replay):
        lines = [line(0.0, upstream="a"), line(0.1, upstream="b", tenant_id="x"), refused(0.2, tenant_id="x")]
        assert replay(lines, **ONE_PLACE)[0.2].wait_seconds == pytest.approx(0.9)


class TestOfWhatLittleIsKnown:
    def test_the_unread_costs_what_the_last_one_like_it_cost(self, replay):
        small = line(0.0, tenant_id="a", body_bytes=400)
        large = line(1.0, tenant_id="a", body_bytes=9000, text_tokens=(9000, 9000, 9000))
        other = line(2.0, tenant_id="b", text_tokens=(9000, 9000, 9000))
        busy = line(2.9, max_tokens=1, total_ms=5000.0)
        budget = {"kv_blocks": 400}
        unread = [refused(3.0, tenant_id="a", body_bytes=450), refused(3.1, tenant_id="a", body_bytes=9500)]
        ended = replay([small, large, other, busy, *unread, refused(3.2, tenant_id="new")], budget=budget)
        never = {"never_fits_kv"}
        assert {ended[at].reason for at in (1.0, 2.0, 3.1)} == never
        assert [ended[at].fate for at in (0.0, 3.0)] == [Fate.ADMITTED] * 2
        assert ended[3.2].fate is Fate.ADMITTED  # as the very last that was priced

    def test_in_a_log_of_nothing_else_it_stays_refused(self, replay):
        assert replay([refused(1.0)])[1.0].reason is Reason.QUEUE_FULL

    def test_a_fault_of_its_own_stays_one(self, replay):
        bad = line(1.0, outcome="refused", reason="bad_image")
        assert replay([bad])[1.0].reason is Reason.BAD_IMAGE

    def test_what_needs_no_place_is_not_counted(self, replay):
        assert replay([line(1.0, endpoint="/v1/models", text_tokens=None, limits=None, offered_ms=None)]) == {}

    def test_who_left_while_waiting_leaves_again_or_is_served_before(self, replay):
        left = line(0.5, outcome=Outcome.CLIENT_LEFT, upstream_status=None, first_event_ms=None, total_ms=3000.0)
        busy = line(0.0, total_ms=9000.0)
        assert replay([busy, left], **ONE_PLACE)[0.5].fate is Fate.LEFT
        assert replay([busy, left])[0.5].fate is Fate.ADMITTED
        assert replay([line(0.0), left], **ONE_PLACE)[0.5].fate is Fate.QUEUED

    def test_who_left_while_it_was_answered_stays_as_long(self, replay):
        left = line(0.0, outcome=Outcome.CLIENT_LEFT, actual_output_tokens=None, total_ms=4000.0)
        assert replay([left, line(1.0)], **ONE_PLACE)[1.0].wait_seconds == pytest.approx(3.0)


@st.composite
def days(draw):
    """Up to 40 requests of all kinds within a few seconds, each at a time of its own."""
    lines = []
    for number in range(draw(st.integers(1, 40))):
        arrived = draw(st.integers(0, 5000)) / 1000 + number * 1e-6
        tokens = draw(st.integers(1, 6000))
        fields = {
            "tenant_id": draw(st.sampled_from(["a", "b", None])),
            "asked_priority": draw(st.sampled_from(["critical", "batch", None])),
            "is_streaming": draw(st.booleans()),
            "is_return": draw(st.booleans()),
            "total_ms": draw(st.floats(1, 20_000)),
            "first_event_ms": draw(st.none() | st.floats(0, 1000)),
            "actual_output_tokens": draw(st.none() | st.integers(0, 3000)),
            "max_tokens": draw(st.none() | st.integers(1, 3000)),
            "deadline_ms": draw(st.none() | st.floats(1, 9000)),
        }
        kind = draw(st.sampled_from(["served", "served", "left", "unread", "picture"]))
        if kind == "unread":
            del fields["first_event_ms"], fields["actual_output_tokens"]
            lines.append(refused(arrived, **fields))
            continue
        if kind == "left":
            fields |= {"outcome": Outcome.CLIENT_LEFT, "upstream_status": draw(st.sampled_from([None, 200]))}
        if kind == "picture":
            fields |= shown(picture(draw(st.integers(28, 3000)), 500, digest=draw(st.sampled_from(["a", "b", None]))))
        lines.append(line(arrived, text_tokens=(tokens, tokens, tokens), prompt_tokens=tokens, **fields))
    return lines


SECTIONS = st.fixed_dictionaries(
    {
        "budget": st.sampled_from([{}, {"sequences": 1}, {"kv_blocks": 300}, {"sequences": 3, "kv_blocks": 600}]),
        "queue": st.sampled_from([{}, {"requests": 0}, {"requests": 4, "wait_seconds": 1.0}]),
        "output_reservation": st.sampled_from(["quantile", "max", "none"]),
    }
)


@settings(max_examples=60)
@given(lines=days(), sections=SECTIONS)
def test_every_request_ends_exactly_once_and_the_same_way_each_time(replay, lines, sections):
    ended = replay(lines, **sections)
    assert len(ended) == len(lines)
    assert replay(lines, **sections) == ended
