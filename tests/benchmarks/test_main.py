"""A short slice of the whole: real processes, real figures, nothing left behind."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.__main__ import parser
from benchmarks.peers import ROOT
from benchmarks.scenarios import SCENARIOS

BARE = f"{sys.executable} -m uvicorn bare_asgi:app --app-dir {ROOT}/benchmarks/proxies --host 127.0.0.1"


def run(tmp_path, *flags):
    out = tmp_path / "out.json"
    command = [sys.executable, "-m", "benchmarks", "--rounds", "1", "--secs", "0.2", "--out", str(out), *flags]
    outcome = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    return outcome.stdout, json.loads(out.read_text())["rows"]


def processes_with(word):
    commands = (path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists())
    return [command for command in commands if word.encode() in command]


def test_a_slice_measures_the_stub_and_a_peer_and_leaves_no_process(tmp_path):
    mine = f"mine={BARE} --port {{port}} --header mark:{tmp_path.name}"
    flags = ["--scenarios", "text,sse_1k", "--peers", "direct", "--target-cmd", mine]
    said, rows = run(tmp_path, *flags)
    assert rows["text"]["mine"]["requests_per_cpu_second"] > 0
    assert rows["text"]["direct"]["requests_per_second"] > 0
    assert rows["sse_1k"]["mine"]["events_per_cpu_second"] > 0
    assert rows["sse_1k"]["mine"]["event_p50_us"] > 0
    assert all(set(row["codes"]) <= {"200"} for scenario in rows.values() for row in scenario.values())
    assert "mine divided by" in said
    assert processes_with(tmp_path.name) == []


def test_a_refusing_peer_is_measured_refusing(tmp_path):
    _, rows = run(tmp_path, "--scenarios", "refuse", "--peers", "direct,bare-asgi")
    assert list(rows["refuse"]) == ["bare-asgi"]
    assert set(rows["refuse"]["bare-asgi"]["codes"]) == {"429"}


def test_a_peer_that_does_not_start_is_skipped_with_its_reason(tmp_path):
    said, rows = run(tmp_path, "--scenarios", "text", "--peers", "direct", "--target-cmd", "broken=/bin/false")
    assert "skipped broken: did not start" in said
    assert list(rows["text"]) == ["direct"]


def test_help_teaches_and_names_every_scenario():
    outcome = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "run.py"), "--help"], capture_output=True, text=True, check=True
    )
    assert all(name in outcome.stdout for name in SCENARIOS)
    assert "Judge by ratios" in outcome.stdout


@pytest.mark.parametrize("flags", [["--peers", "nobody"], ["--scenarios", "nothing"], ["--with", "nginx"]])
def test_an_unknown_name_is_an_error_that_lists_the_known_ones(flags, capsys):
    with pytest.raises(SystemExit):
        parser().parse_args(flags)
    assert "known:" in capsys.readouterr().err
