"""A base image from Debian's packages and the project's image on it, without any image registry. Needs root."""

import ast
import contextlib
import json
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

SUITE = "bookworm"
BASE = "localhost/base:bookworm"
PACKAGES = ("?essential", "python3", "python3-venv")
MERGED = ("bin", "sbin", "lib", "lib64")  # Debian 12 keeps these under /usr


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
    """A minimal Debian with python3 and venv as a tar file, made once and kept in `cache`.

    The packages come through this machine's apt, which has its own ways of trusting its mirror; debootstrap, with
    its own, refused mirrors that apt works with. They are unpacked, not configured: python needs no more.
    """
    archive = cache / f"{SUITE}.tar"
    if not archive.exists():
        with tempfile.TemporaryDirectory(dir=_made(cache)) as folder:
            tree = _made(pathlib.Path(folder, "tree"))
            _unpack(_downloaded(pathlib.Path(folder)), tree)
            partial = archive.with_suffix(".partial")
            with tarfile.open(partial, "w") as tar:
                tar.add(tree, ".")
        partial.rename(archive)
    return archive


def _made(folder: pathlib.Path) -> pathlib.Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _downloaded(folder: pathlib.Path) -> Sequence[pathlib.Path]:
    """The packages and all they need, as for a machine on which nothing is installed."""
    nothing = folder / "status"
    nothing.touch()
    archives = folder / "archives"
    _made(archives / "partial")
    options = ["-o", f"Dir::State::status={nothing}", "-o", f"Dir::Cache::archives={archives}"]
    wanted = ["--download-only", "--yes", "-qq", "--no-install-recommends", *PACKAGES]
    subprocess.run(["apt-get", "install", *options, *wanted], check=True)
    return sorted(archives.glob("*.deb"))


def _unpack(packages: Sequence[pathlib.Path], tree: pathlib.Path) -> None:
    for name in MERGED:
        _made(tree / "usr" / name)
        (tree / name).symlink_to(f"usr/{name}")
    for package in packages:
        files = subprocess.run(["dpkg-deb", "--fsys-tarfile", str(package)], check=True, stdout=subprocess.PIPE)
        subprocess.run(["tar", "-x", "--keep-directory-symlink", "-C", str(tree)], check=True, input=files.stdout)
    for name in ("passwd", "group"):
        shutil.copy(tree / "usr/share/base-passwd" / f"{name}.master", tree / "etc" / name)


def build_base(buildah: Buildah, archive: pathlib.Path) -> None:
    with buildah.container("scratch") as container:
        buildah("add", container, str(archive), "/")
        buildah("commit", container, BASE)


def build_project(
    buildah: Buildah, project: pathlib.Path, work: pathlib.Path, tag: str, told: Mapping[str, str]
) -> None:
    """The Dockerfile on the base, with this machine's pip settings lent to the build, not left in it; `told` are
    further build arguments.
    """
    arguments = [f"--build-arg={name}={value}" for name, value in told.items()]
    volumes = [f"--volume={source}:{target}:ro" for source, target in _pip_files(work)]
    options = ["--isolation", "chroot", "--format", "docker", "--build-arg", f"BASE_IMAGE={BASE}", "--tag", tag]
    buildah("build", *options, *arguments, *volumes, str(project))


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
