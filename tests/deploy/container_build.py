"""A base image from Debian's packages and the project's image on it, without any image registry. Needs root."""

import ast
import contextlib
import json
import pathlib
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Sequence
from typing import Any

SUITE = "bookworm"
BASE = "localhost/base:bookworm"
LEFT_OUT = ("./dev/", "./var/cache/apt/archives/", "./var/lib/apt/lists/")


class Buildah:
    """buildah with a store of its own. The plain `vfs` driver works where overlay mounts are not allowed."""

    def __init__(self, store: pathlib.Path) -> None:
        self._store = ["--root", str(store / "root"), "--runroot", str(store / "run"), "--storage-driver", "vfs"]

    def command(self, name: str, *arguments: str) -> list[str]:
        return ["buildah", *self._store, name, *arguments]

    def __call__(self, name: str, *arguments: str) -> str:
        """Run it; its output. Raises CalledProcessError after printing what it said."""
        done = subprocess.run(self.command(name, *arguments), check=False, capture_output=True, text=True)
        if done.returncode:
            print(done.stdout[-8000:], done.stderr[-8000:], sep="\n")
        done.check_returncode()
        return done.stdout.strip()

    @contextlib.contextmanager
    def container(self, image: str) -> Iterator[str]:
        name = self("from", "--isolation", "chroot", image)
        try:
            yield name
        finally:
            self("rm", name)

    def config(self, container: str) -> dict[str, Any]:
        """What the image says of user, command, environment and signals, in Docker's spelling."""
        config: dict[str, Any] = json.loads(self("inspect", "--type", "container", container))["Docker"]["config"]
        return config


def debian_archive(cache: pathlib.Path) -> pathlib.Path:
    """A minimal Debian with python3 and venv as a tar file, made once and kept in `cache`."""
    archive = cache / f"{SUITE}.tar"
    if not archive.exists():
        tree = cache / SUITE
        shutil.rmtree(tree, ignore_errors=True)
        cache.mkdir(parents=True, exist_ok=True)
        packages = "--include=python3,python3-venv,ca-certificates"
        subprocess.run(["debootstrap", "--variant=minbase", packages, SUITE, str(tree), _debian_mirror()], check=True)
        partial = archive.with_suffix(".partial")
        with tarfile.open(partial, "w") as tar:
            tar.add(tree, ".", filter=lambda member: None if f"{member.name}/".startswith(LEFT_OUT) else member)
        partial.rename(archive)
        shutil.rmtree(tree)
    return archive


def _debian_mirror() -> str:
    """Where this machine's apt takes the suite from."""
    targets = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", f"Codename: {SUITE}"]
    return subprocess.run(targets, capture_output=True, text=True, check=True).stdout.split()[0]


def build_base(buildah: Buildah, archive: pathlib.Path) -> None:
    with buildah.container("scratch") as container:
        buildah("add", container, str(archive), "/")
        buildah("commit", container, BASE)


def build_project(buildah: Buildah, project: pathlib.Path, work: pathlib.Path, tag: str) -> None:
    """The Dockerfile on the base, with this machine's pip settings lent to the build, not left in it."""
    volumes = [f"--volume={source}:{target}:ro" for source, target in _pip_files(work)]
    options = ["--isolation", "chroot", "--format", "docker", "--build-arg", f"BASE_IMAGE={BASE}", "--tag", tag]
    buildah("build", *options, *volumes, str(project))


def _pip_files(work: pathlib.Path) -> Sequence[tuple[str, str]]:
    """Files to mount into the build: pip's settings in one file, and the files and folders that they name."""
    listing = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    )
    settings = dict(line.split("=", 1) for line in listing.stdout.splitlines() if "=" in line)
    values = {name.split(".", 1)[1]: ast.literal_eval(value) for name, value in settings.items()}
    lines = [f"{name} = {' '.join(value.split())}" for name, value in values.items()]
    (work / "pip.conf").write_text("\n".join(["[global]", *lines, ""]))
    named = sorted({path for value in values.values() for word in value.split() if (path := _path_of(word))})
    return [(str(work / "pip.conf"), "/etc/pip.conf"), *zip(named, named, strict=True)]


def _path_of(word: str) -> str | None:
    """What to mount for one word of pip's settings. An index on disk keeps its files beside its pages."""
    path = pathlib.Path(word.removeprefix("file://"))
    if not path.is_absolute() or not path.exists():
        return None
    return str(path.parent if word.startswith("file://") else path)
