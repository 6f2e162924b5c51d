"""From bytes to messages, whatever wrote, wrapped or cut them."""

import json

import pytest

from gateway.domain.doctor.lines import LONGEST_LINE, Line, LineReader

MESSAGE = "Available KV cache memory: 9.26 GiB"
PREFIX = "INFO 11-30 10:00:00 [gpu_worker.py:759] "


def lines(data, *, piece=1 << 16):
    reader = LineReader()
    found = []
    for start in range(0, len(data), piece):
        found += reader.feed(data[start : start + piece])
    return [*found, *reader.end()]


def only(text):
    [line] = lines(text.encode())
    return line


@pytest.mark.parametrize(
    ("text", "process"),
    [
        (PREFIX + MESSAGE, None),
        ("INFO 12-13 19:54:18 worker.py:243] " + MESSAGE, None),
        ("(EngineCore_DP0 pid=278) " + PREFIX + MESSAGE, "EngineCore_DP0"),
        ("(Worker pid=312) (Worker_TP1 pid=312) " + PREFIX + MESSAGE, "Worker_TP1"),
        ("(VllmWorker rank=3 pid=303) " + PREFIX + MESSAGE, "VllmWorker_rank3"),
        ("(RayWorkerWrapper pid=5146, ip=10.121.129.12) " + PREFIX + MESSAGE, "RayWorkerWrapper"),
        ("vllm-1  | (EngineCore pid=1) " + PREFIX + MESSAGE, "EngineCore"),
        ("2026-09-01T07:11:02.104512Z stdout F " + PREFIX + MESSAGE, None),
        ("2026-04-19 13:23:55.057 | (EngineCore pid=196) " + PREFIX + MESSAGE, "EngineCore"),
        ("[2025-03-10T15:07:20Z] " + PREFIX + MESSAGE, None),
        ("\x1b[0;36m(EngineCore pid=9)\x1b[0;0m \x1b[32mINFO\x1b[0m 11-30 10:00:00 [a.py:1] " + MESSAGE, "EngineCore"),
        ("INFO 02-13 15:56:20 [worker.py:267](http://worker.py:267/)] " + MESSAGE, None),
    ],
)
def test_the_message_is_found_behind_what_others_wrote_before_it(text, process):
    assert only(text) == Line(1, "INFO", process, MESSAGE)


@pytest.mark.parametrize(
    "text",
    [
        "vllm-1  | " + MESSAGE,
        "2026-09-01T07:11:02.104512Z stderr F " + MESSAGE,
        "[rank0]: " + MESSAGE,
        "vllm-1  | 2026-09-01 07:11:02 [rank0]: " + MESSAGE,
    ],
)
def test_lines_that_are_not_of_the_logger_lose_their_wrapping_too(text):
    assert only(text) == Line(1, None, None, MESSAGE)


def test_a_process_is_named_where_only_it_stands_before_the_message():
    assert only("(APIServer pid=1) INFO:     Application startup complete.").process == "APIServer"


def test_json_lines_are_opened_and_their_messages_split():
    record = {"levelname": "error", "message": "EngineCore failed to start.\nValueError: no"}
    assert lines(json.dumps(record).encode()) == [
        Line(1, "ERROR", None, "EngineCore failed to start."),
        Line(1, "ERROR", None, "ValueError: no"),
    ]


def test_json_of_a_container_holds_a_whole_line_of_vllms():
    assert only(json.dumps({"log": f"(EngineCore pid=2) {PREFIX}{MESSAGE}\n", "stream": "stdout"})) == Line(
        1, "INFO", "EngineCore", MESSAGE
    )


def test_json_inside_json_is_opened_only_so_deep():
    text = MESSAGE
    for _ in range(6):
        text = json.dumps({"msg": text})
    assert only(text).message.startswith('{"msg"')


@pytest.mark.parametrize(
    "text",
    ['{"a": 1}', '{"message": 3}', '{"message": "x"', '{"message": }', "{}", "args: {1: 2}", '{"a":' * 9000 + "}"],
)
def test_what_is_not_json_of_a_log_stays_as_it_is(text):
    assert only(text).message == text[:LONGEST_LINE].rstrip()


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 1 << 16])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_end_in_every_way_and_are_cut_anywhere(piece, end):
    text = end.join(["one", "zwei ä", "", "three"])
    assert [line.message for line in lines(text.encode(), piece=piece)] == ["one", "zwei ä", "three"]


@pytest.mark.parametrize("piece", [1, 5, 1 << 16])
def test_lines_are_counted_as_editors_count_them(piece):
    text = b"a\r\nb\rc\rd\n\ne\n"
    found = [(line.number, line.message) for line in lines(text, piece=piece)]
    assert found == [(1, "a"), (2, "b"), (2, "c"), (2, "d"), (4, "e")]


@pytest.mark.parametrize("coding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le"])
def test_a_log_that_powershell_stored_is_read(coding):
    assert [line.message for line in lines(f"{MESSAGE}\n{MESSAGE}".encode(coding), piece=1)] == [MESSAGE, MESSAGE]


def test_bytes_that_are_no_text_are_replaced():
    assert lines(b"\xff\xfa caf\xe9\n\x80")[0].message.endswith("caf\ufffd")


def test_a_line_without_an_end_is_cut_and_takes_no_more_memory():
    reader = LineReader()
    for _ in range(64):
        assert list(reader.feed(b"x" * LONGEST_LINE)) == []
    [line] = reader.end()
    assert len(line.message) == LONGEST_LINE


def test_nothing_is_no_line():
    assert lines(b"") == []
    assert lines(b"\n \n\r\n") == []
