"""The image builds from the Dockerfile, serves as a user without rights, and leaves when told."""

import contextlib
import os
import pathlib
import signal
import subprocess
import tempfile
import time

import httpx
import pytest

from gateway import __version__
from gateway.emulator.serve import running_emulator
from tests.deploy.container_build import BASE, Buildah, build_base, build_project, debian_archive
from tests.support.live_gateway import CHAT, chat, image
from tests.support.pictures import data_url, encoded, picture
from tests.support.processes import free_port, wait_until_ready

pytestmark = pytest.mark.system("buildah", root=True)

PROJECT = pathlib.Path(__file__).parents[2]
IMAGE = "localhost/vlm-gateway:test"
STOP_SECONDS = 10
SOURCE, REVISION = "https://example.org/vlm-gateway", "0123abcd"


@pytest.fixture(scope="module")
def buildah():
    # Not under tmp_path: pytest keeps the last three of those, a gigabyte each.
    with tempfile.TemporaryDirectory(prefix="vlm-gateway-image-") as folder:
        buildah = Buildah(pathlib.Path(folder))
        build_base(buildah, debian_archive(PROJECT / ".cache" / "debian"))
        told = {"SOURCE": SOURCE, "REVISION": REVISION}
        build_project(buildah, PROJECT, pathlib.Path(folder), IMAGE, told)
        yield buildah


@pytest.fixture(scope="module")
def container(buildah):
    with buildah.container(IMAGE) as name:
        yield name


@contextlib.contextmanager
def running(buildah, container, port, upstream, log):
    """The image's own command, in the container's root and as the image's user, on this machine's network."""
    config = buildah.config(container)
    settings = {"GATEWAY_SERVER__PORT": str(port), "GATEWAY_UPSTREAM__URL": upstream}
    options = [f"--env={name}={value}" for name, value in settings.items()]
    command = [*config["Entrypoint"], *config["Cmd"]]
    with log.open("wb") as output:
        process = subprocess.Popen(
            buildah.command("run", "--isolation", "chroot", *options, container, "--", *command),
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_until_ready(f"http://127.0.0.1:{port}/readyz", process, log)
        yield process
    finally:
        process.terminate()
        process.wait(STOP_SECONDS)


def children_of(process_id: int) -> list[int]:
    threads = pathlib.Path(f"/proc/{process_id}/task").glob("*/children")
    return [int(child) for thread in threads for child in thread.read_text().split()]


def gateway_of(process_id: int) -> int:
    """The process that `buildah run` started, through the helpers in between; its workers are below it."""
    while not pathlib.Path(f"/proc/{process_id}/cmdline").read_text().startswith("/app/bin/python"):
        (process_id,) = children_of(process_id)
    return process_id


def user_of(process_id: int) -> int:
    return pathlib.Path(f"/proc/{process_id}").stat().st_uid


def test_the_image_says_how_to_run_it(buildah, container):
    config = buildah.config(container)
    assert config["User"] == "65532:65532"
    assert config["StopSignal"] == "SIGTERM"
    assert "MALLOC_ARENA_MAX=2" in config["Env"]
    assert list(config["ExposedPorts"]) == ["8080/tcp"]


def test_the_image_says_what_it_is(buildah, container):
    prefix = "org.opencontainers.image."
    labels = buildah.config(container)["Labels"]
    told = {name.removeprefix(prefix): value for name, value in labels.items() if name.startswith(prefix)}
    assert told.pop("description")
    assert told == {
        "title": "vlm-gateway",
        "licenses": "Apache-2.0",
        "version": __version__,
        "source": SOURCE,
        "revision": REVISION,
        "base.name": BASE,
    }
    root = pathlib.Path(buildah("mount", container))
    (licence,) = root.glob("app/lib/python3*/site-packages/vlm_gateway-*.dist-info/licenses/LICENSE")
    assert licence.read_bytes() == (PROJECT / "LICENSE").read_bytes()


def test_it_serves_checks_itself_and_stops(buildah, container, tmp_path):
    port = free_port()
    with running_emulator() as vllm, running(buildah, container, port, vllm.base_url, tmp_path / "log") as process:
        gateway = gateway_of(process.pid)
        workers = children_of(gateway)
        assert workers
        assert {user_of(each) for each in (gateway, *workers)} == {65532}

        question = chat("Hello", image(data_url(encoded(picture(64, 64)))), max_tokens=3)
        answer = httpx.post(f"http://127.0.0.1:{port}{CHAT}", json=question)
        assert answer.json()["usage"]["completion_tokens"] == 3, answer.text

        assert httpx.get(f"http://127.0.0.1:{port}/gateway/page.js").status_code == 200  # the package has its files

        _, check = buildah.config(container)["Healthcheck"]["Test"]
        buildah(
            "run", "--isolation", "chroot", f"--env=GATEWAY_SERVER__PORT={port}", container, "--", "sh", "-c", check
        )

        told_at = time.monotonic()
        os.kill(gateway, signal.SIGTERM)
        assert process.wait(STOP_SECONDS) == 0
        assert time.monotonic() - told_at < STOP_SECONDS
        while any(pathlib.Path(f"/proc/{each}").exists() for each in workers):
            assert time.monotonic() - told_at < STOP_SECONDS, "a worker stays behind"
            time.sleep(0.05)


def test_nothing_was_written_and_nothing_lent_was_kept(buildah, container):
    root = buildah("mount", container)
    of_the_user = subprocess.run(["find", root, "-xdev", "-uid", "65532"], capture_output=True, text=True, check=True)
    assert of_the_user.stdout == ""
    assert not pathlib.Path(root, "etc/pip.conf").exists()
    assert not list(pathlib.Path(root, "app/bin").glob("pip*"))
