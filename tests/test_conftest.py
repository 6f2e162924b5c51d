"""The switch that a pipeline relies on: a missing package skips a test here and fails it there."""

import pathlib

import pytest

pytest_plugins = ["pytester"]

CONFTEST = pathlib.Path(__file__).with_name("conftest.py").read_text()
SUITE = """
import pytest

@pytest.mark.system("no-such-command")
def test_system():
    pass

@pytest.mark.real
def test_real():
    pass

@pytest.mark.clients
def test_clients():
    pass

def test_plain():
    pass
"""
INI = """
[pytest]
asyncio_default_fixture_loop_scope = function
markers =
  system: needs a package
  real: needs vLLM
  clients: needs people's clients
"""


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makeini(INI)
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(SUITE)
    return pytester


def test_a_missing_package_skips_with_its_name(suite, monkeypatch):
    monkeypatch.delenv("GATEWAY_REQUIRE_SYSTEM", raising=False)
    result = suite.runpytest("-rs")
    result.assert_outcomes(passed=1, skipped=1, deselected=2)
    result.stdout.fnmatch_lines(["*needs no-such-command*"])


def test_a_missing_package_fails_where_it_must_be_there(suite, monkeypatch):
    monkeypatch.setenv("GATEWAY_REQUIRE_SYSTEM", "1")
    suite.runpytest().assert_outcomes(passed=1, errors=1, deselected=2)


def test_tests_with_a_real_vllm_run_when_asked_for(suite):
    suite.runpytest("-m", "real").assert_outcomes(passed=1, deselected=3)


def test_clients_run_when_asked_for_where_they_are_installed(suite, monkeypatch, tmp_path):
    monkeypatch.delenv("GATEWAY_REQUIRE_SYSTEM", raising=False)
    monkeypatch.setenv("CLIENTS_VENV", str(tmp_path / ".venv-clients"))
    result = suite.runpytest("-rs", "-m", "clients")
    result.assert_outcomes(skipped=1, deselected=3)
    result.stdout.fnmatch_lines(["*needs people's clients in .venv-clients (`make clients` sets it up)*"])
    monkeypatch.setenv("GATEWAY_REQUIRE_SYSTEM", "1")
    suite.runpytest("-m", "clients").assert_outcomes(errors=1, deselected=3)
    (tmp_path / ".venv-clients").mkdir()
    (tmp_path / ".venv-clients" / ".installed").touch()
    suite.runpytest("-m", "clients").assert_outcomes(passed=1, deselected=3)
