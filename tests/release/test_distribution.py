"""What is given out: a wheel with the package and nothing else, a source distribution that it can be built from."""

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest

from gateway import __version__
from tests.support.markdown import ROOT

METADATA = f"vlm_gateway-{__version__}.dist-info"
SOURCES = f"vlm_gateway-{__version__}"


def run(*command, cwd=ROOT, env=None):
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """As `make dist` builds them: the wheel from the source distribution."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder)
    return folder


@pytest.fixture(scope="module")
def wheel(folder):
    (path,) = folder.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        yield archive


@pytest.fixture(scope="module")
def sources(folder):
    (path,) = folder.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        yield {
            member.name.removeprefix(f"{SOURCES}/"): archive.extractfile(member).read()
            for member in archive.getmembers()
            if member.isfile()
        }


def package_files():
    files = (path for path in (ROOT / "gateway").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(ROOT).as_posix() for path in files}


def test_the_wheel_has_exactly_the_package_and_its_data(wheel):
    names = set(wheel.namelist())
    own = {name for name in names if not name.startswith(METADATA)}
    assert own == package_files()
    about = {name.removeprefix(f"{METADATA}/") for name in names - own}
    assert about == {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE", "top_level.txt"}


def test_the_wheel_says_its_licence_as_pep_639_has_it(wheel):
    told = HeaderParser().parsestr(wheel.read(f"{METADATA}/METADATA").decode())
    assert (told["License-Expression"], told.get_all("License-File")) == ("Apache-2.0", ["LICENSE"])
    assert told["License"] is None
    assert told["Requires-Python"] == ">=3.11"
    assert wheel.read(f"{METADATA}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()


def test_the_sources_have_what_building_needs_and_what_readers_want(sources):
    assert package_files() <= sources.keys()
    assert {
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "CHANGELOG.md",
        "SECURITY.md",
        "CONTRIBUTING.md",
    } <= sources.keys()
    documents = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert documents <= sources.keys()
    assert {name.partition("/")[0] for name in sources} <= {
        "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "MANIFEST.in", "PKG-INFO", "README.md", "SECURITY.md", "docs",
        "gateway", "pyproject.toml", "requirements", "setup.cfg", "vlm_gateway.egg-info",
    }  # fmt: skip


def test_the_wheel_installs_into_a_fresh_environment_and_its_command_runs(folder, tmp_path):
    (path,) = folder.glob("*.whl")
    venv.create(tmp_path / "venv", with_pip=True, symlinks=True)
    python, command = (tmp_path / "venv" / "bin" / name for name in ("python", "vlm-gateway"))
    outside = {"cwd": tmp_path, "env": {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}}
    install = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    run(*install, "--require-hashes", "-r", ROOT / "requirements" / "runtime.txt", **outside)
    run(*install, "--no-deps", path, **outside)
    run(python, "-m", "pip", "check", **outside)
    assert "Usage: vlm-gateway" in run(command, "--help", **outside)
    assert "2691" in run(command, "tokens", "--family", "qwen2_5_vl", "1920x1080", **outside)
    where = run(python, "-c", "import gateway; print(gateway.__file__)", **outside).strip()
    assert Path(where).is_relative_to(tmp_path)


def test_make_dist_builds_as_this_does():
    recipe = (ROOT / "Makefile").read_text().partition("\ndist: ")[2].splitlines()[1]
    assert recipe.strip() == "$(BIN)/python -m build --no-isolation --outdir dist"
