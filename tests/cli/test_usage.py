"""`vlm-gateway usage`: sums of request logs, by day and tenant or whatever else is asked for."""

import csv
import gzip
import io
import json
import tracemalloc
from datetime import UTC, datetime

import msgspec
import pytest
from typer.testing import CliRunner

from gateway.cli import app
from gateway.domain.outcome import Outcome
from gateway.telemetry.request_log import RequestRecord, TokensUsed

runner = CliRunner()


def run(*words, stdin=None):
    return runner.invoke(app, ["usage", *map(str, words)], input=stdin)


def line(day, hour=12, tenant="team-a", model="small", used=None, **fields):
    record = RequestRecord(
        time=datetime(2026, 11, day, hour, tzinfo=UTC),
        request_id="gw-1",
        outcome=Outcome.FINISHED if used else Outcome.REFUSED,
        endpoint="/v1/chat/completions",
        tenant=tenant,
        model=model,
        used=None if used is None else TokensUsed(**used),
        **fields,
    )
    return msgspec.json.encode(record) + b"\n"


TWO_DAYS = [
    line(1, used={"text": 10, "visual": 100, "output": 5, "cached": 32}),
    line(1, used={"text": 20, "output": 5}),
    line(1, tenant="team-b", model="large", used={"text": 1, "media": 50, "output": 2, "is_estimate": True}),
    line(1),
    line(2, 0, used={"text": 1000, "output": 1}),
    line(2, tenant="default", tenant_id="5f3a", used={"text": 7, "output": 1}),
]


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "requests.jsonl"
    path.write_bytes(b"".join(TWO_DAYS))
    return path


def rows(result):
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)["rows"]


class TestSums:
    def test_a_day_and_a_tenant_unasked(self, log):
        found = rows(run(log, "--json"))
        assert [(row["day"], row["tenant"], row["requests"], row["total"]) for row in found] == [
            ("2026-11-01", "team-a", 2, 140),
            ("2026-11-01", "team-b", 1, 53),
            ("2026-11-02", "5f3a", 1, 8),
            ("2026-11-02", "team-a", 1, 1001),
        ]
        first, second = found[:2]
        assert first == {
            "day": "2026-11-01", "tenant": "team-a", "requests": 2, "text": 30, "visual": 100, "media": 0,
            "output": 10, "cached": 32, "estimated": 0, "total": 140,
        }  # fmt: skip
        assert (second["media"], second["estimated"]) == (50, 53)

    def test_the_whole_beside_the_rows(self, log):
        told = json.loads(run(log, "--json").stdout)
        assert (told["all"]["total"], told["all"]["requests"]) == (1202, 5)
        assert (told["lines"], told["idle"], told["outside"]) == (6, 1, 0)

    @pytest.mark.parametrize(
        ("by", "keys"),
        [
            ("tenant", ["5f3a", "team-a", "team-b"]),
            ("class", ["default", "team-a", "team-b"]),
            ("model", ["large", "small"]),
            ("day", ["2026-11-01", "2026-11-02"]),
            ("endpoint", ["/v1/chat/completions"]),
        ],
    )
    def test_by_one_thing(self, log, by, keys):
        assert [row[by] for row in rows(run(log, "--by", by, "--json"))] == keys

    def test_by_several(self, log):
        found = rows(run(log, "--by", "model", "--by", "class", "--json"))
        assert [(row["model"], row["class"]) for row in found] == [
            ("large", "team-b"),
            ("small", "default"),
            ("small", "team-a"),
        ]

    @pytest.mark.parametrize(
        ("words", "totals"),
        [
            (["--since", "2026-11-02"], [8, 1001]),
            (["--until", "2026-11-02"], [140, 53]),
            (["--since", "2026-11-02T06:00", "--until", "2026-11-03"], [8]),
            (["--since", "2026-11-02T01:30+01:00"], [8]),
        ],
    )
    def test_from_a_day_or_a_time_on_and_before_another(self, log, words, totals):
        result = run(log, *words, "--json")
        assert [row["total"] for row in rows(result)] == totals
        assert json.loads(result.stdout)["outside"] > 0

    def test_a_model_that_is_not_known_is_none(self, tmp_path):
        path = tmp_path / "a.jsonl"
        path.write_bytes(line(1, model=None, used={"text": 1}))
        assert [row["model"] for row in rows(run(path, "--by", "model", "--json"))] == ["-"]


