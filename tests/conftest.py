"""Which tests run here: those marked `system` need commands of the operating system, those marked `real` a real vLLM.

`@pytest.mark.system("buildah", root=True)` skips with the command's name where it is missing (on Debian the package
has the same name). Under GATEWAY_REQUIRE_SYSTEM=1 such a skip is a failure, so a pipeline cannot lose tests unseen.
`real` tests run only when asked for with `-m real`, those of people's clients with `-m clients`; these are skipped, or
fail likewise, where `make clients` has not set up the clients' environment.
"""

import contextlib
import os
import pathlib
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import hypothesis
import pytest

from gateway.imaging.processes import JobLimits
from tests.support.isolation import SharedProcesses

# A machine that is busy with other things is no fault of what is tested.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")

# Model servers of tests are asked what tests ask them; calibration has tests of its own.
os.environ["GATEWAY_CALIBRATION"] = "off"

CLIENTS_ENVIRONMENT = pathlib.Path(os.environ.get("CLIENTS_VENV", ".venv-clients"))
LINES = pytest.StashKey[list[str]]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.option.markexpr:
        return
    apart = [item for item in items if any(map(item.get_closest_marker, ("real", "clients", "faults")))]
    config.hook.pytest_deselected(items=apart)
    items[:] = [item for item in items if item not in apart]


def pytest_runtest_setup(item: pytest.Item) -> None:
    lacking = [lack for mark in item.iter_markers("system") for lack in what_is_lacking(*mark.args, **mark.kwargs)]
    if lacking:
        _miss(f"needs {', '.join(lacking)} (`make system` installs packages)")
    if item.get_closest_marker("clients") and not (CLIENTS_ENVIRONMENT / ".installed").exists():
        _miss(f"needs people's clients in {CLIENTS_ENVIRONMENT.name} (`make clients` sets it up)")


def _miss(reason: str) -> None:
    if os.environ.get("GATEWAY_REQUIRE_SYSTEM") == "1":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def what_is_lacking(*commands: str, root: bool = False) -> list[str]:
    """The commands that are not installed, and "root" where that is needed and not had."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
    lacking = [command for command in commands if shutil.which(command, path=path) is None]
    return [*lacking, "root"] if root and os.geteuid() != 0 else lacking


@pytest.fixture(scope="session", autouse=True)
def worker_processes() -> Iterator[None]:
    """Gateways in this process share the processes that decode their pictures: each start takes a fifth of a second."""
    shared = SharedProcesses(JobLimits(cpu_seconds=20, wall_seconds=60))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gateway.composing.WorkerProcesses", lambda _limits: shared)
        yield
    shared.end()


@pytest.fixture(scope="session", autouse=True)
def no_models_of_this_machine() -> Iterator[None]:
    """Whatever Hugging Face cache its user has is none of the tests'."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_CACHE", "/nowhere")
        yield


@pytest.fixture
async def stack() -> AsyncIterator[contextlib.AsyncExitStack]:
    """Whatever a test enters is left at its end, the last first."""
    async with contextlib.AsyncExitStack() as entered:
        yield entered


@pytest.fixture(scope="session")
def report_line(pytestconfig: pytest.Config) -> Callable[[str], None]:
    """Says one line below the test run: what was measured or counted."""
    return pytestconfig.stash.setdefault(LINES, []).append


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for line in config.stash.get(LINES, []):
        terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def real_vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The one real vLLM of the run. Slow enough that streams can be watched, with room for little."""
    from tests.real import tiny_model, vllm_server  # noqa: PLC0415  # only runs with -m real need what it imports

    folder = tmp_path_factory.mktemp("model")
    tiny_model.write(folder, layers=8, hidden=128)
    python = os.environ["VLLM_PYTHON"]
    with vllm_server.running(python, folder, tmp_path_factory.mktemp("vllm"), sequences=4, kv_blocks=257) as server:
        yield server
