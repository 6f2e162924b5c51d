"""A short slice of the whole: real processes, real clients, figures of every cell, nothing left behind. Nothing here
judges how fast anything was.
"""

import json
import subprocess
import sys

import pytest

from benchmarks.overload.__main__ import Plan, parser
from benchmarks.overload.scenarios import SCENARIOS
from benchmarks.peers import ROOT

COMMAND = [sys.executable, "-m", "benchmarks.overload"]


def run(tmp_path, *flags):
    out = tmp_path / "out.json"
    command = [*COMMAND, "--quick", "--out", str(out), *flags]
    outcome = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert outcome.returncode == 0, outcome.stderr
    return outcome.stdout, json.loads(out.read_text())["cells"]


def test_a_slice_judges_a_limit_of_the_server_a_semaphore_and_the_gateway_and_skips_what_does_not_start(tmp_path):
    arms = ["native", "semaphore", "gateway"]
    flags = ["--scenarios", "loads", "--loads", "5", "--arms", ",".join(arms), "--target-cmd", "broken=/bin/false"]
    said, cells = run(tmp_path, *flags)
    rows = cells["load 5x"]
    assert sorted(rows) == sorted(arms)
    assert {row["sent"] for row in rows.values()} == {rows["native"]["sent"]}
    assert all(row["answers"] > 0 for row in rows.values())
    assert rows["native"]["refusals"] > 0
    assert rows["semaphore"]["refusal_kinds"].keys() == {"429 queue_full"}
    assert "skipped broken: did not start" in said
    assert "targets" in said


def test_help_teaches_and_names_every_scenario():
    outcome = subprocess.run([*COMMAND, "--help"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert all(name in outcome.stdout for name in SCENARIOS)
    assert "--quick" in outcome.stdout


@pytest.mark.parametrize(
    "flags", [["--arms", "nobody"], ["--scenarios", "nothing"], ["--loads", "0"], ["--loads", "x"]]
)
def test_what_is_not_known_is_an_error(flags, capsys):
    with pytest.raises(SystemExit):
        parser().parse_args(flags)
    assert flags[0] in capsys.readouterr().err


def test_a_run_says_first_what_it_will_take():
    plan = Plan.of(parser().parse_args(["--arms", "direct,gateway", "--scenarios", "loads", "--rounds", "2"]))
    assert plan.sentence().startswith("3 cells x 2 arms x 2 rounds: about ")
