"""The gateway as users start it: a process of its own, before whatever upstream a test has."""

import contextlib
import pathlib
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import httpx
import yaml
from prometheus_client.parser import text_string_to_metric_families

START_SECONDS = 90
STOP_SECONDS = 15
_ONE_UPSTREAM = {("upstream", "default"), ("upstream", "")}


@dataclass(frozen=True, slots=True)
class RunningGateway:
    """A live gateway: its address, the file its log goes to, and its process."""

    url: str
    log: pathlib.Path
    process_id: int = 0


@contextlib.contextmanager
def running_gateway(
    upstream: str, work: pathlib.Path, settings: Mapping[str, object], *, ready: str = "/readyz"
) -> Iterator[RunningGateway]:
    """`vlm-gateway serve` with `settings` as its file; the block runs once `ready` answers. `work` takes file, log."""
    work.mkdir(parents=True, exist_ok=True)
    (work / "gateway.yaml").write_text(yaml.safe_dump(dict(settings)))
    gateway = RunningGateway(f"http://127.0.0.1:{(port := free_port())}", work / "gateway.log")
    command = ["serve", "--upstream", upstream, "--port", str(port), "--config", str(work / "gateway.yaml")]
    with gateway.log.open("wb") as log:
        process = subprocess.Popen([sys.executable, "-m", "gateway", *command], stdout=log, stderr=subprocess.STDOUT)
    try:
        wait_until_ready(f"{gateway.url}{ready}", process, gateway.log)
        yield replace(gateway, process_id=process.pid)
    finally:
        process.send_signal(signal.SIGINT)  # as SIGTERM, without the grace for load balancers
        process.wait(STOP_SECONDS)


def wait_until_ready(url: str, process: "subprocess.Popen[bytes]", log: pathlib.Path) -> None:
    """Raises RuntimeError with the log when `url` does not answer 200 within START_SECONDS."""
    give_up_at = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < give_up_at:
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(url).status_code == httpx.codes.OK:
                return
        time.sleep(0.1)
    raise RuntimeError(f"{url} was not ready (exit code {process.poll()}):\n{log.read_text(errors='replace')[-6000:]}")


def resident_bytes(process_id: int) -> int:
    """Memory of a process and of all that it started. What they share counts for each of them."""
    total = 0
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        folder = pathlib.Path(f"/proc/{process_id}")
        pages = int((folder / "statm").read_text(encoding="ascii").split()[1])
        total = pages * resource.getpagesize()
        for thread in (folder / "task").iterdir():
            children = (thread / "children").read_text(encoding="ascii").split()
            total += sum(resident_bytes(int(child)) for child in children)
    return total


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def metrics(url: str) -> dict[str, float]:
    """Every sample of `url`/metrics, by `series_name`."""
    families = text_string_to_metric_families(httpx.get(f"{url}/metrics").raise_for_status().text)
    return {series_name(sample.name, sample.labels): sample.value for family in families for sample in family.samples}


def series_name(name: str, labels: Mapping[str, str]) -> str:
    """Such as `gateway_held{resource="kv_blocks"}`: where there is one upstream, its name goes without saying."""
    labels = {label: value for label, value in labels.items() if (label, value) not in _ONE_UPSTREAM}
    inside = ",".join(f'{label}="{value}"' for label, value in sorted(labels.items()))
    return f"{name}{{{inside}}}" if inside else name
