"""`make sbom` lists what the container image installs."""

import json
import re
import subprocess

import pytest

from gateway import __version__
from tests.support.markdown import ROOT

PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^\s\\]+)", re.MULTILINE)


def plain(name):
    return re.sub("[-_.]+", "-", name).lower()


@pytest.mark.system("make")
def test_it_lists_the_locked_requirements_and_nothing_else_with_version_and_licence():
    done = subprocess.run(["make", "sbom"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    bill = json.loads((ROOT / "dist" / "sbom.cdx.json").read_text())
    assert bill["bomFormat"] == "CycloneDX"
    root = bill["metadata"]["component"]
    assert (root["name"], root["version"], root["type"]) == ("vlm-gateway", __version__, "application")
    listed = {plain(each["name"]): each for each in bill["components"]}
    locked = dict(PINNED.findall((ROOT / "requirements" / "exact-text.txt").read_text()))
    assert len(locked) > 20
    assert {name: each["version"] for name, each in listed.items()} == {
        plain(name): version for name, version in locked.items()
    }
    assert [name for name in map(plain, locked) if not listed[name].get("licenses")] == []
