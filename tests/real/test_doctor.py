"""What doctor says of starts of a real vLLM, and its list of flags, from vLLM's own parser."""

import os
import pathlib
import subprocess

import pytest

from gateway.domain.doctor.measured import Term
from gateway.domain.vllm_flags import real_flags
from tests.real.starts import STARTS, output_of
from tests.support.vllm_logs import diagnosed, file_of

pytestmark = pytest.mark.real

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="module")
def python():
    return os.environ["VLLM_PYTHON"]


def test_the_list_of_flags_is_that_of_the_parser(python):
    written = subprocess.run(
        [python, str(ROOT / "scripts" / "vllm_flags.py")], capture_output=True, check=True, text=True
    )
    assert written.stdout == pathlib.Path(real_flags.__file__).read_text()


@pytest.mark.starts
@pytest.mark.parametrize("name", STARTS)
def test_a_real_start_is_understood_as_its_capture_is(python, tmp_path, name, report_line):
    now, captured = diagnosed(output_of(python, STARTS[name], tmp_path)), diagnosed(file_of(f"real_v0_32_{name}"))
    kinds = [each.kind for each in now.findings]
    report_line(f"{name}: {now.ending}, {', '.join(kinds) or 'no failure'}")
    assert kinds == [each.kind for each in captured.findings]
    assert (now.ending, now.start.stage, now.start.version) == (
        captured.ending,
        captured.start.stage,
        captured.start.version,
    )
    assert now.start.readings.keys() - {Term.FREE_GIB} == captured.start.readings.keys() - {Term.FREE_GIB}
