import gzip
import json

import msgspec
import pytest
from typer.testing import CliRunner

from gateway.cli import app
from tests.support.log_lines import line, refused

runner = CliRunner()


def run(*words, stdin=None):
    return runner.invoke(app, ["replay", *map(str, words)], input=stdin)


def column(result, name):
    """Of the line of JSON at the end."""
    (found,) = [each for each in json.loads(result.stdout.splitlines()[-1])["columns"] if each["name"] == name]
    return found


@pytest.fixture
def log(tmp_path):
    """Four come at once; the log has them served, two of them after waiting, and one refused."""
    lines = [line(0.0), line(0.1), line(0.2, tenant="team-a", queue_ms=700.0, total_ms=1700.0), refused(0.3)]
    path = tmp_path / "requests.jsonl"
    path.write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in lines))
    return path


@pytest.fixture
def config(tmp_path):
    def write(name, text):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


class TestReplay:
    def test_columns_side_by_side(self, log, config):
        narrow = config("narrow.yaml", "{budget: {sequences: 1}, queue: {requests: 1}}")
        wide = config("wide.yaml", "budget: {sequences: 9}")
        result = run(log, "--config", narrow, "--config", wide, "--json")
        assert result.exit_code == 0, result.output
        was, one, nine = (column(result, name) for name in ("recorded", "narrow", "wide"))
        assert [was[fate] for fate in ("admitted", "queued", "refused")] == [2, 1, 1]
        assert [one[fate] for fate in ("admitted", "queued", "refused")] == [1, 1, 2]
        assert [nine[fate] for fate in ("admitted", "queued", "refused")] == [4, 0, 0]
        assert one["reasons"] == {"queue_full": 2}
        assert one["wait_seconds"]["p99"] == pytest.approx(0.9)
        assert set(one["tenant_classes"]) == {"default", "team-a"}
        assert "tenant class team-a" in result.stdout
        assert "recorded" in result.stdout

    def test_flags_alone_are_a_column(self, log):
        result = run(log, "--set", "budget.sequences=1", "--json")
        assert column(result, "settings")["queued"] == 3

    def test_without_settings_it_tells_what_was(self, log):
        result = run(log, "--json")
        assert [each["name"] for each in json.loads(result.stdout.splitlines()[-1])["columns"]] == ["recorded"]

    def test_files_of_one_name_are_told_apart_by_their_paths(self, log, tmp_path):
        for folder in ("a", "b"):
            (tmp_path / folder).mkdir()
            (tmp_path / folder / "gateway.yaml").write_text("")
        paths = [tmp_path / folder / "gateway.yaml" for folder in ("a", "b")]
        result = run(log, "--config", paths[0], "--config", paths[1], "--json")
        assert column(result, str(paths[1]))["requests"] == 4

    def test_a_packed_log_and_one_from_standard_input(self, log, tmp_path):
        packed = tmp_path / "packed"
        packed.write_bytes(gzip.compress(log.read_bytes()))
        for result in (run(packed, "--json"), run("-", "--json", stdin=log.read_bytes())):
            assert result.exit_code == 0, result.output
            assert column(result, "recorded")["requests"] == 4

    def test_of_a_log_of_shadow_mode_it_tells_what_would_have_been(self, log):
        told = [
            line(0.0, shadow="admitted", shadow_images="0;resized;9x9;3x3;scale=1x1, 1;trimmed"),
            line(0.1, shadow="queued", shadow_wait_ms=500.0),
            line(0.2, shadow="refused", shadow_reason="queue_full"),
            line(0.3, shadow="undecided", text_tokens=None),
        ]
        log.write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in told))
        result = run(log, "--set", "budget.sequences=9", "--json")
        was, new = column(result, "recorded"), column(result, "settings")
        assert [was[fate] for fate in ("admitted", "queued", "refused", "requests")] == [1, 1, 1, 3]
        assert (was["wait_seconds"]["p50"], was["reasons"]) == (0.5, {"queue_full": 1})
        assert (was["shrunk_images"], was["trimmed_images"]) == (1, 1)
        assert (new["admitted"], new["requests"]) == (3, 3)


