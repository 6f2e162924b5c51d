"""TLS as operators meet it: a process that serves HTTPS, and what the commands say of certificates."""

import asyncio
import subprocess
import sys
import time

import httpx
import pytest
import trustme
from typer.testing import CliRunner

from gateway.cli import app
from gateway.emulator.serve import running_emulator
from tests.support.authorities import HOST, authority_file, expired, pair, serving, trusting
from tests.support.model_server import model_server
from tests.support.processes import START_SECONDS, free_port


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


def until_answered(url, context, process):
    give_up_at = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < give_up_at:
        try:
            if httpx.get(f"{url}/readyz", verify=context).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.1)
    raise AssertionError("the gateway never answered")


def test_a_certificate_that_is_replaced_is_shown_without_a_restart(authority, tmp_path):
    first, second = trustme.CA(), authority
    own = pair(tmp_path, first.issue_cert(HOST))
    url = f"https://{HOST}:{(port := free_port())}"
    files = ["--set", f"server.tls.certificate_file={own.certificate}", "--set", f"server.tls.key_file={own.key}"]
    with running_emulator() as emulator:
        command = [sys.executable, "-m", "gateway", "serve", "--upstream", emulator.base_url, "--port", str(port)]
        process = subprocess.Popen([*command, *files], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            until_answered(url, trusting(first), process)
            own.write(second.issue_cert(HOST))
            until_answered(url, trusting(second), process)
        finally:
            process.kill()
            process.wait()


def test_a_file_that_is_missing_ends_the_start(tmp_path):
    files = {"certificate_file": tmp_path / "own.pem", "key_file": tmp_path / "own.key"}
    given = [part for name, path in files.items() for part in ("--set", f"server.tls.{name}={path}")]
    for command in ("serve", "check"):
        result = CliRunner().invoke(app, [command, *given])
        assert result.exit_code == 2
        assert "A certificate cannot be used: server.tls: " in result.stderr
        assert "own.pem, or the key beside it, cannot be read: No such file" in result.stderr.replace("\n", " ")


@pytest.mark.parametrize(("issue", "exit_code"), [(expired, 1), (lambda authority: authority.issue_cert(HOST), 0)])
async def test_check_says_what_is_wrong_with_the_server_s_certificate(authority, tmp_path, issue, exit_code):
    async with model_server(tls=serving(issue(authority))) as upstream:
        command = [sys.executable, "-m", "gateway", "check", "--upstream", upstream.base_url]
        trust = ["--set", f"upstream.tls.ca_file={authority_file(tmp_path, authority)}"]
        checked = await asyncio.to_thread(subprocess.run, command + trust, capture_output=True, text=True, check=False)
    assert checked.returncode == exit_code, checked.stderr
    why = "cannot be used: /health: its certificate is refused: certificate has expired"
    assert (why in checked.stderr) == bool(exit_code)
