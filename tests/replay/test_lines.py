from datetime import UTC, datetime

import msgspec
import pytest

from gateway.domain.cost import EngineLimits
from gateway.domain.outcome import Fate, Outcome, Reason
from gateway.domain.quantities import Bounds
from gateway.replay.lines import Line, LineReader
from gateway.telemetry.request_log import Picture, RequestRecord
from tests.support.log_lines import line, refused

ONE = b'{"arrived": 5.0, "outcome": "finished", "endpoint": "/v1/models", "new_field_of_tomorrow": 1}\n'


@pytest.fixture
def reader():
    return LineReader()


def test_what_the_gateway_writes_is_what_replay_reads():
    sizes = [Picture("a1b2", "jpeg", 640, 480, 391), None]
    record = RequestRecord(
        time=datetime(2026, 11, 30, tzinfo=UTC), request_id="gw-1", outcome=Outcome.REFUSED, endpoint="/v1/completions",
        tenant="team-a", tenant_id="c0ffee", asked_priority="batch", asked_resize="ocr", deadline_ms=9.5,
        is_return=True, model="m", reason=Reason.QUEUE_FULL, upstream_status=200, is_streaming=True, body_bytes=7,
        prompts=2, answers=4, max_tokens=8, prompt_tokens=9, text_tokens=Bounds(1, 2, 3), prompt_token_ids=4,
        truncate_prompt_tokens=-1, text_bytes=10, messages=3, images=2, images_changed="0;trimmed", pictures=sizes,
        new_images=1, limits=EngineLimits(4096, 100), capacity=(95, 128, None, 5), actual_output_tokens=11,
        counted_output_tokens=12,
        offered_ms=1.5, queue_ms=2.5, first_event_ms=3.5, total_ms=4.5, arrived=1796055402.5,
        shadow=Fate.REFUSED, shadow_reason=Reason.KV_BUDGET, shadow_wait_ms=5.5, shadow_images="0;trimmed",
    )  # fmt: skip
    read = msgspec.json.decode(msgspec.json.encode(record), type=Line)
    assert msgspec.structs.asdict(read) == {name: getattr(record, name) for name in Line.__struct_fields__}


class TestReading:
    def test_what_replay_does_not_know_is_passed_over(self, reader):
        reader.feed([ONE])
        assert [each.arrived for each in reader.lines] == [5.0]
        assert reader.unusable.counts == {}

    def test_in_the_order_in_which_they_asked_and_not_in_that_of_the_log(self, reader):
        for arrived, offered in ((3.0, 0.0), (1.0, 2500.0), (2.0, 0.0)):
            reader.feed([msgspec.json.encode(line(arrived, offered_ms=offered))])
        assert [each.arrived for each in reader.in_order()] == [2.0, 3.0, 1.0]

    def test_bad_lines_are_counted_by_why_with_the_first_numbers(self, reader):
        reader.feed([ONE, b"not json\n", b"\n", b'{"level": "info"}\n', *[b"{\n"] * 9])
        reader.feed([b'{"arrived": "yesterday", "outcome": "finished", "endpoint": "/"}\n', ONE])
        assert len(reader.lines) == 2
        counts, examples = reader.unusable.counts, reader.unusable.examples
        assert counts["not JSON"] == 10
        assert examples["not JSON"] == [2, 5, 6]
        (missing,) = (why for why in counts if "did not write what replay needs" in why)
        assert examples[missing] == [4]
        (wrong,) = (why for why in counts if "$.arrived" in why)
        assert examples[wrong] == [14]
        assert reader.line_count == 15

    def test_a_line_that_nests_for_ever_is_a_bad_line(self, reader):
        reader.feed([b'{"a":' + b"[" * 100_000])
        assert sum(reader.unusable.counts.values()) == 1


class TestWhatALineIs:
    def test_one_that_was_served(self):
        one = line(10.0, offered_ms=500.0, queue_ms=1500.0, total_ms=4000.0)
        assert (one.offered, one.sent, one.ended) == (10.5, 12.0, 14.0)
        assert (one.is_priced, one.is_unread, one.was_sent) == (True, False, True)

    @pytest.mark.parametrize("reason", [Reason.DEADLINE_PASSED, Reason.NEVER_FITS_CONTEXT, Reason.SHED_PRIORITY])
    def test_a_refusal_that_other_settings_may_undo(self, reason):
        one = line(reason=reason, outcome="refused", upstream_status=None)
        assert (one.is_priced, one.was_sent) == (True, False)

    @pytest.mark.parametrize("reason", [Reason.BAD_IMAGE, Reason.DRAINING, Reason.UPSTREAM_DOWN])
    def test_a_refusal_that_stays_one(self, reason):
        one = line(reason=reason, outcome="refused")
        assert (one.is_priced, one.is_unread) == (False, False)

    def test_a_refusal_before_the_body_was_read(self):
        assert (refused().is_priced, refused().is_unread) == (False, True)

    def test_what_asked_for_no_place(self):
        assert not line(offered_ms=None).is_priced

    def test_turns_are_counted_by_the_tenant_or_by_its_class(self):
        assert (line(tenant="team-a").flow, line(tenant_id="c0ffee").flow) == ("team-a", "c0ffee")