class TestBadLogs:
    def test_lines_that_say_nothing_are_counted_and_named(self, log):
        log.write_bytes(b'{"level": "info"}\nhello\n' + log.read_bytes() + b"{\n")
        result = run(log, "--json")
        assert result.exit_code == 0
        assert column(result, "recorded")["requests"] == 4
        assert "2 lines cannot be used: not JSON. The first: 2, 7" in result.stderr

    def test_a_gzip_that_breaks_off_is_read_as_far_as_it_goes(self, log, tmp_path):
        packed, many = tmp_path / "log.gz", log.read_bytes() * 2000
        packed.write_bytes(gzip.compress(many)[:-2000])
        result = run(packed, "--json")
        assert result.exit_code == 0
        assert 0 < column(result, "recorded")["requests"] < 8000
        assert "no gzip" in result.stderr

    @pytest.mark.parametrize("content", [b"", b"nothing\n"])
    def test_nothing_that_can_be_used(self, log, content):
        log.write_bytes(content)
        result = run(log)
        assert (result.exit_code, "none of them" in result.stderr) == (2, True)

    def test_no_such_file(self, tmp_path):
        result = run(tmp_path / "missing.jsonl")
        assert (result.exit_code, "No such file" in result.stderr) == (2, True)


class TestGenerate:
    WORDS = ("--hours", "0.05", "--rate", "2", "--tenants", "a=1,b=2")

    @pytest.mark.parametrize("name", ["day.jsonl", "day.jsonl.gz"])
    def test_a_log_without_a_gateway(self, tmp_path, name):
        out = tmp_path / name
        result = run("--generate", out, *self.WORDS)
        assert result.exit_code == 0
        assert "seed 0" in result.stderr
        again = run(out, "--set", "queue.requests=9", "--json")
        assert column(again, "settings")["requests"] == column(again, "recorded")["requests"] > 300
        assert set(column(again, "settings")["tenant_classes"]) == {"a", "b"}

    def test_and_replayed_at_once(self, tmp_path, config):
        words = ("--generate", tmp_path / "day.jsonl", *self.WORDS, "--config", config("small.yaml", ""), "--json")
        first, second = run(*words), run(*words)
        assert first.exit_code == 0, first.output
        assert first.stdout == second.stdout

    def test_what_cannot_be_made_is_named_all_at_once(self, tmp_path):
        wrong = ("--hours", "0", "--rate", "-1", "--turns", "0", "--kv-blocks", "0", "--model", "gpt")
        shares = ("--mix", "video=1", "--tenants", "a", "--bursts", "often")
        result = run("--generate", tmp_path / "day.jsonl", *wrong, *shares)
        assert result.exit_code == 2
        for option in ("hours", "rate", "turns", "kv-blocks", "model", "mix", "tenants", "bursts"):
            assert f"--{option} " in result.stderr
        assert not (tmp_path / "day.jsonl").exists()

    @pytest.mark.parametrize("bursts", ["0.5x1/60", "2x1/0"])
    def test_bursts_that_are_none(self, tmp_path, bursts):
        assert run("--generate", tmp_path / "day.jsonl", "--bursts", bursts).exit_code == 2

    def test_where_nothing_can_be_written(self, tmp_path):
        result = run("--generate", tmp_path / "missing" / "day.jsonl", *self.WORDS)
        assert (result.exit_code, "No such file" in result.stderr) == (2, True)


class TestCommandLine:
    def test_one_log_or_the_other(self, log, tmp_path):
        assert run().exit_code == 2
        assert run(log, "--generate", tmp_path / "day.jsonl").exit_code == 2

    def test_traffic_is_asked_for_with_generate_alone(self, log):
        result = run(log, "--seed", "3", "--kv-blocks", "9")
        assert (result.exit_code, "leave out --seed, --kv-blocks" in result.stderr) == (2, True)

    def test_mistakes_of_the_settings_are_named(self, log, config):
        result = run(log, "--config", config("bad.yaml", "queue: {places: 3}"))
        assert (result.exit_code, "queue.places" in result.stderr) == (2, True)
        result = run(log, "--config", config("model.yaml", "models: [{name: m, family: gpt}]"))
        assert (result.exit_code, "model: the models cannot be read" in result.stderr) == (2, True)

    def test_help_teaches(self):
        text = run("--help").output
        for word in ("--generate", "what it cannot know", "budget.kv_blocks", "for example"):
            assert word in text.lower()