class TestPrinting:
    def test_a_table_with_the_whole_at_its_end(self, log):
        result = run(log)
        assert result.exit_code == 0
        lines = [row.split() for row in result.stdout.splitlines()]
        assert ["2026-11-01", "team-a", "2", "30", "100", "-", "10", "32", "-", "140"] in lines
        assert ["all", "5", "1,038", "100", "50", "14", "32", "53", "1,202"] in lines
        assert "Of 6 lines 1 took nothing of the engine." in result.stdout

    def test_one_row_is_the_whole(self, log):
        result = run(log, "--by", "endpoint", "--since", "2026-11-02")
        assert not any(row.split()[:1] == ["all"] for row in result.stdout.splitlines())
        assert "4 lie outside the days asked for" in result.stdout

    def test_csv(self, log):
        found = list(csv.DictReader(io.StringIO(run(log, "--by", "tenant", "--csv").stdout)))
        assert [(row["tenant"], row["total"]) for row in found] == [("5f3a", "8"), ("team-a", "1141"), ("team-b", "53")]

    def test_a_tenants_name_is_no_markup(self, tmp_path):
        path = tmp_path / "a.jsonl"
        path.write_bytes(line(1, tenant="[red]x[/red]", used={"text": 1}))
        assert "[red]x[/red]" in run(path).stdout


class TestFiles:
    def test_rotated_ones_in_gzip_and_standard_input_together(self, log, tmp_path):
        packed = tmp_path / "requests.jsonl.1.gz"
        packed.write_bytes(gzip.compress(b"".join(TWO_DAYS)))
        result = run(log, packed, "-", "--by", "class", "--json", stdin=b"".join(TWO_DAYS))
        assert [row["requests"] for row in rows(result)] == [3, 9, 3]

    def test_what_is_no_line_is_counted_and_named_and_the_rest_is_summed(self, tmp_path):
        path = tmp_path / "odd.jsonl"
        odd = [b"garbage\n", b"\n", b'{"level":"info"}\n', b'{"time":7,"outcome":"x","endpoint":"/"}\n', b"[[[\n"]
        path.write_bytes(b"".join([*odd, *TWO_DAYS, b'{"time": "2026-11-']))
        result = run(path, "--by", "class", "--json")
        assert [row["requests"] for row in rows(result)] == [1, 3, 1]
        assert f"{path}: 2 lines cannot be used: not JSON. The first: 1, 12" in result.stderr
        assert "1 line cannot be used: no line of this gateway's request log. The first: 3" in result.stderr
        assert "a field that is none of the request log's" in result.stderr

    def test_a_line_without_end_is_one_that_cannot_be_used(self, tmp_path):
        path = tmp_path / "long.jsonl"
        path.write_bytes(TWO_DAYS[0] + b"x" * (5 << 20) + b"\n" + TWO_DAYS[1])
        result = run(path, "--json")
        assert [row["requests"] for row in rows(result)] == [2]
        assert "1 line cannot be used: longer than 1 MiB. The first: 2" in result.stderr

    def test_a_gzip_that_breaks_off_gives_what_it_has(self, tmp_path):
        path = tmp_path / "cut.gz"
        whole = gzip.compress(b"".join(TWO_DAYS * 2000), compresslevel=1)
        path.write_bytes(whole[: len(whole) // 2])
        result = run(path, "--by", "class", "--json")
        assert rows(result)
        assert "the rest of the file is no gzip" in result.stderr

    def test_however_many_lines_there_are_memory_stays_flat(self, tmp_path):
        sizes = []
        for times in (200, 4000):
            path = tmp_path / f"{times}.jsonl"
            path.write_bytes(b"".join(TWO_DAYS) * times)
            tracemalloc.start()
            assert len(rows(run(path, "--json"))) == 4
            sizes.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        assert sizes[1] < 1.5 * sizes[0] + 1_000_000


class TestMistakes:
    @pytest.mark.parametrize(
        ("words", "text"),
        [
            (["--by", "colour"], "--by colour: write one of day, tenant, class, model, endpoint"),
            (["--since", "yesterday"], "--since yesterday: write a day as 2026-11-01"),
            (["--json", "--csv"], "Choose one of --json and --csv."),
        ],
    )
    def test_on_the_command_line(self, log, words, text):
        result = run(log, *words)
        assert (result.exit_code, text in result.output) == (2, True)

    def test_a_file_that_is_not_there(self, tmp_path):
        result = run(tmp_path / "none.jsonl")
        assert (result.exit_code, "none.jsonl: No such file or directory" in result.output) == (2, True)

    def test_a_file_with_no_line_of_a_request_log(self, tmp_path):
        path = tmp_path / "empty.jsonl"
        path.write_bytes(b"")
        result = run(path)
        assert (result.exit_code, "No line is of a request log" in result.output) == (2, True)
