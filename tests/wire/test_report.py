"""The answer of preflight, there and back."""

import msgspec
import pytest

from gateway.domain.errors import Code, GatewayError
from gateway.domain.geometry import Size
from gateway.domain.outcome import Reason
from gateway.domain.preflight import ADMITTED, Foresight, Outlook, refused
from gateway.domain.remedies import Remedies, Shortage
from gateway.domain.request import ImageRef, MessageOutline, Span, VisionRequest
from gateway.wire.report import (
    AmountsReport,
    BoundsReport,
    EstimateReport,
    ImageReport,
    MemoriesReport,
    MemoryReport,
    ModelReport,
    Report,
    TokensReport,
    decode_report,
    encode_report,
    json_schema,
    verdict_report,
)

ESTIMATE = EstimateReport(
    model=ModelReport("m", "qwen2_5_vl", "name", None),
    images=[ImageReport("messages[0].content[0].image_url.url", "trimmed", "context")],
    tokens=TokensReport(BoundsReport(1, 2, 3), 300, BoundsReport(301, 302, 303), 100),
    amounts=AmountsReport(27, 1, 300, 235_200),
    kv_block_tokens=16,
    kv_blocks_pool=100,
    memory=MemoriesReport(None, MemoryReport(2**20, 0.5), MemoryReport(3 * 2**20, 0.1)),
)
TURNS = ("system", "user", "assistant", "tool", "user", "assistant", "user")


def request(*message_indexes) -> VisionRequest:
    refs = tuple(ImageRef(i, (), f"messages[{index}]", Span(0, 0)) for i, index in enumerate(message_indexes))
    images = [tuple(i for i, at in enumerate(message_indexes) if at == index) for index in range(len(TURNS))]
    messages = tuple(MessageOutline(role, 0, images[index]) for index, role in enumerate(TURNS))
    return VisionRequest("m", messages=messages, images=refs)


@pytest.mark.parametrize("estimate", [None, ESTIMATE])
def test_there_and_back(estimate):
    report = Report(verdict_report(ADMITTED, None), estimate)
    assert decode_report(encode_report(report)) == report


def test_it_is_flat():
    fields = msgspec.json.decode(encode_report(Report(verdict_report(ADMITTED, None), ESTIMATE)))
    assert (fields["verdict"], fields["tokens"]["visual"], fields["kv_blocks_pool"]) == ("admitted", 300, 100)
    assert fields["amounts"] == {"kv_blocks": 27, "sequences": 1, "encoder_tokens": 300, "preprocess_pixels": 235_200}
    assert "tokens" not in msgspec.json.decode(encode_report(Report(verdict_report(ADMITTED, None), None)))


@pytest.mark.parametrize("body", [b"{", b"{}", b"[]", b'{"verdict": "perhaps"}'])
def test_what_is_no_report(body):
    with pytest.raises(msgspec.DecodeError):
        decode_report(body)


def test_a_refusal_has_the_status_and_the_headers_that_the_client_would_get():
    error = GatewayError(
        Code.RATE_LIMIT_EXCEEDED, "Full.", reason=Reason.QUEUE_FULL, retry_after_seconds=2.5, is_promise=True
    )
    seen = verdict_report(refused(error), None, overload_status=529).error
    assert (seen.status, seen.code, seen.reason, seen.message) == (529, "rate_limit_exceeded", "queue_full", "Full.")
    assert seen.headers == {"retry-after": "3", "retry-after-ms": "2500"}


def test_what_is_short_and_what_would_fit():
    foresight = Foresight(
        Outlook.WAITING,
        ahead=3,
        expected_wait_seconds=1.5,
        longest_wait_seconds=30.0,
        shortage=Shortage("kv_blocks", 40, 15, 95),
        remedies=Remedies(sizes=(("messages[1]", Size(56, 28)),), oldest_images=2, last_param="messages[3]", n=2),
    )
    seen = msgspec.to_builtins(verdict_report(foresight, request(1, 3)))
    assert (seen["verdict"], seen["ahead"], seen["expected_wait_seconds"]) == ("waiting", 3, 1.5)
    assert seen["culprit"] == {
        "resource": "kv_blocks",
        "param": None,
        "needed": 40,
        "available": 15,
        "capacity": 95,
        "deficit": 25,
    }
    assert seen["fits_with"] == {
        "resize": [{"param": "messages[1]", "size": "56x28"}],
        "leave_out": {"images": 2, "up_to": "messages[3]", "turns": 1},
        "shorten_text_tokens": None,
        "max_tokens": None,
        "n": 2,
    }


@pytest.mark.parametrize(("message", "turns"), [(0, 1), (1, 1), (3, 1), (4, 2), (6, None)])
def test_turns_end_with_the_answer_and_the_last_one_cannot_go(message, turns):
    remedies = Remedies(oldest_images=1, last_param=f"messages[{message}]")
    foresight = Foresight(Outlook.REFUSED, remedies=remedies)
    assert verdict_report(foresight, request(message)).fits_with.leave_out.turns == turns


def test_the_schema_describes_both_parts():
    answer, components = json_schema("#/x/{name}")
    assert answer["anyOf"][0]["allOf"] == [{"$ref": "#/x/VerdictReport"}, {"$ref": "#/x/EstimateReport"}]
    assert {"VerdictReport", "EstimateReport", "ErrorReport", "ImageReport"} <= set(components)


def test_fewer_answers_leave_every_image_in():
    seen = verdict_report(Foresight(Outlook.REFUSED, remedies=Remedies(n=2)), request()).fits_with
    assert (seen.n, seen.leave_out) == (2, None)


def test_memory_in_mebibytes():
    assert MemoryReport(3 * 2**19, None).mebibytes == 1.5
