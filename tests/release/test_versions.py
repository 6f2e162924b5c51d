"""The version and the licence stand in several files and are the same in all."""

import re
import tomllib

from gateway import __version__
from tests.support.markdown import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DOCKERFILE = (ROOT / "Dockerfile").read_text()


def label(name):
    return re.search(rf'org\.opencontainers\.image\.{name}="([^"]*)"', DOCKERFILE)[1]


def test_the_version_is_one():
    assert PROJECT["version"] == __version__ == label("version")
    assert __version__ in (ROOT / "CHANGELOG.md").read_text()


def test_the_licence_is_one():
    assert PROJECT["license"] == label("licenses") == "Apache-2.0"
    text = (ROOT / "LICENSE").read_text()
    assert text.split()[:4] == ["Apache", "License", "Version", "2.0,"]
    assert "END OF TERMS AND CONDITIONS" in text


def test_the_changelog_keeps_its_form():
    changes = (ROOT / "CHANGELOG.md").read_text()
    assert changes.startswith("# Changelog\n")
    versions = re.findall(r"^## \[(.*?)\](.*)$", changes, re.MULTILINE)
    assert versions[0] == ("Unreleased", "")
    assert all(re.fullmatch(r" - \d{4}-\d{2}-\d{2}", date) for _, date in versions[1:])
    kinds = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert set(re.findall(r"^### (.*)$", changes, re.MULTILINE)) <= kinds
